"""The bundled specs: their files and names, without reading any of them."""

from __future__ import annotations

from pathlib import Path

SPECS = Path(__file__).parent
SUITES = ("nightly",)
"""Lists of specs, which are in a directory of that name."""


def ready_specs() -> list[Path]:
    """The files of all bundled specs."""
    files = SPECS.rglob("*.yaml")
    return sorted(path for path in files if path.parent != SPECS or path.stem not in SUITES)


def ready_names() -> list[str]:
    """The names by which they are run: ``survey``, ``nightly/digits``."""
    return [path.relative_to(SPECS).with_suffix("").as_posix() for path in ready_specs()]
