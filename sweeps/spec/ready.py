"""The bundled specs, which are run by their names."""

from __future__ import annotations

from pathlib import Path

from sweeps.spec.reading import is_there
from sweeps.specs import SPECS


def spec_path(path: Path) -> Path:
    """The file of a spec, given by its path or by the name of a bundled one."""
    ready = SPECS / f"{path}.yaml"
    return ready if not is_there(path) and path.suffix == "" and is_there(ready) else path
