"""Real sweeps trained in this process: what Ray would do, without Ray, in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from sweeps.engine.evaluation import TrialEvaluation
from sweeps.engine.plan import Plan
from sweeps.engine.trial import TrialRun
from sweeps.spec import load_spec
from sweeps.store import Store
from sweeps.sweep import SPEC, Sweep, saved_state


@contextmanager
def no_pictures() -> Iterator[None]:
    """Draw no diagram of every confirmed trial: that takes longer than a small training."""
    with patch.object(TrialEvaluation, "_draw"):
        yield


def train_sweep(
    directory: Path,
    text: str,
    *,
    store: str = "runs",
    limit: int = 10_000,
    pictures: bool = False,
) -> Sweep:
    """The sweep of a spec with every trial trained, or the first ``limit`` of them."""
    path = directory / "spec.yaml"
    path.write_text(text)
    place = Store(directory / store)
    if pictures:
        return _finish(path, place, limit)
    return finish(path, place, limit)


@no_pictures()
def finish(spec: Path, store: Store, limit: int = 10_000) -> Sweep:
    """The same for a spec that is there."""
    return _finish(spec, store, limit)


def _finish(spec: Path, store: Store, limit: int) -> Sweep:
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
