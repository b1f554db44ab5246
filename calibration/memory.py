"""How much memory is available for loading data."""

from __future__ import annotations

import os
import re
from pathlib import Path

COPIES = 2
"""Arrays are converted and split after reading: twice their size must fit."""
IN_MEMORY_BYTES = 256 * 10**6
"""Smaller arrays are read whole; larger ones stay in their file, if its format allows it."""
_MEMINFO = Path("/proc/meminfo")
_CGROUPS = Path("/sys/fs/cgroup")


class TooLargeError(ValueError):
    """Raised before loading data that would not fit into memory."""


def check_fits(size: int, what: str) -> None:
    """Raise ``TooLargeError`` unless ``size`` bytes can be loaded and processed.

    ``what`` begins the message, e.g. "data.npz: its arrays unpack to".
    """
    if not fits(size):
        raise TooLargeError(
            f"{what} {readable(size)}, and working with that takes about {COPIES} times as much, "
            f"but {readable(available_memory())} of memory are available"
        )


def fits(size: int) -> bool:
    """Whether ``size`` bytes can be loaded and processed."""
    return size <= room()


def room() -> int:
    """The number of bytes that can be loaded and processed."""
    return available_memory() // COPIES


def available_memory() -> int:
    """The bytes that this process may still allocate: the machine's, or a control group's fewer."""
    return min(_of_the_machine(), *_of_the_control_group())


def readable(size: int) -> str:
    """A number of bytes in a suitable unit."""
    number, unit = float(min(size, 10**24)), "bytes"  # a hostile header may claim any number
    for larger in ("kB", "MB", "GB", "TB", "PB", "EB"):
        if number < 1000:
            break
        number, unit = number / 1000, larger
    return f"{number:.4g} {unit}"


def _of_the_machine() -> int:
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB$", _MEMINFO.read_text(), re.MULTILINE)
    except OSError:  # not Linux
        found = None
    if found:
        return int(found[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_the_control_group() -> list[int]:
    """The bytes left under a container's limits (control groups version 2 or 1)."""
    places = [(_CGROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes")]
    place = _CGROUPS / _own_control_group()
    for directory in (place, *place.parents):
        if directory.is_relative_to(_CGROUPS):
            places.append((directory, "memory.max", "memory.current"))
    left = []
    for directory, limit, used in places:
        try:
            most, taken = ((directory / name).read_text().strip() for name in (limit, used))
            left.append(max(0, int(most) - int(taken)))
        except (OSError, ValueError):  # the file is missing, or the limit is "max"
            continue
    return left or [2**63]


def _own_control_group() -> str:
    try:
        found = re.search(r"^0::/(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else ""
