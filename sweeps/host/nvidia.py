"""Facts about this machine's NVIDIA driver that torch does not report."""

from __future__ import annotations

import re
from pathlib import Path

_VERSION = re.compile(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)*)\s", re.MULTILINE)


def driver_version(root: Path = Path("/")) -> str:
    """The version of the loaded driver; empty if none is loaded."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    found = _VERSION.search(text)
    return found[1] if found else ""
