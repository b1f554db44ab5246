"""A short test of every row of a spec: what would fail after an hour fails now.

Each row trains for a few epochs or rounds on a few batches, predicts, and is evaluated with every
calibrator, in this process; nothing is stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch

from calibration.data import Dataset, Part, Splits
from calibration.evaluation import LabelledLogits, evaluate
from calibration.learners import Estimator, EstimatorTraining, make_learner
from calibration.methods import Method
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig
from sweeps.engine.embedding import few_embedded
from sweeps.search.space import extremes
from sweeps.spec import LoadedSpec
from sweeps.spec.schema import Spec

_BATCHES = 3
_ROUNDS = 2
ROWS_LOOKED_AT = 256
ROWS_LEARNED = 500


class Tried(NamedTuple):
    """The outcome of a row's test: its loss and the seconds it took, or what failed.

    ``concerns`` are problems that do not stop a short training but would spoil a whole one.
    """

    dataset: str
    row: str
    loss: float
    seconds: float
    failure: str
    concerns: tuple[str, ...] = ()


def try_rows(loaded: LoadedSpec) -> Iterator[Tried]:
    """Test every row on every dataset, one after the other."""
    for dataset in loaded.datasets:
        for row in loaded.spec.methods:
            start = time.perf_counter()
            try:
                loss, concerns = _try(loaded, dataset, row)
            except Exception as error:  # a user's own method may raise anything
                failure = f"{type(error).__name__}: {error}"
                yield Tried(dataset, row, 0.0, 0.0, failure)
            else:
                seconds = time.perf_counter() - start
                yield Tried(dataset, row, loss, seconds, "", tuple(concerns))


def start_run(
    spec: Spec, method: Method, classes: int, splits: Splits, config: TrainingConfig
) -> TrainingRun:
    """A training in this process, on the device of the spec's trials if this machine has it."""
    return TrainingRun(
        method,
        splits,
        model=spec.model.name,
        model_options=spec.model.options,
        classes=classes,
        config=config,
        seed=spec.seed,
        device=spec.resources.trains_on if torch.cuda.is_available() else "cpu",
    )


def start_estimator(
    spec: Spec, estimator: Estimator, dataset: Dataset, splits: Splits, config: TrainingConfig
) -> EstimatorTraining:
    """The same for an estimator."""
    return EstimatorTraining(
        estimator,
        splits,
        columns=dataset.columns,
        classes=dataset.classes,
        config=config,
        seed=spec.seed,
    )


def few(splits: Splits, *, train: int, validation: int, held_out: int) -> Splits:
    """At most this many rows of every part."""

    def some(part: Part, count: int) -> Part:
        # Spread evenly: files are often sorted by class.
        step = max(1, len(part.labels) // count)
        taken = part.take(slice(None, step * count, step))
        weightless = taken.weights is not None and not bool(taken.weights.any())
        return taken._replace(weights=None) if weightless else taken

    meta = splits.meta_validation
    return replace(
        splits,
        train=some(splits.train, train),
        validation=some(splits.validation, validation),
        meta_validation=None if meta is None else some(meta, held_out),
    )


def _try(loaded: LoadedSpec, name: str, row: str) -> tuple[float, list[str]]:
    spec, dataset = loaded.spec, loaded.datasets[name]
    space = spec.space(row)
    chosen = space.fixed | {
        hyperparameter: extremes(domain)[0] for hyperparameter, domain in space.searched.items()
    }
    if chosen.get("freeze_epochs"):
        chosen["freeze_epochs"] = 1  # of two: what begins after it is tested too
    method = make_learner(spec.methods[row].method, chosen)
    splits = dataset.split(spec.protocol, spec.seed, held_out=method.needs_held_out)
    config = spec.row_training(row)
    if isinstance(method, Estimator):
        return _try_estimator(spec, method, dataset, splits, config), []
    size, all_rows = config.batch_size, len(splits.train.labels)
    rows = all_rows if size == "full" else min(all_rows, _BATCHES * size)
    shorter = few(splits, train=rows, validation=ROWS_LOOKED_AT, held_out=ROWS_LOOKED_AT)
    shorter = few_embedded(spec.model, replace(shorter, apart=None))
    run = start_run(spec, method, dataset.classes, shorter, _short(config, method.window))
    while not run.done:
        curve = run.run_epoch()
    if run.diverged:
        raise ValueError(f"the training loss is {curve['train/loss']}")
    _try_calibrators(spec, run)
    tried, steps = (
        epochs if size == "full" else epochs * -(-of // size)
        for epochs, of in ((run.epoch, rows), (config.epochs, all_rows))
    )
    return curve["train/loss"], method.concerns(run.curve, tried, steps)


def _try_estimator(
    spec: Spec, estimator: Estimator, dataset: Dataset, splits: Splits, config: TrainingConfig
) -> float:
    """The validation NLL after a few rounds."""
    shorter = few(splits, train=ROWS_LEARNED, validation=ROWS_LOOKED_AT, held_out=0)
    run = start_estimator(spec, estimator, dataset, shorter, config)
    while not run.done and run.epoch < _ROUNDS:
        row = run.run_epoch()
    if run.diverged:
        raise ValueError(f"the validation NLL is {row['validation/nll']}")
    run.files()  # what cannot be stored fails here too
    _try_calibrators(spec, run)
    return row["validation/nll"]


def _try_calibrators(spec: Spec, run: TrainingRun | EstimatorTraining) -> None:
    of_rows = run.validation
    validation = LabelledLogits(
        run.predict_validation(), of_rows.labels.cpu(), weights=of_rows.weights
    )
    # Test data is for the end of a sweep: calibrators are tested on the data they are fitted to.
    evaluate(spec.calibrator_names, validation, validation, bins=spec.bins)


def _short(config: TrainingConfig, window: int) -> TrainingConfig:
    """Two epochs, or two windows of full batches: what begins after a warm-up is tested too."""
    epochs = 2 * window if config.batch_size == "full" else 2
    return config.model_copy(update={"epochs": epochs, "evaluate_every": 1, "patience": None})
