"""Real sweeps trained in this process: no Ray, no MLflow, seconds."""

from __future__ import annotations

from pathlib import Path

from sweeps.plan import Plan
from sweeps.spec import load_spec
from sweeps.store import Store
from sweeps.sweep import SPEC, Sweep
from sweeps.trial import TrialRun


def train_sweep(directory: Path, text: str, *, store: str = "runs", limit: int = 10_000) -> Sweep:
    """The sweep of a spec with every trial trained, or the first ``limit`` of them."""
    path = directory / "spec.yaml"
    path.write_text(text)
    loaded = load_spec(path)
    place = Store(directory / store)
    place.write_file(loaded.spec.name, SPEC, loaded.text.encode())
    place.write_state(loaded.spec.name, {"extra": 0, "directory": str(loaded.directory)})
    plan = Plan(loaded, place)
    plan.replay()
    for _ in range(limit):
        entry = plan.next()
        if entry is None:
            break
        trial = TrialRun(
            entry.config,
            place,
            maps=plan.spec.maps,
            evaluation=plan.spec.evaluation,
            device="cpu",
        )
        assert trial.advance(600)
        plan.complete(entry.key)
    return Sweep(loaded, place)
