"""The specs that come with the package, to be run by their name."""

from __future__ import annotations

from pathlib import Path

from sweeps.spec.reading import is_there

SPECS = Path(__file__).parent.parent / "specs"
SUITES = ("nightly",)
"""Those that are no specs but lists of them: the specs lie in a directory of that name."""


def ready_specs() -> list[Path]:
    """The files of all ready specs."""
    files = SPECS.rglob("*.yaml")
    return sorted(path for path in files if path.parent != SPECS or path.stem not in SUITES)


def spec_path(path: Path) -> Path:
    """The file of a spec that may be given by the name of a ready one."""
    ready = SPECS / f"{path}.yaml"
    return ready if not is_there(path) and path.suffix == "" and is_there(ready) else path
