"""The specs that come with the package, to be run by their name."""

from __future__ import annotations

from pathlib import Path

SPECS = Path(__file__).parent.parent / "specs"


def spec_path(path: Path) -> Path:
    """The file of a spec that may be given by the name of a ready one."""
    ready = SPECS / f"{path}.yaml"
    return ready if not path.exists() and path.suffix == "" and ready.exists() else path
