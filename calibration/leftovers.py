"""Names for temporary files and directories that show whether their creator is still alive.

A killed process leaves behind what it was about to move or delete. It may be removed only after
its creator has died: another sweep may be writing there too. Hence every temporary name ends in
a token of 32 hexadecimal digits: 8 of a hash of the machine (one boot, one container), 6 of the
process id, 8 of the process's start time (process ids are reused) and 10 random ones.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import time
import uuid
from functools import cache
from pathlib import Path

TOKEN = re.compile(r"([0-9a-f]{8})([0-9a-f]{6})([0-9a-f]{8})[0-9a-f]{10}\Z")
UNKNOWN = "0" * 8
FOREIGN_SECONDS = 86400.0
"""After this long, files made on another machine or before a reboot count as leftovers."""


def temporary_name(prefix: str) -> str:
    """A new name for a temporary file or directory of this process: ``prefix`` and a token."""
    return prefix + token()


def token() -> str:
    """32 hexadecimal digits, unique to this call, that identify this process."""
    pid = os.getpid()
    return f"{_machine_digits()}{pid & 0xFFFFFF:06x}{started(pid)}{secrets.token_hex(5)}"


def made_by_the_dead(name: str) -> bool:
    """Whether a name made by ``temporary_name`` belongs to a dead process of this machine.

    False for all other names, including those from other machines, whose processes are unknown.
    """
    found = TOKEN.search(name)
    return found is not None and _is_dead(found)


def is_leftover(path: Path) -> bool:
    """Whether a temporary path may be removed: its creator is dead, or foreign and a day old.

    False for names not made by ``temporary_name``, and for paths that no longer exist.
    """
    found = TOKEN.search(path.name)
    if found is None:
        return False
    if found[1] == _machine_digits():
        return _is_dead(found)
    try:
        return time.time() - path.lstat().st_mtime > FOREIGN_SECONDS
    except OSError:
        return False


def remove_leftovers(place: Path, prefix: str) -> None:
    """Remove leftovers of dead processes in ``place``, as far as possible."""
    try:
        found = [path for path in place.iterdir() if path.name.startswith(prefix)]
    except OSError:  # the directory is missing or not readable
        return
    for path in found:
        if is_leftover(path):
            shutil.rmtree(path, ignore_errors=True)


@cache
def machine() -> str:
    """The scope in which a process id is unique: one boot, one container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{socket.gethostname()}/{uuid.getnode()}"


def started(pid: int) -> str:
    """When a process of this machine started, as 8 digits; ``UNKNOWN`` without /proc."""
    return _start(_stat(pid))


def is_dead(pid: int, start: str) -> bool:
    """Whether the process of this machine with this id and start time is gone.

    ``start`` is the value of ``started``. If in doubt, it counts as alive: it may be another
    user's.
    """
    fields = _stat(pid)
    if fields:  # a zombie no longer writes, and in a container it may never be reaped
        return fields[0] in "ZX" or UNKNOWN != start != _start(fields) != UNKNOWN
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


@cache
def _machine_digits() -> str:
    return hashlib.sha256(machine().encode()).hexdigest()[:8]


def _is_dead(found: re.Match[str]) -> bool:
    digits, pid, start = found.groups()
    return digits == _machine_digits() and is_dead(int(pid, 16), start)


def _start(fields: list[str]) -> str:
    return f"{int(fields[19]) & 0xFFFFFFFF:08x}" if fields else UNKNOWN


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty if they cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the process name before it may contain anything
