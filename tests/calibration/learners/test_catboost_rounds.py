"""CatBoost told round by round: the same model as in one go, ended whenever it is wished."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import catboost
import numpy as np
import pytest

from calibration.learners import make_learner
from calibration.learners.catboost import CatBoost
from calibration.learners.estimator import Task


def task(classes: int, threads: int = 1) -> Task:
    rng = np.random.default_rng(classes)
    labels = np.arange(150) % classes
    inputs = np.column_stack([labels + rng.normal(size=150), rng.integers(0, 12, 150)])
    return Task(
        inputs=inputs[:100],
        labels=labels[:100],
        weights=None,
        validation=inputs[100:],
        validation_labels=labels[100:],
        patience=None,
        classes=classes,
        categorical=(1,),
        seed=3,
        threads=threads,
    )


def made(**hyperparameters: Any) -> CatBoost:
    found = make_learner("catboost", {"rounds": 25, "learning_rate": 0.2} | hyperparameters)
    assert isinstance(found, CatBoost)
    return found


def waiting() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "catboost"]


@pytest.mark.parametrize("classes", [2, 3])
def test_rounds_are_those_of_one_training(classes: int) -> None:
    given, booster = task(classes), made()
    told = list(booster.fit(given))
    assert len(told) == 25
    assert not waiting()
    plain = catboost.CatBoost(booster.parameters(given))
    plain.fit(
        catboost.Pool(booster._frame(given.inputs), given.labels, cat_features=[1]), verbose=False
    )
    seen = catboost.Pool(booster._frame(given.validation), cat_features=[1])
    staged = plain.staged_predict(seen, prediction_type="RawFormulaVal")
    for scores, expected in zip(told, staged, strict=True):
        odds = scores if classes > 2 else scores[:, 1]
        np.testing.assert_allclose(odds, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(
        booster.model.predict(seen, "RawFormulaVal"), plain.predict(seen, "RawFormulaVal")
    )


def test_who_stops_asking_ends_the_training() -> None:
    booster = made(rounds=100_000)
    rounds = booster.fit(task(2))
    told = [next(rounds) for _ in range(7)]
    assert len(waiting()) == 1
    # Predictions need the model, which is there when the training has ended.
    np.testing.assert_allclose(booster.scores(task(2).validation, 7), told[-1], atol=1e-12)
    assert booster.model.tree_count_ == 7
    assert not waiting()
    other = made(rounds=100_000)
    asked = other.fit(task(2))
    next(asked)
    del asked
    gc.collect()
    assert not waiting()


def test_what_training_raises_is_raised_where_rounds_are_asked_for() -> None:
    booster = made(rounds=3)
    rounds = booster.fit(Task(**vars(task(2)) | {"labels": np.zeros(100, dtype=np.int64)}))
    with pytest.raises(catboost.CatBoostError):
        next(rounds)
    for _ in range(100):
        if not waiting():
            break
        time.sleep(0.05)
    assert not waiting()
