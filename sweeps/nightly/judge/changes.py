"""Differences between the identities of two nights: the suspects when their numbers differ."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import sweeps

MOST_COMMITS = 20
REVISION = re.compile(r"[0-9a-f]{7,40}")


class Change(NamedTuple):
    """An entry of the identity that changed; a side is empty where there was or is no entry."""

    what: str
    before: str
    now: str


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[Change]:
    """What differs between two identities, in the order of the second."""
    names = dict.fromkeys((*now, *before))
    pairs = ((name, before.get(name, ""), now.get(name, "")) for name in names)
    return [Change(*each) for each in pairs if each[1] != each[2]]


def between(before: str, now: str) -> str:
    """Two revisions, ``1a2b3c4…5d6e7f8``; empty if one is unknown or both are the same."""
    first, last = (REVISION.match(revision) for revision in (before, now))
    return "" if not (first and last) or before == now else f"{first[0][:7]}…{last[0][:7]}"


def commits(before: str, now: str) -> list[str]:
    """The commits from one revision to another, newest first, if this checkout has both."""
    first, last = (REVISION.match(revision) for revision in (before, now))
    root = Path(sweeps.__file__).parent.parent
    if not (first and last) or first[0] == last[0] or not (root / ".git").exists():
        return []
    command = ["git", "log", "--format=%h %s", f"-{MOST_COMMITS}", f"{first[0]}..{last[0]}"]
    try:
        found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return found.stdout.splitlines()
