"""Ray Tune's own loop, set up as the engine sets it up, with trials that do nothing.

Real actors, reused from trial to trial, without torch; each takes so small a share of a CPU
that many fit. What is measured is the driver: its loop's CPU time per trial and per report.
"""

from __future__ import annotations

import logging
import os
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

CPUS = 2
LIVE: dict[int, Any] = {}


class Idle(tune.Trainable):
    """Reports ``reports`` times, each after ``seconds`` of sleep."""

    def setup(self, config: dict[str, Any]) -> None:
        self._left = int(config["reports"])

    def step(self) -> dict[str, Any]:
        time.sleep(float(self.config["seconds"]))
        self._left -= 1
        return {"done": self._left <= 0, "epoch": 1, "pid": os.getpid()}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True


class Numbered(Searcher):
    """``trials`` trials, ``concurrent`` at once, each with a configuration of a real one's size."""

    def __init__(self, trials: int, concurrent: int, shared: dict[str, Any]) -> None:
        super().__init__()
        self.trials, self.concurrent, self.shared = trials, concurrent, shared
        self.asked = 0
        self.running: set[str] = set()
        self.marks: list[tuple[float, float]] = []
        LIVE[id(self)] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return LIVE.__getitem__, (id(self),)  # Tune copies it, and must get this very one

    def suggest(self, trial_id: str) -> Any:
        if self.asked == self.trials:
            return str(Searcher.FINISHED)
        if len(self.running) >= self.concurrent:
            return None
        self.asked += 1
        self.running.add(trial_id)
        return self.shared | {"trial": {f"hyperparameter {i}": self.asked for i in range(40)}}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        if error:
            raise RuntimeError("a trial that does nothing has failed")
        self.running.remove(trial_id)
        self.marks.append((time.process_time(), time.perf_counter()))

    def save(self, checkpoint_path: str) -> None: ...

    def restore(self, checkpoint_path: str) -> None: ...


class Unchosen(FIFOScheduler):
    """Lets Tune start what is pending without looking through all trials there ever were."""

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        return None


def measure(
    concurrent: int, trials: int, *, reports: int, seconds: float, scan: bool
) -> dict[str, float]:
    """The driver's CPU ms per trial after all actors are there, at first and at last.

    ``scan``: Tune's own scheduler looks through all trials at every step.
    """
    import ray

    from sweeps.ray_backend.tune_run import (
        TUNE_ENVIRONMENT,  # not for the actors, which need no torch
    )

    for name, value in TUNE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="calsweep-tune-") as scratch:
        _start_ray()
        searcher = Numbered(trials, concurrent, {"reports": reports, "seconds": seconds})
        tune.Tuner(
            tune.with_resources(Idle, {"cpu": CPUS / concurrent * 0.999}),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=FIFOScheduler() if scan else Unchosen(),
                num_samples=-1,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=scratch,
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_at_end=False, checkpoint_frequency=0
                ),
                verbose=0,
            ),
        ).fit()
        logs = Path(ray._private.worker._global_node.get_logs_dir_path())
        processes = len(list(logs.glob("worker-*.err")))
        ray.shutdown()
    marks = searcher.marks[2 * concurrent :]
    third = len(marks) // 3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "CPU ms a trial": _each(marks, 0),
        "CPU ms a trial, first third": _each(marks[:third], 0),
        "CPU ms a trial, last third": _each(marks[-third:], 0),
        "wall ms a trial": _each(marks, 1),
        "worker processes started": processes,
        "driver's peak memory, MB": peak,
    }


def _each(marks: list[tuple[float, float]], clock: int) -> float:
    return (marks[-1][clock] - marks[0][clock]) / (len(marks) - 1) * 1e3


def looking(trials: int, rounds: int = 5) -> float:
    """CPU ms of the look through ``trials`` ended trials that Tune's scheduler takes each step."""

    class Ended:
        def get_trials(self) -> list[Trial]:
            return ended

    tune.register_trainable("nothing", lambda config: None)
    ended = [Trial("nothing", stub=True, trial_id=str(number)) for number in range(trials)]
    for trial in ended:
        trial.set_status(Trial.TERMINATED)
    start = time.thread_time()
    for _ in range(rounds):
        FIFOScheduler().choose_trial_to_run(Ended())  # type: ignore[arg-type]
    return (time.thread_time() - start) / rounds * 1e3


def waiting(pending: int, rounds: int = 50) -> float:
    """CPU ms of Tune's wait for one of ``pending`` running trials, of which one has reported.

    It waits for all of them at every step, so this is what grows with their number; here a
    single actor stands for all that run.
    """
    import ray

    class Busy:
        def work(self) -> None:
            time.sleep(600)

    _start_ray()
    actor = ray.remote(Busy).remote()  # type: ignore[attr-defined]
    running = [actor.work.remote() for _ in range(pending - 1)]
    spent = []
    for number in range(rounds):
        reported = ray.put(number)
        start = time.process_time()
        futures = [*running, reported]
        random.shuffle(futures)  # as Tune does, so that nobody is served first
        ray.wait(futures, num_returns=1, timeout=0.1)
        spent.append(time.process_time() - start)
    ray.shutdown()
    return statistics.median(spent) * 1e3


def _start_ray() -> None:
    import ray

    ray.init(
        address="local",
        num_cpus=CPUS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100 * 2**20,
    )
