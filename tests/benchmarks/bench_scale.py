"""What a trial costs the driver, and how many GPUs one driver can keep busy.

    python -m tests.benchmarks.bench_scale [--quick]

100 nodes of 8 GPUs on a virtual clock, 50,000 trials of 100 searches with recorded curves
instead of training (see ``simulated_cluster``); then a single search with thousands of
trials, Ray Tune's own loop with real actors, an MLflow server, and the store's requests.
Times are CPU seconds of the thread that works, unless "wall" is said: they do not change
with what else the machine does.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.isolated import isolated

ME = "tests.benchmarks.bench_scale"

NODES, GPUS = 100, 8
SLOTS = NODES * GPUS
TRIALS, SEEDS = 495, 5
DATASETS = ("blobs-1.3", "blobs-1.7", "spiral-2.5", "spiral-3.5", "digits")
METHODS = (
    *("standard", "brier", "focal", "flsd", "label_smoothing", "mixup", "mmce", "mdca", "dca"),
    *("sb_ece", "dece", "sece", "soft_histogram", "adafocal", "avuc", "dual_focal", "ks"),
    *("confidence_penalty", "margin_label_smoothing", "focal_label_smoothing"),
)
SPEC = """\
name: scale
datasets: [{datasets}]
model: {{name: mlp, widths: [32]}}
methods: [{methods}]
training: {{epochs: 100, batch_size: full, evaluate_every: 10, stop_on: nll}}
search: {{sampler: {sampler}, trials: {trials}}}
confirm_seeds: {seeds}
calibrators: [temperature]
resources: {{cpu: 1, gpu: 1, device: cpu}}
"""
MINUTE = 60.0
DURATIONS = (MINUTE, 10 * MINUTE, 60 * MINUTE)
TUNE = ((8, 1, 0), (8, 10, 0), (16, 1, 0), (32, 1, 0), (16, 1, 1))
"""Actors at once, reports a trial, and whether Tune's own scheduler chooses what to run."""


def main(quick: bool = False) -> int:
    """Print what was found; always 0: nothing here is promised."""
    for name, *arguments in (
        ("sweep", 45 if quick else TRIALS),
        ("study", 1000 if quick else 10_000),
        *(("tune", at_once, 100 if quick else 400, *more) for at_once, *more in TUNE),
        ("steps",),
        ("server", 50 if quick else 200),
        ("requests",),
    ):
        print(f"\n{name} {' '.join(map(str, arguments))}", flush=True)
        for what, value in isolated(ME, name, *arguments).items():
            print(f"  {what:44}{value if isinstance(value, str) else f'{value:,.4f}'}", flush=True)
    return 0


def _loaded(
    trials: int,
    datasets: Sequence[str] = DATASETS,
    methods: Sequence[str] = METHODS,
    sampler: str = "tpe",
) -> Any:
    from sweeps.spec import load_spec

    path = Path(os.environ["BENCH_DIRECTORY"]) / "spec.yaml"
    names = {"datasets": ", ".join(datasets), "methods": ", ".join(methods)}
    path.write_text(SPEC.format(**names, sampler=sampler, trials=trials, seeds=SEEDS))
    return load_spec(path)


@contextmanager
def _driver(loaded: Any, uri: str | None = None) -> Iterator[tuple[Any, Any, Any]]:
    """A plan with store, recorder and journal, joined as a real run joins them."""
    from sweeps.engine.plan import Hooks, Plan
    from sweeps.search.journal import Journal
    from sweeps.store import Store
    from sweeps.tracking import Recorder
    from sweeps.tracking.mlflow.backend import MlflowBackend, default_uri

    store = Store(Path(os.environ["BENCH_DIRECTORY"]) / "runs")
    plan = Plan(loaded, store)
    with store.lock(plan.spec.name):
        journal = Journal(Path(store.root) / plan.spec.name / "optuna.log")
        journal.rebuild({cell.name: cell.study for cell in plan.cells.values()})
        recorder = Recorder(MlflowBackend(uri or default_uri(store), plan, store))
        plan.hooks = Hooks(
            asked=lambda cell, number: journal.asked(cell.name, cell.study, number),
            told=lambda cell, number: journal.told(cell.name, cell.study, number),
            started=recorder.started,
            done=recorder.submit,
        )
        plan.replay()
        yield plan, store, recorder


def sweep(trials: int, disk: str = "") -> dict[str, Any]:
    """100 searches of ``trials`` trials, and the confirmation of each, on 800 virtual GPUs.

    Unless ``disk`` is said nobody waits for the disk: CPU times are what is wanted here, and
    the waits would take longer than all the rest.
    """
    import psutil

    if not disk:
        _wait_for_no_disk()

    from sweeps.engine.plan import Plan
    from sweeps.tracking.mlflow.publisher import Publisher
    from tests.benchmarks import simulated_cluster as simulated

    process = psutil.Process()

    def memory() -> float:
        gc.collect()
        print(f"{time.strftime('%H:%M:%S')} {plan.done}", file=sys.stderr, flush=True)
        return float(process.memory_info().rss) / 2**20

    parts = simulated.Parts()
    parts.count(Publisher)
    began = time.perf_counter()
    with _driver(_loaded(trials)) as (plan, store, recorder):
        recordings = simulated.Recordings(plan, Path(os.environ["BENCH_DIRECTORY"]) / "made")
        worker = simulated.Worker(recordings, store, plan.spec.evaluation)
        run = simulated.simulate(
            plan,
            worker,
            recordings,
            slots=SLOTS,
            mean_seconds=10 * MINUTE,
            recorder=recorder,
            parts=parts,
            look=memory,
        )
        unpublished = recorder.close("simulated")
    total = plan.done
    once = set(worker.filed.values()) == {1} and len(worker.filed) == total == plan.total
    found: dict[str, Any] = {
        "trials": total,
        "each once, none failed, all published": str(once and not plan.failed + unpublished),
        "at once": run.queue.most,
        "recorded trainings": len(recordings),
        "wall minutes of the simulation": (time.perf_counter() - began) / 60,
    }
    for part in ("suggest", "complete", "publish", "worker"):
        found |= _about(part, parts.cpu[part], parts.wall[part])
    (first, small), (last, large) = run.memory[0], run.memory[-1]
    found["driver's memory at the end, MB"] = large
    found["memory per 1000 trials, MB"] = (large - small) / (last - first) * 1000
    found |= _kept_busy(run, simulated.utilisation)
    resumed, cpu = time.perf_counter(), time.process_time()
    again = Plan(plan.loaded, store)
    again.replay()
    found["taking it up again: CPU ms a trial"] = (time.process_time() - cpu) / total * 1e3
    found["taking it up again: wall ms a trial"] = (time.perf_counter() - resumed) / total * 1e3
    found["taken up again with all done"] = str(again.finished and again.done == total)
    return found


def _wait_for_no_disk() -> None:
    import sqlite3

    connect = sqlite3.connect

    def hasty(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    os.fsync = lambda handle: None
    sqlite3.connect = hasty  # type: ignore[assignment]


def _about(part: str, cpu: Sequence[float], wall: Sequence[float]) -> dict[str, float]:
    thousand = min(1000, len(cpu) // 2)
    mean = {"mean": cpu, "first thousand": cpu[:thousand], "last thousand": cpu[-thousand:]}
    shown = {f"{part}, ms ({what})": sum(x) / len(x) * 1e3 for what, x in mean.items()}
    return shown | {f"{part}, ms (wall)": sum(wall) / len(wall) * 1e3}


def _kept_busy(run: Any, utilisation: Any) -> dict[str, float]:
    """How busy the GPUs are: with the driver's loop, and with the recorder on the same core."""
    cpu, wall = run.parts.cpu, run.parts.wall
    mean_publish = sum(cpu["publish"]) / len(cpu["publish"])
    loop = [sum(pair) for pair in zip(cpu["suggest"], cpu["complete"], strict=True)]
    slow = [sum(pair) for pair in zip(wall["suggest"], wall["complete"], strict=True)]
    shared = [seconds + mean_publish for seconds in loop]
    found = {"trials/s of the loop": len(loop) / sum(loop)}
    found["trials/s with the recorder on its core"] = len(shared) / sum(shared)
    mean = sum(run.durations) / len(run.durations)
    for duration in DURATIONS:
        seconds = [relative / mean * duration for relative in run.durations]
        for what, costs in {"loop": loop, "loop, wall": slow, "loop + recorder": shared}.items():
            busy = utilisation(costs, seconds, SLOTS)
            found[f"GPUs busy, trials of {duration / 60:g} min, {what}"] = busy
    return found


def study(most: int) -> dict[str, Any]:
    """One search with many trials: what the next suggestion costs, with 800 under way."""
    import random

    from sweeps.engine.cell import Cells
    from sweeps.search import Result, Study

    found: dict[str, Any] = {}
    for sampler in ("tpe", "random"):
        loaded = _loaded(100_000, DATASETS[:1], METHODS[:1], sampler)
        searched: Study = Cells(loaded).cell(DATASETS[0], METHODS[0]).study
        chance = random.Random(0)
        ranges = {name: (d.low, d.high) for name, d in searched.space.searched.items()}
        for size in (n for n in (100, 500, 1000, 2000, 5000, 10_000, 50_000) if n <= most):
            for number in range(searched.asked, size):
                point = {name: chance.uniform(*ends) for name, ends in ranges.items()}
                searched.replay(number, point | searched.space.fixed)
                if number >= SLOTS:
                    told = number - SLOTS
                    nll = chance.random()
                    searched.tell(told, Result((nll,), nll, 1.0, "done"))
            seconds = []
            for _ in range(10):
                start = time.thread_time()
                searched.ask()
                seconds.append(time.thread_time() - start)
            found[f"{sampler}: suggestion {size}, ms"] = sorted(seconds)[5] * 1e3
    return found


def tune(concurrent: int, trials: int, reports: int = 1, scan: int = 0) -> dict[str, float]:
    """Ray Tune's loop: ``trials`` trials of ``reports`` reports, ``concurrent`` actors.

    ``scan``: Tune's own scheduler chooses; else whatever is pending is started.
    """
    from tests.benchmarks.tune_loop import measure

    return measure(concurrent, trials, reports=reports, seconds=0.0, scan=bool(scan))


def steps() -> dict[str, float]:
    """What grows in every step of Tune's loop: with the trials that run, and that have ended."""
    from tests.benchmarks.tune_loop import looking, waiting

    waits = {f"wait for {n} running trials, ms": waiting(n) for n in (8, 100, SLOTS, 2 * SLOTS)}
    looks = {f"look through {n} ended trials, ms": looking(n) for n in (1000, 10_000, 50_000)}
    return waits | looks


def server(trials: int) -> dict[str, Any]:
    """An MLflow server (one worker, sqlite) on this machine: what publishing a trial takes."""
    import psutil

    from sweeps.tracking.mlflow.publisher import Publisher
    from sweeps.tracking.mlflow.server import MlflowServer, free_port
    from tests.benchmarks import simulated_cluster as simulated

    place = Path(os.environ["BENCH_DIRECTORY"])
    port = free_port(5600)
    assert port is not None
    arguments = ("--workers", "1", "--artifacts-destination", str(place / "artifacts"))
    parts = simulated.Parts()
    parts.count(Publisher)
    with MlflowServer(f"sqlite:///{place / 'server.db'}", port, arguments=arguments) as there:
        there.wait_until_it_answers()
        with _driver(_loaded(trials, DATASETS[:1], METHODS[:1]), there.address) as driver:
            plan, store, recorder = driver
            recordings = simulated.Recordings(plan, place / "made")
            worker = simulated.Worker(recordings, store, plan.spec.evaluation)
            options: dict[str, Any] = {"slots": 16, "mean_seconds": MINUTE}
            before = _cpu(psutil.Process())
            simulated.simulate(plan, worker, recordings, recorder=recorder, **options)
            assert recorder.close("simulated") == 0, recorder.error
            after = _cpu(psutil.Process())
    search = slice(0, -SEEDS)
    return {
        "driver, ms": sum(parts.cpu["publish"][search]) / trials * 1e3,
        "driver, ms (wall)": sum(parts.wall["publish"][search]) / trials * 1e3,
        "server, ms": (after - before) / plan.done * 1e3,
    }


def _cpu(process: Any) -> float:
    """CPU seconds of all that a process has started."""
    times = [child.cpu_times() for child in process.children(recursive=True)]
    return float(sum(used.user + used.system for used in times))


def requests() -> dict[str, Any]:
    """What a trial asks of an object store: by the driver's loop, the recorder, a worker."""
    from tests.benchmarks import simulated_cluster as simulated
    from tests.benchmarks.counted_files import CountedFiles

    place = Path(os.environ["BENCH_DIRECTORY"])
    os.chdir(place)  # where the artifacts of a remote store's sweep go
    with _driver(_loaded(200, DATASETS[:1], METHODS[:1]), f"sqlite:///{place}/m.db") as driver:
        plan, store, recorder = driver
        recordings = simulated.Recordings(plan, place / "made")
        store._files = store._sealed._files = counted = CountedFiles(store._files)
        store.local = None  # treated as an object store from here on
        worker = simulated.Worker(recordings, store, plan.spec.evaluation)
        simulated.simulate(plan, worker, recordings, recorder=recorder, slots=16, mean_seconds=60)
        assert recorder.close("simulated") == 0, recorder.error
    found: dict[str, Any] = {}
    for (thread, request), count in sorted(counted.requests.items()):
        found[f"{thread}: {request} a trial"] = count / plan.done
    return found


if __name__ == "__main__":
    name, *rest = sys.argv[1:] or ["all"]
    if name in ("all", "--quick"):
        sys.exit(main(quick=name == "--quick"))
    values = [int(value) if value.isdecimal() else value for value in rest]
    print(json.dumps(globals()[name](*values)))
