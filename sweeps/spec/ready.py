"""The specs that come with the package, to be run by their name."""

from __future__ import annotations

from pathlib import Path

from sweeps.spec.reading import is_there
from sweeps.specs import SPECS


def spec_path(path: Path) -> Path:
    """The file of a spec that may be given by the name of a ready one."""
    ready = SPECS / f"{path}.yaml"
    return ready if not is_there(path) and path.suffix == "" and is_there(ready) else path
