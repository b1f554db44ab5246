"""Refuse impossible and unsafe locations on the command line before any work is done."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sweeps.errors import UserError
from sweeps.host.secrets import PASSWORD, masked

_LONGEST_PART = 255
LONGEST_PATH = 4095
STORE_ROOM = 600
"""Bytes that a store needs below its root for the longest names of sweeps, rows and files."""
STORES = ("store", "store_b")


def check_places(options: argparse.Namespace) -> None:
    """Raise ``UserError`` naming a path that is too long or has a NUL, or a store's password."""
    for name, value in vars(options).items():
        is_store = name in STORES and isinstance(value, str)
        if is_store:
            _check_public(f"--{name.replace('_', '-')}", value)
        path = _local(value) if is_store else value
        if not isinstance(path, Path):
            continue
        problem = _problem(path, LONGEST_PATH - STORE_ROOM if is_store else LONGEST_PATH)
        if problem is not None:
            raise UserError(f"{_short(str(value))}: {problem}")


def _check_public(option: str, store: str) -> None:
    """Every user of the machine can list the arguments of commands."""
    if not PASSWORD.search(store) or masked(store) == store:
        return
    names = f"FSSPEC_{store.partition('://')[0].upper()}"
    raise UserError(
        f"{option}: found {_short(masked(store))}; other users can see a command's arguments: "
        f"leave user and password out, and set {names}_USERNAME and {names}_PASSWORD in the "
        "environment"
    )


def _local(store: str) -> Path | None:
    """The path of a store on this machine; None if it is elsewhere."""
    scheme, separator, _ = store.partition("://")
    if not separator:
        return Path(store)
    return Path(unquote(urlsplit(store).path)) if scheme in ("file", "local") else None


def _problem(path: Path, longest: int) -> str | None:
    if "\0" in str(path):
        return "a path cannot contain the character \\0"
    longest_part = max((len(os.fsencode(part)) for part in path.parts), default=0)
    if longest_part > _LONGEST_PART:
        return f"the name of a file or directory has at most {_LONGEST_PART} bytes"
    if len(os.fsencode(path)) > longest:
        return f"the path has {len(os.fsencode(path))} bytes; at most {longest} are possible"
    return None


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:50]}...{text[-27:]}")
