"""Runs a plan on Ray Tune until nothing is left.

One Tune run serves all studies and the confirm phase, so that every core stays busy to
the end. Tune's own checkpoints, loggers and restore are off: the store is the only state,
and running the same sweep again continues it.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.cells import Entry
from sweeps.plan import Plan
from sweeps.spec import SpecError
from sweeps.store import Store

if TYPE_CHECKING:
    from sweeps.searcher import PlanSearcher

ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_V2_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_FORCE_TRIAL_CLEANUP_S": "10",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C must reach us, not end Tune as if it were done
}


def train(
    plan: Plan,
    store: Store,
    *,
    address: str | None,
    on_event: Callable[[Entry], None],
    still_ours: Callable[[], None],
) -> None:
    """Train everything the plan still holds. ``on_event`` hears of every trial that ends.

    Raises ``StoreError`` when the store cannot be used any more, and what ``still_ours``
    raises when another driver has taken over.
    """
    if plan.finished:
        return
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Workers must find the user's own modules where the driver found them.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    import ray  # starting Ray costs seconds: a finished sweep never gets here

    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address or "local",  # without it Ray would join any cluster it finds here
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, ValueError, ImportError, RuntimeError) as error:
        if address is None:
            raise
        raise SpecError(f"--address {address}: no Ray cluster answers there: {error}") from None
    finally:
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray has put its own there
    from sweeps.searcher import PlanSearcher  # needs Ray

    scratch = tempfile.mkdtemp(prefix="calsweep-tune-")
    shared: dict[str, Any] = {
        "store": store.root,
        "maps": plan.spec.maps,
        "evaluation": tuple(plan.spec.evaluation),
        "cpu": plan.spec.resources.cpu,
        "gpu": plan.spec.resources.gpu,
        "time_limit": plan.spec.time_limit,
    }
    try:
        _tune(plan, Path(scratch), PlanSearcher(plan, shared, on_event, still_ours))
    finally:
        ray.shutdown()
        shutil.rmtree(scratch, ignore_errors=True)


def _tune(plan: Plan, scratch: Path, searcher: PlanSearcher) -> None:
    from ray import nodes, tune

    from sweeps.searcher import Forget, PlanScheduler
    from sweeps.trainable import CalibrationTrial

    # What a trial dies of stands in its record; Tune would print every trace.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    resources = plan.spec.resources
    tuner = tune.Tuner(
        tune.with_resources(CalibrationTrial, {"cpu": resources.cpu, "gpu": resources.gpu}),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=PlanScheduler(searcher),
            num_samples=-1,
            max_concurrent_trials=_slots(nodes(), resources.cpu, resources.gpu),
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="sweep",
            storage_path=str(scratch),
            # The plan begins a trial again whose process died: it counts, and knows the reason.
            failure_config=tune.FailureConfig(max_failures=0),
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_at_end=False, checkpoint_frequency=0
            ),
            callbacks=[Forget()],
            verbose=0,
        ),
    )
    try:
        tuner.fit()
    except Exception:
        if searcher.failure is not None:
            raise searcher.failure from None
        raise


def _slots(nodes: list[dict[str, Any]], cpu: float, gpu: float) -> int:
    """How many trials run at once: Tune keeps only one pending unless it is told."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]

    def fit(node: dict[str, float]) -> int:
        by_cpu = node.get("CPU", 0) / cpu
        return int(min(by_cpu, node.get("GPU", 0) / gpu) if gpu else by_cpu)

    slots = sum(map(fit, alive))
    if slots < 1:
        most = [max((node.get(name, 0) for node in alive), default=0) for name in ("CPU", "GPU")]
        raise SpecError(
            f"resources: a trial wants {cpu:g} CPU and {gpu:g} GPU, and no machine here has more "
            f"than {most[0]:g} and {most[1]:g}; lower the demand"
        )
    return slots
