"""The paths within a store, and the names that may be part of them.

Every function here raises ``ValueError`` for a name that would leave its directory or collide
with the store's own names.
"""

from __future__ import annotations

import hashlib
import os
import re

RESERVED_NAMES = frozenset(
    {"damaged", "embeddings", "mlartifacts", "mlflow.db", "records", "retired"}
)
# What lies beside a sweep's plain files, and beside the files of a trial's record.
SWEEP_PARTS = frozenset({"importance", "stopped", "suggestions"})
TRIAL_PARTS = frozenset(
    {
        *("checkpoint.bin", "live.json", "record.json"),
        *("evaluations", "older-evaluations", "row-scores"),
    }
)
SWEEP_STATE = ".state.json"
TRIAL_KEY = re.compile(r"[0-9a-f]{1,64}")
# No separators, nothing unprintable, nothing that a remote file system takes for a pattern.
PART = re.compile(r"[^\x00-\x1f\x7f/\\*?\[\]]+")
_LONGEST_PART = 255
"""In bytes: file systems count these, not characters."""
_LONGEST_NAME = 110
"""For names made fit for a path, in bytes: some file names contain two of them."""


def file_name(name: str) -> str:
    """``name`` as part of a path: everything unusual becomes an underscore.

    The end of a long name is replaced by a digest, so that different names stay different.
    """
    plain = "".join(c if c.isalnum() or c in "-_.+" else "_" for c in name)
    if len(plain.encode()) <= _LONGEST_NAME:
        return plain
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{plain.encode()[: _LONGEST_NAME - 13].decode(errors='ignore')}-{digest}"


def part(name: str, argument: str = "name") -> str:
    """``name`` itself, checked to be one part of a path and not a hidden file."""
    if name.startswith(".") or not is_part(name):
        raise ValueError(
            f"{argument}: found {name!r}; a name has 1 to {_LONGEST_PART} bytes, none of the "
            "characters / \\ * ? [ ], and does not start with a dot"
        )
    return name


def is_part(name: str) -> bool:
    """Whether ``name`` can be one part of a path."""
    return bool(PART.fullmatch(name)) and len(os.fsencode(name)) <= _LONGEST_PART


def sweep_directory(sweep: str) -> str:
    """The directory of a sweep's own files."""
    if sweep in RESERVED_NAMES:
        raise ValueError(f"sweep: found {sweep!r}, which the store uses itself; choose another")
    return part(sweep, "sweep")


def sweep_file(sweep: str, name: str) -> str:
    """One of a sweep's result files, such as ``figures/x.png``."""
    parts = [part(piece) for piece in name.split("/")]
    if parts[0] in SWEEP_PARTS:
        raise ValueError(f"name: found {name!r}; {parts[0]!r} is the store's own directory")
    return f"{sweep_directory(sweep)}/{name}"


def study_directory(sweep: str, kind: str, study: str) -> str:
    """What the store keeps of a study, by ``kind`` (``SWEEP_PARTS``); ``study`` may have parts."""
    pieces = study.split("/")
    if not all(is_part(piece) and piece not in (".", "..") for piece in pieces):
        raise ValueError(f"study: found {study!r}; its parts are plain names, joined by /")
    return f"{sweep_directory(sweep)}/{kind}/{study}"


def checked_key(key: str) -> str:
    """A trial's key: hexadecimal digits."""
    if not TRIAL_KEY.fullmatch(key):
        raise ValueError(f"key: found {key!r}; a trial's key is 1 to 64 of the digits 0-9 and a-f")
    return key


def trial_directory(key: str) -> str:
    """The directory of a trial."""
    return f"records/{checked_key(key)}"


def attempt_directory(key: str, attempt: str) -> str:
    """The directory of the files of a record."""
    return f"{trial_directory(key)}/{attempt}"


def attempt_parts(key: str, attempt: str | None) -> list[str]:
    """All paths of a record, its own first; ``attempt`` is None if unknown."""
    record = f"{trial_directory(key)}/record.json"
    return [record] if attempt is None else [record, attempt_directory(key, attempt)]


def trial_file(name: str) -> str:
    """The name of one of a trial's files: ``name`` itself."""
    if part(name) in TRIAL_PARTS:
        raise ValueError(f"name: found {name!r}, which the store uses itself; choose another")
    return name
