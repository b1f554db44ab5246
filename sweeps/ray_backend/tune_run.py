"""Runs a plan on Ray Tune until nothing is left.

One Tune run serves all studies and the confirm phase, so that every core stays busy to
the end. Tune's own checkpoints, loggers and restore are off: the store is the only state,
and running the same sweep again continues it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibration.text import count
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.host.allocation import cpus
from sweeps.host.environment import variables
from sweeps.host.process import quiet
from sweeps.host.stages import stage
from sweeps.ray_backend.assignment import BLOCK_SECONDS, Terms
from sweeps.ray_backend.capacity import Capacity, Demand, machines
from sweeps.ray_backend.connection import Cluster, connected
from sweeps.ray_backend.handshake import Handshake
from sweeps.ray_backend.local_ray import BackendError, lost
from sweeps.ray_backend.template import Template
from sweeps.ray_backend.watch import Watch
from sweeps.spec import LoadedSpec, SpecError
from sweeps.store import Store

if TYPE_CHECKING:
    from sweeps.ray_backend.searcher import PlanSearcher

TUNE_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "100000",  # the searcher itself knows how many fit
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_V2_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_FORCE_TRIAL_CLEANUP_S": "10",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C must reach us, not end Tune as if it were done
}

REPORTS_A_SECOND = 40
"""As many as Tune's loop can process: with many trials, blocks are longer."""


def train(
    plan: Plan,
    store: Store,
    *,
    cluster: Cluster,
    on_event: Callable[[PlannedTrial], None],
    still_ours: Callable[[], None],
    tell: Callable[[str], None],
    workspace: Path,
    template: Template | None = None,
    paced: bool = False,
) -> None:
    """Train everything that is left in the plan.

    ``on_event`` is called for every trial that ends, ``tell`` with a line about the cluster.
    Workers on this machine are forked from the ``template``, if there is one. ``paced``: they
    interleave reference work, by which costs can be compared.

    Raises ``StoreError`` if the store can no longer be used, ``BackendError`` if Ray does not
    start or is lost, and what ``still_ours`` raises if the sweep is no longer this driver's.
    """
    if plan.finished:
        return
    settings: dict[str, str | None] = {
        name: os.environ.get(name, value) for name, value in TUNE_ENVIRONMENT.items()
    }
    # Workers must find the user's own modules where the driver found them.
    settings["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with ExitStack() as ending:
        ending.enter_context(variables(settings))
        if place := _place(cluster):
            tell(place)
        # Starting Ray costs seconds: a finished sweep never gets here.
        with stage("Ray start"):
            ensure_alive = ending.enter_context(
                connected(cluster, plan.loaded, workspace, template)
            )
        ending.enter_context(Watch(ensure_alive, still_ours))
        with stage("waiting for trials"):
            _run(plan, store, cluster, workspace, on_event, still_ours, tell, paced=paced)
        with stage("Ray stop"):
            ending.close()


def _place(cluster: Cluster) -> str:
    """Where trials are about to run, if that is worth a message."""
    if cluster.address is not None:
        return f"connecting to the Ray cluster at {cluster.address}"
    found = cpus()
    if cluster.cpus is not None or not found.limit:
        return ""
    return f"{count(found.number, 'CPU')} of this machine's {os.cpu_count()}: {found.limit}"


def _run(
    plan: Plan,
    store: Store,
    cluster: Cluster,
    workspace: Path,
    on_event: Callable[[PlannedTrial], None],
    still_ours: Callable[[], None],
    tell: Callable[[str], None],
    *,
    paced: bool,
) -> None:
    with stage("imports"):
        import ray

        from sweeps.ray_backend.searcher import PlanSearcher

    demand = _demand(plan, cluster)
    room = Capacity(demand, lambda: machines(ray.nodes()), cluster.concurrent)
    if cluster.address is not None:
        tell(room.describe())
    terms = replace(
        Terms.of(plan.spec, store.root),
        cpu=demand.cpu,
        gpu=demand.gpu,
        block=max(BLOCK_SECONDS, room() / REPORTS_A_SECOND),
        handshake=Handshake.begin(store, plan.spec.name) if cluster.address else None,
        paced=paced,
    )
    with closing(PlanSearcher(plan, terms, on_event, still_ours, room)) as searcher:
        _tune(plan, demand, workspace / "tune", searcher, elsewhere=cluster.address is not None)


def _demand(plan: Plan, cluster: Cluster) -> Demand:
    """What a trial occupies; ``auto`` depends on the present GPUs.

    Cohorts are then no larger than one GPU holds. Raises ``SpecError`` if there are none although
    the spec trains on them, or none yet on a cluster that is to scale up.
    """
    import ray

    asked = plan.spec.resources
    if asked.gpu != "auto":
        return Demand(asked.cpu, asked.gpu)
    from sweeps.ray_backend.gpu_share import choose_share
    from sweeps.ray_backend.gpus import least_memory

    gpus = sum(machine.gpus for machine in machines(ray.nodes()))
    if not gpus and cluster.concurrent is not None:
        raise SpecError(
            "resources.gpu: found auto, but the cluster has no GPU yet whose memory could be read; "
            "wait until one has joined, or write a share such as 0.25 (or 0 for CPUs)"
        )
    if not gpus and asked.trains_on == "cuda":
        raise SpecError(
            "resources.gpu: found auto, but no machine here has a GPU; write 0 to train on CPUs"
        )
    chosen = choose_share(plan.loaded, gpus, least_memory)
    if chosen.gpu:
        plan.limit_cohorts(chosen.members)
    return Demand(asked.cpu, chosen.gpu)


def _with_data(trainable: Any, loaded: LoadedSpec) -> Any:
    """The trainable with the datasets, which Ray's object store ships once to every node.

    So a file that only the driver's machine has reaches all of them. What cannot be shipped (a
    user's own dataset that cannot be pickled) is read by every worker itself.
    """
    from ray import tune

    try:
        return tune.with_parameters(trainable, datasets=list(loaded.datasets.values()))
    except Exception:  # pickling somebody's class may raise anything; so may a full store
        return trainable


def _tune(
    plan: Plan, demand: Demand, scratch: Path, searcher: PlanSearcher, *, elsewhere: bool
) -> None:
    with stage("imports"):
        from ray import tune
        from ray.exceptions import RayError

        from sweeps.ray_backend.searcher import Forget, PlanScheduler
        from sweeps.ray_backend.trainable import CalibrationTrial

    trainable = _with_data(CalibrationTrial, plan.loaded) if elsewhere else CalibrationTrial
    tuner = tune.Tuner(
        tune.with_resources(trainable, demand._asdict()),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=PlanScheduler(searcher),
            num_samples=-1,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="sweep",
            storage_path=str(scratch),
            # The plan restarts a trial whose process died: it counts, and knows the reason.
            failure_config=tune.FailureConfig(max_failures=0),
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_at_end=False, checkpoint_frequency=0
            ),
            callbacks=[Forget()],
            verbose=0,
        ),
    )
    try:
        # A failed trial's record has the reason; Tune would print every traceback.
        with quiet({"ray.tune": logging.CRITICAL}):
            tuner.fit()
    except Exception as error:
        if searcher.failure is not None:
            raise searcher.failure from None
        if isinstance(error, RayError):
            raise BackendError(lost(" ".join(str(error).split())[:300])) from error
        raise
