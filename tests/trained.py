"""Real sweeps trained in this process: what Ray would do, without Ray, in seconds."""

from __future__ import annotations

from pathlib import Path

from sweeps.engine.plan import Plan
from sweeps.engine.trial import TrialRun
from sweeps.spec import load_spec
from sweeps.store import Store
from sweeps.sweep import SPEC, Sweep, saved_state


def train_sweep(directory: Path, text: str, *, store: str = "runs", limit: int = 10_000) -> Sweep:
    """The sweep of a spec with every trial trained, or the first ``limit`` of them."""
    path = directory / "spec.yaml"
    path.write_text(text)
    return finish(path, Store(directory / store), limit)


def finish(spec: Path, store: Store, limit: int = 10_000) -> Sweep:
    """The same for a spec that is there."""
    loaded = load_spec(spec)
    store.write_file(loaded.spec.name, SPEC, loaded.text.encode())
    store.write_state(loaded.spec.name, saved_state(loaded, store))
    plan = Plan(loaded, store)
    plan.replay()
    for _ in range(limit):
        trial = plan.next()
        if trial is None:
            break
        calibrators, evaluation = plan.spec.calibrator_names, plan.spec.evaluation
        attempt = TrialRun(
            trial.config,
            store,
            calibrators=calibrators,
            evaluation=evaluation,
            ensemble=plan.spec.ensemble_seeds,
        )
        assert attempt.advance(600)
        plan.complete(trial.key)
    return Sweep(loaded, store)
