"""What ``sweeps.run`` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from sweeps.errors import UserError
from sweeps.ray_backend.connection import Cluster
from sweeps.runner import run_sweep
from sweeps.spec import LoadedSpec, load_spec, read_spec
from sweeps.spec.ready import spec_path
from sweeps.spec.tracking_uri import tracking_problem
from sweeps.store import Store
from sweeps.sweep import Sweep


def run_spec(
    spec: str | Path | Mapping[str, Any],
    *,
    store: str | Path,
    tracking: str | None,
    address: str | None,
) -> Sweep:
    """Run a sweep with nothing printed; see ``sweeps.run``."""
    loaded = _loaded(spec)
    problem = None if tracking is None else tracking_problem(tracking)
    if problem is not None:
        raise UserError(f"tracking: {problem}")
    place = Store(store)
    run_sweep(
        loaded,
        place,
        console=Console(quiet=True),
        tracking_uri=tracking,
        cluster=Cluster(address),
    )
    return Sweep(loaded, place)


def _loaded(spec: str | Path | Mapping[str, Any]) -> LoadedSpec:
    if isinstance(spec, Mapping):
        text = yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True)
        return read_spec(text, Path("spec"), Path.cwd())
    return load_spec(spec_path(Path(spec)))
