"""Of NVIDIA's driver on this machine, what torch does not tell."""

from __future__ import annotations

import re
from pathlib import Path

_VERSION = re.compile(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)*)\s", re.MULTILINE)


def driver_version(root: Path = Path("/")) -> str:
    """The version of the loaded driver; empty where none is loaded."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    found = _VERSION.search(text)
    return found[1] if found else ""
