"""The sweep engine beside the bare training loop and the stock combination, in one run.

    python -m tests.benchmarks.bench_engine [--quick]

The same training work everywhere: blobs 1.7, MLP 2-64-64-5, 300 full-batch epochs, eight
metrics every ten epochs, N trials on two CPUs. Ray's start-up is left out of all of them.

(a) the ideal: the bare loop's time × N / 2;
(b) Ray Tune with OptunaSearch and MLflowLoggerCallback on sqlite, as their documents show it;
(c) calsweep: every suggestion and record persisted, everything published to MLflow; its
    search phase, from the first suggestion to the last record, and then with the confirm
    phase and its calibrators.

Then 10,000 trials with recorded curves instead of training go through search, records,
tracking and report, to see what grows.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.isolated import isolated

ME = "tests.benchmarks.bench_engine"

CPUS = 2
EPOCHS, EVERY = 300, 10
SPEC = """\
name: bench
datasets: [blobs-1.7]
model: {{name: mlp, widths: [64, 64]}}
methods:
  standard: {{lr: {{loguniform: [0.003, 0.03]}}, weight_decay: 0}}
training: {{epochs: {epochs}, batch_size: full, evaluate_every: {every}, stop_on: nll}}
search: {{sampler: tpe, trials: {trials}}}
confirm_seeds: {seeds}
calibrators: {calibrators}
"""
SMALL, LARGE = 32, 256
SIMULATED = 10_000
FASTER_THAN_STOCK, SMALL_LIMIT, LARGE_LIMIT, TAIL_LIMIT, GROWTH_LIMIT = 10.0, 2.0, 1.3, 0.10, 2.0


class Line(NamedTuple):
    """One line of the table; ``passed`` is None where nothing was promised."""

    what: str
    seconds: float
    ratio: str
    passed: bool | None = None


def main(quick: bool = False) -> int:
    """Print the tables; 1 if a promise is not kept."""
    bare = isolated(ME, "bare")["seconds"]
    print(f"bare training loop: {bare:.3f} s a trial (one thread)\n")
    lines = list(_compare(bare, SMALL, stock=not quick))
    lines += [] if quick else list(_compare(bare, LARGE, stock=False))
    _show("the same work", lines)
    grown = list(_growth(1000 if quick else SIMULATED))
    _show(f"{1000 if quick else SIMULATED} recorded trials", grown)
    return int(any(line.passed is False for line in lines + grown))


def _compare(bare: float, trials: int, *, stock: bool) -> list[Line]:
    ideal = bare * trials / CPUS
    lines = [Line(f"N = {trials}: (a) ideal", ideal, "1.00 × (a)")]
    ours = isolated(ME, "calsweep", trials, 1, "[]")
    search, tail = ours["search"], ours["publish"]
    limit = SMALL_LIMIT if trials == SMALL else LARGE_LIMIT
    if stock:
        peer = isolated(ME, "stock", trials)["seconds"]
        lines.append(Line(f"N = {trials}: (b) stock", peer, f"{peer / ideal:.1f} × (a)"))
        faster = peer / search
        passed = faster >= FASTER_THAN_STOCK
        lines.append(Line("      (b) / (c)", float("nan"), f"{faster:.1f}", passed))
    ratio = search / ideal
    lines.append(Line(f"N = {trials}: (c) search", search, f"{ratio:.2f} × (a)", ratio <= limit))
    share = tail / search
    lines.append(Line("      recorder afterwards", tail, f"{share:.0%}", share <= TAIL_LIMIT))
    whole = isolated(ME, "calsweep", trials, 5, "fast")
    ideal_whole = bare * (trials + 5) / CPUS
    note = f"{whole['train'] / ideal_whole:.2f} × its (a)"
    lines.append(Line("      with 5 seeds × fast calibrators", whole["train"], note))
    lines.append(Line("      peak memory of the driver", float("nan"), f"{ours['memory']:.0f} MB"))
    return lines


def _growth(trials: int) -> list[Line]:
    found = isolated(ME, "simulate", trials)
    first, last = found["first"], found["last"]
    ratio = last / first
    return [
        Line("a trial at the start", first, ""),
        Line("a trial at the end", last, f"{ratio:.2f} × start", ratio <= GROWTH_LIMIT),
        Line("report at the end", found["report"], ""),
        Line("memory per 1000 trials", float("nan"), f"{found['memory']:.1f} MB"),
    ]


def _show(title: str, lines: list[Line]) -> None:
    print(title)
    for line in lines:
        seconds = "" if line.seconds != line.seconds else f"{line.seconds:8.3f} s"
        verdict = {None: "", True: "kept", False: "NOT KEPT"}[line.passed]
        print(f"  {line.what:32}{seconds:>12}  {line.ratio:16}{verdict}")
    print(flush=True)


def _loaded(trials: int, seeds: int, calibrators: str) -> Any:
    from sweeps.spec import load_spec

    path = Path(os.environ["BENCH_DIRECTORY"]) / "spec.yaml"
    path.write_text(
        SPEC.format(epochs=EPOCHS, every=EVERY, trials=trials, seeds=seeds, calibrators=calibrators)
    )
    return load_spec(path)


def _run(lr: float) -> Any:
    from calibration.data import PROTOCOLS, load_dataset
    from calibration.methods import make_method
    from calibration.training import TrainingRun
    from calibration.training_config import TrainingConfig

    dataset = load_dataset("blobs-1.7", {})
    method = make_method("standard", {"lr": lr, "weight_decay": 0.0})
    return TrainingRun(
        method,
        dataset.split(PROTOCOLS["honest"], 0, held_out=False),
        model="mlp",
        model_options={"widths": [64, 64]},
        classes=dataset.classes,
        config=TrainingConfig(epochs=EPOCHS, batch_size="full", evaluate_every=EVERY),
        seed=0,
    )


def bare(rounds: int = 8) -> dict[str, float]:
    """The loop alone, warm."""
    import torch

    torch.set_num_threads(1)
    seconds = []
    for round_ in range(rounds + 1):
        start = time.perf_counter()
        run = _run(0.01)
        while not run.done:
            run.run_epoch()
        if round_:
            seconds.append(time.perf_counter() - start)
    return {"seconds": sum(seconds) / len(seconds)}


def _stock_trainable(config: dict[str, float]) -> None:
    import torch
    from ray import tune

    torch.set_num_threads(1)
    run = _run(config["lr"])
    while not run.done:
        row = run.run_epoch()
        if run.epoch % EVERY == 0:
            tune.report({name: value for name, value in row.items() if name != "epoch"})


def stock(trials: int) -> dict[str, float]:
    """Ray Tune + OptunaSearch + MLflowLoggerCallback, as their documents put them together."""
    import ray
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.search.optuna import OptunaSearch

    place = Path(os.environ["BENCH_DIRECTORY"])
    ray.init("local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False)
    logger = MLflowLoggerCallback(
        tracking_uri=f"sqlite:///{place / 'mlflow.db'}", experiment_name="stock"
    )
    start = time.perf_counter()
    tune.Tuner(
        _stock_trainable,
        param_space={"lr": tune.loguniform(0.003, 0.03)},
        tune_config=tune.TuneConfig(
            search_alg=OptunaSearch(metric="validation/nll", mode="min"), num_samples=trials
        ),
        run_config=tune.RunConfig(
            storage_path=str(place / "tune"),
            callbacks=[logger],
            verbose=0,
        ),
    ).fit()
    return {"seconds": time.perf_counter() - start}


def calsweep(trials: int, seeds: int, calibrators: str) -> dict[str, float]:
    """One whole sweep; the search phase is timed by the files it leaves."""
    import io

    from rich.console import Console

    from sweeps.engine.cell import PlannedTrial
    from sweeps.runner import run_sweep
    from sweeps.store import Store
    from sweeps.tracking.mlflow.publisher import Publisher

    published: dict[str, float] = {}
    publish = Publisher.publish

    def timed(self: Publisher, trial: PlannedTrial) -> None:
        publish(self, trial)
        published[trial.config.phase] = time.time()

    Publisher.publish = timed  # type: ignore[method-assign]
    place = Path(os.environ["BENCH_DIRECTORY"]) / "runs"
    loaded = _loaded(trials, seeds, calibrators)
    outcome = run_sweep(loaded, Store(place), console=Console(file=io.StringIO()))
    if outcome.plan.failed or outcome.unpublished:
        raise RuntimeError(f"{outcome.plan.failed} failed, {outcome.unpublished} unpublished")
    suggestions = (place / "bench" / "suggestions").rglob("*.json")
    begun = min(path.stat().st_mtime for path in suggestions)
    ends = {"search": 0.0, "confirm": 0.0}
    for path in (place / "records").glob("*/record.json"):
        phase = json.loads(path.read_text())["config"]["phase"]
        ends[phase] = max(ends[phase], path.stat().st_mtime)
    return {
        "search": ends["search"] - begun,
        "train": ends["confirm"] - begun,
        "publish": max(0.0, published["search"] - ends["search"]),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def simulate(trials: int) -> dict[str, float]:
    """A sweep whose trials take a recorded curve instead of training: what each costs us."""
    import gc
    import random

    import psutil

    from sweeps.engine.cell import PlannedTrial
    from sweeps.engine.plan import Hooks, Plan
    from sweeps.engine.trial import TrialRun
    from sweeps.report.write import write_report
    from sweeps.spec.schema import Evaluation
    from sweeps.store import Store, TrialRecord, encode_arrays
    from sweeps.sweep import records_of
    from sweeps.tracking import Recorder
    from sweeps.tracking.mlflow.backend import MlflowBackend, default_uri
    from tests.outcomes import changed, recorded

    place = Path(os.environ["BENCH_DIRECTORY"]) / "runs"
    loaded = _loaded(trials, 1, "[]")
    search = loaded.spec.search.model_copy(update={"sampler": "random"})
    spec = loaded.spec.model_copy(update={"search": search})
    loaded = dataclasses.replace(loaded, spec=spec)
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
    name, *rest = sys.argv[1:] or ["all"]
    if name in ("all", "--quick"):
        sys.exit(main(quick=name == "--quick"))
    values = [int(value) if value.isdecimal() else value for value in rest]
    print(json.dumps(globals()[name](*values)))
