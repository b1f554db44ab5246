"""What a trial costs the driver as a sweep grows: 10,000 recorded curves instead of training.

    python -m tests.benchmarks.bench_growth [--quick]

They go through search, records, tracking and report.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

from tests.benchmarks.bench_engine import WORKS, write
from tests.benchmarks.isolated import isolated

ME = "tests.benchmarks.bench_growth"
TRIALS, QUICK = 10_000, 1000
LIMIT = 2.0


def main(quick: bool = False) -> int:
    """Print the table; 1 if later trials cost too much more than the first ones."""
    trials = QUICK if quick else TRIALS
    found = isolated(ME, "simulate", trials)
    ratio = found["last"] / found["first"]
    print(f"{trials} recorded trials: {1000 * found['first']:.1f} ms each at the start and")
    print(f"{1000 * found['last']:.1f} ms at the end, {ratio:.2f} × as much (wanted: {LIMIT:g});")
    print(f"report {found['report']:.1f} s, {found['memory']:.1f} MB per 1000 trials", flush=True)
    return int(ratio > LIMIT)


def simulate(trials: int) -> dict[str, float]:
    """A sweep whose trials take a recorded curve instead of training: what each costs us."""
    import gc
    import random

    import psutil

    from sweeps.engine.cell import PlannedTrial
    from sweeps.engine.plan import Hooks, Plan
    from sweeps.engine.trial import TrialRun
    from sweeps.report.write import write_report
    from sweeps.spec import load_spec
    from sweeps.spec.schema import Evaluation
    from sweeps.store import Store, TrialRecord, encode_arrays
    from sweeps.sweep import records_of
    from sweeps.tracking import Recorder
    from sweeps.tracking.mlflow.backend import MlflowBackend, default_uri
    from tests.outcomes import changed, recorded

    directory = Path(os.environ["BENCH_DIRECTORY"])
    place = directory / "runs"
    loaded = load_spec(write(directory, WORKS[0]._replace(trials=trials), sampler="random"))
    store = Store(place)
    plan = Plan(loaded, store)
    recorder = Recorder(MlflowBackend(default_uri(store), plan, store))
    plan.hooks = Hooks(started=recorder.started, done=recorder.submit)
    plan.replay()
    chance = random.Random(0)

    def file(trial: PlannedTrial) -> None:
        nonlocal made, arrays
        if made is None or trial.config.phase == "confirm":
            calibrators = plan.spec.calibrator_names
            attempt = TrialRun(
                trial.config, store, calibrators=calibrators, evaluation=Evaluation()
            )
            attempt.advance(600)
            made = recorded(store, trial.key)
            arrays = encode_arrays(store.predictions(made))
            return
        outcome = changed(
            made,
            config=trial.config.model_dump(mode="json"),
            validation=made.validation | {"nll": chance.random()},
            lineage=f"{chance.getrandbits(128):032x}",
        )
        store.file_record(trial.key, outcome, {"predictions.npz": arrays})

    made: TrialRecord | None = None
    arrays = b""
    process = psutil.Process()
    marks: list[tuple[int, float, float]] = []
    while (trial := plan.next()) is not None:
        file(trial)
        plan.complete(trial.key)
        while recorder.backlog > 20:
            time.sleep(0.005)
        if plan.done % (trials // 10) == 0:
            gc.collect()
            marks.append((plan.done, time.perf_counter(), process.memory_info().rss / 2**20))
    start = time.perf_counter()
    written = write_report(records_of(plan), store)
    report = time.perf_counter() - start
    unpublished = recorder.close(written.summary)
    if unpublished or plan.failed:
        raise RuntimeError(f"{unpublished} unpublished: {recorder.error}")
    each = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(marks)]
    growth = (marks[-1][2] - marks[1][2]) / (marks[-1][0] - marks[1][0]) * 1000
    return {"first": each[0], "last": each[-1], "report": report, "memory": growth}


if __name__ == "__main__":
    if sys.argv[1:2] == ["simulate"]:
        print(json.dumps(simulate(int(sys.argv[2]))))
    else:
        sys.exit(main(quick="--quick" in sys.argv))
