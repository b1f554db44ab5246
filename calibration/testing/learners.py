"""The contract of estimators, as a check."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibration.data import Column, Part, Splits
from calibration.data.columns import MISSING_CODE, UNKNOWN_CODE
from calibration.data.transforms import fit_transform
from calibration.learners import Estimator, EstimatorTraining
from calibration.testing.contract import require
from calibration.testing.declarations import check_estimator_declaration
from calibration.testing.equality import difference
from calibration.threads import threads
from calibration.training_config import TrainingConfig

_ACCURACY = 0.9
_ROWS, _CLASSES = 240, 5
_RARE, _ABSENT = 3, 4
"""A class with two training rows, and one without any."""
_PICKLED = b"\x80"


def check_learner(
    estimator: type[Estimator], hyperparameters: dict[str, Any] | None = None
) -> None:
    """Check that an estimator satisfies the contract of ``Estimator``.

    Its declarations; that it learns a table with a constant column, missing numbers, categories
    absent from training, a class of two rows and one of none, to an accuracy of 0.9 on the
    others; that predictions are normalised log-probabilities of all classes; that the same seed
    gives the same result bit for bit, whatever the state of the global generators, and so does
    any seed if it is ``deterministic``; that training continued from any checkpoint and an
    estimator loaded from its files predict the same bit for bit; that validation labels have no
    influence; that, if it is ``weighted``, labels of rows with weight 0 have none either, and
    heavier rows have more; that it handles 200 columns. ``hyperparameters`` replace the
    defaults, and ``rounds`` should be few.

    Raises ``ContractError`` naming the estimator and the situation at the first broken rule.
    """
    check_estimator_declaration(estimator)
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with threads(1), torch.random.fork_rng():
            _check_trained(estimator, hyperparameters or {}, _table(columns=5), "a table")
            _check_trained(estimator, hyperparameters or {}, _table(columns=200), "200 columns")
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _check_trained(
    kind: type[Estimator],
    hyperparameters: dict[str, Any],
    table: tuple[Splits, tuple[Column, ...]],
    what: str,
) -> None:
    about, (splits, columns) = f"{kind.__name__} ({what})", table

    def fresh(given: Splits = splits, *, seed: int = 1, **config: Any) -> EstimatorTraining:
        checked = kind.Hyperparameters.checked(hyperparameters, f"method {kind.__name__!r}")
        settings = TrainingConfig(**config)
        return EstimatorTraining(
            kind(checked), given, columns=columns, classes=_CLASSES, config=settings, seed=seed
        )

    _seed(0)
    run = fresh()
    states = []
    while not run.done:
        run.run_epoch()
        states.append(run.state_dict())
    predicted = run.predict_validation()
    _check_predictions(predicted, splits.validation, about)

    _seed(1)
    again = _finished(fresh())
    same = difference(_untimed(again.state_dict()), _untimed(run.state_dict()))
    require(same is None, about, f"the same seed must give the same to the bit; {same} differs")
    same_rows = torch.equal(again.predict_validation(), predicted)
    require(same_rows, about, "the same seed must predict the same to the bit")

    if run.estimator.deterministic:
        other_seed = _finished(fresh(seed=2)).predict_validation()
        require(torch.equal(other_seed, predicted), about, "is deterministic, but the seed matters")

    resumed = fresh()
    resumed.load_state_dict(states[len(states) // 2])
    _finished(resumed)
    place = difference(_untimed(resumed.state_dict()), _untimed(run.state_dict()))
    rule = f"a training continued from its checkpoint must be the same to the bit; {place} differs"
    require(place is None, about, rule)
    same_rows = torch.equal(resumed.predict_validation(), predicted)
    require(same_rows, about, "a training continued from its checkpoint must predict the same")

    files = run.files()
    for name, content in files.items():
        require(not content.startswith(_PICKLED), about, f"{name} must not be a pickle")
    loaded = fresh()
    loaded.load_files(files)
    same_rows = torch.equal(loaded.predict_validation(), predicted)
    require(same_rows, about, "a stored estimator must predict the same to the bit")

    other = replace(splits, validation=_mislabelled(splits.validation))
    taught = [
        _finished(fresh(given, stop_on="none")).predict_validation() for given in (splits, other)
    ]
    require(torch.equal(*taught), about, "validation labels must not influence training")
    if kind.weighted:
        _check_weights(fresh, splits, about)


def _check_weights(
    fresh: Callable[[Splits], EstimatorTraining], splits: Splits, about: str
) -> None:
    train = splits.train
    # The last of every five rows has weight 0; some of the others count a hundred times more.
    weights = torch.tensor([1.0, 100.0, 1.0, 1.0, 0.0], dtype=torch.float64)[
        torch.arange(len(train.labels)) % 5
    ]
    weights[:2] = 1.0
    spoiled = torch.where(weights > 0, train.labels, (train.labels + 1) % _RARE)

    def predicted(labels: Tensor, weights: Tensor | None) -> Tensor:
        given = replace(splits, train=Part(train.inputs, labels, weights=weights))
        return _finished(fresh(given)).predict_validation()

    followed = predicted(train.labels, weights)
    same = torch.equal(predicted(spoiled, weights), followed)
    require(same, about, "is weighted, but a label whose weight is 0 changes its predictions")
    other = not torch.allclose(predicted(train.labels, None), followed)
    require(other, about, "is weighted, but weights of 100 and 0 change nothing")


def _check_predictions(predicted: Tensor, validation: Part, about: str) -> None:
    expected, found = (len(validation.labels), _CLASSES), tuple(predicted.shape)
    require(found == expected, about, f"predict must give shape {expected}, found {found}")
    require(bool(predicted.isfinite().all()), about, "predictions must be finite")
    total = predicted.logsumexp(-1).abs().max()
    require(float(total) < 1e-9, about, "predictions must be normalised log-probabilities")
    learned = validation.labels < _RARE
    right = predicted.argmax(-1)[learned] == validation.labels[learned]
    accuracy = float(right.double().mean())
    rule = f"must learn separable data to an accuracy of {_ACCURACY}, found {accuracy:.2f}"
    require(accuracy >= _ACCURACY, about, rule)


def _table(*, columns: int) -> tuple[Splits, tuple[Column, ...]]:
    """Numbers, the first of which separate the classes, a constant, and a category."""
    generator = torch.Generator().manual_seed(0)

    def part(rows: int, classes: int) -> Part:
        labels = torch.arange(rows) % _RARE
        inputs = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
        inputs[torch.arange(rows), labels] += 6.0
        inputs[::11, 0] = torch.nan
        inputs[:, _RARE] = 7.0
        inputs[:, _RARE + 1] = (torch.arange(rows) // _RARE % 3).double()
        inputs[::13, _RARE + 1] = MISSING_CODE
        labels[:2] = classes  # too few to be learned, or never seen
        return Part(inputs, labels)

    train, validation = part(_ROWS, _RARE), part(_ROWS // 2, _ABSENT)
    unseen = torch.tensor([UNKNOWN_CODE, 5.0], dtype=torch.float64)
    validation.inputs[2:4, _RARE + 1] = unseen
    named = tuple(
        Column(f"x{i}", "categorical", tuple("abcdef"))
        if i == _RARE + 1
        else Column(f"x{i}", "numeric")
        for i in range(columns)
    )
    return Splits(train, validation, None, fit_transform(train.inputs, named)), named


def _mislabelled(part: Part) -> Part:
    return Part(part.inputs, (part.labels + 1) % _RARE)


def _finished(run: EstimatorTraining) -> EstimatorTraining:
    while not run.done:
        run.run_epoch()
    return run


def _untimed(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != "seconds"}


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
