"""The last resort of the command line: an unexpected error becomes one line and a log.

The log holds the traceback, without secrets. It is written to the directory ``crashes`` of the
sweep if that is known and writable, else of the user's state directory, else to the temporary
directory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import secrets
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sweeps.host.console import visible
from sweeps.host.secrets import without_secrets

_EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h: an internal error."""
DIRECTORY = "crashes"
KEPT = 20
LONGEST_LOG = 1_000_000
_LONGEST_REASON = 300


def report_crash(
    error: BaseException, words: Sequence[str], options: argparse.Namespace | None
) -> int:
    """Write the log of an unexpected error, print where it is, and return the exit code.

    ``words`` are those of the command line; ``options`` are the parsed ones, if known.
    """
    log = _written(_content(error, words), options)
    reason = " ".join(f"{type(error).__name__}: {_message(error)}".split()).removesuffix(":")
    shown = without_secrets(reason if len(reason) <= _LONGEST_REASON else f"{reason[:297]}...")
    where = f"the details are in {log}" if log else "and no log could be written"
    print(
        f"calsweep: internal error: {visible(shown, keep='')}; this is a bug in calsweep, please "
        f"report it; {where}",
        file=sys.stderr,
    )
    return _EXIT_CODE


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception of another library
        return "(its message cannot be shown)"


def _content(error: BaseException, words: Sequence[str]) -> bytes:
    try:
        trace = "".join(traceback.format_exception(error))
    except Exception:  # no memory is left for it, or the exception cannot be shown
        trace = type(error).__name__
    if len(trace) > LONGEST_LOG:
        half = LONGEST_LOG // 2
        trace = f"{trace[:half]}\n[...]\n{trace[-half:]}"
    lines = [
        f"calsweep {installed_version()}, Python {platform.python_version()}, "
        f"{platform.platform()}",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
        shlex.join(["calsweep", *words]),
        "",
        trace,
    ]
    return without_secrets("\n".join(lines)).encode(errors="backslashreplace")


def installed_version() -> str:
    """The version of the package, if it is installed."""
    try:
        return version("calsweep")
    except PackageNotFoundError:
        return "(not installed)"


def _written(content: bytes, options: argparse.Namespace | None) -> Path | None:
    for directory in _directories(options):
        with contextlib.suppress(OSError, ValueError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = _create(directory, content)
            _keep_newest(directory)
            return path
    with contextlib.suppress(OSError):
        return _create(Path(tempfile.gettempdir()), content, "calsweep-")
    return None


def _create(directory: Path, content: bytes, prefix: str = "") -> Path:
    """A new file that only this user can read."""
    name = f"{prefix}{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{secrets.token_hex(4)}.log"
    handle = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return directory / name


def _keep_newest(directory: Path) -> None:
    for old in sorted(directory.glob("*.log"))[:-KEPT]:  # their names start with the time
        old.unlink(missing_ok=True)


def _directories(options: argparse.Namespace | None) -> Iterator[Path]:
    """Possible directories for a log, the best first."""
    with contextlib.suppress(Exception):  # the cause of the error may strike here too
        sweep = _sweep_directory(options)
        if sweep is not None and sweep.is_dir():
            yield sweep / DIRECTORY
    with contextlib.suppress(RuntimeError):  # a user without a home
        state = Path(os.environ.get("XDG_STATE_HOME", ""))
        home = state if state.is_absolute() else Path.home() / ".local" / "state"
        yield home / "calsweep" / DIRECTORY


def _sweep_directory(options: argparse.Namespace | None) -> Path | None:
    """The local directory of the sweep that a command names, by its name or by its spec."""
    from sweeps.spec.reading import parse, read_text
    from sweeps.spec.ready import spec_path
    from sweeps.store import Store

    name = getattr(options, "sweep", None)
    spec = getattr(options, "spec", None)
    if name is not None and Path(name).suffix in (".yaml", ".yml"):
        spec = Path(name)
    if spec is not None:
        path = spec_path(spec)
        name = parse(path, read_text(path))[0].get("name")
    if options is None or not isinstance(name, str):
        return None
    store = Store(options.store)
    return Path(store.location(name)) if store.local else None
