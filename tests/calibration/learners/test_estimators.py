"""Estimators come to what their libraries come to by themselves, round by round."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

from calibration.data import PROTOCOLS, Column, Part, Splits, load_dataset
from calibration.data.columns import MISSING_CODE, UNKNOWN_CODE
from calibration.data.transforms import fit_transform
from calibration.learners import EstimatorTraining, begin, learner, make_learner
from calibration.learners.encoding import NativeColumns, OneHotColumns
from calibration.learners.estimator import FLOOR
from calibration.registry import UnknownNameError
from calibration.training_config import TrainingConfig

ROUNDS = 8


def trained(name: str, splits: Splits, classes: int, **given: Any) -> EstimatorTraining:
    run = begin(
        make_learner(name, given),
        splits,
        columns=(),
        classes=classes,
        config=TrainingConfig(),
        seed=3,
    )
    assert isinstance(run, EstimatorTraining)
    while not run.done:
        run.run_epoch()
    return run


@pytest.fixture(scope="module", params=["breast_cancer", "wine"])
def splits(request: pytest.FixtureRequest) -> tuple[Splits, int]:
    """Two classes, and three."""
    dataset = load_dataset(request.param, {})
    return dataset.split(PROTOCOLS["honest"], 3, held_out=False), dataset.classes


def plain(name: str, x: Any, y: Any, seen: Any, classes: int) -> list[Any]:
    """Probabilities after every round, from the library alone, by its most usual interface."""
    if name == "hist_gradient_boosting":
        from sklearn.ensemble import HistGradientBoostingClassifier

        made = HistGradientBoostingClassifier(
            max_iter=ROUNDS, early_stopping=False, random_state=3, max_features=0.7
        )
        return list(made.fit(x, y).staged_predict_proba(seen))
    if name == "lightgbm":
        from lightgbm import LGBMClassifier

        fixed = {"random_state": 3, "n_jobs": 1, "deterministic": True, "force_row_wise": True}
        settings = {"subsample": 0.7, "subsample_freq": 1, "verbosity": -1}
        made = LGBMClassifier(n_estimators=ROUNDS, **settings, **fixed).fit(x, y)
        return [made.predict_proba(seen, num_iteration=k + 1) for k in range(ROUNDS)]
    if name == "xgboost":
        from xgboost import XGBClassifier

        made = XGBClassifier(n_estimators=ROUNDS, subsample=0.7, random_state=3, n_jobs=1)
        made.fit(x, y)
        return [made.predict_proba(seen, iteration_range=(0, k + 1)) for k in range(ROUNDS)]
    from catboost import CatBoostClassifier

    made = CatBoostClassifier(
        iterations=ROUNDS,
        learning_rate=0.3,
        random_seed=3,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
        loss_function="Logloss" if classes == 2 else "MultiClass",
    )
    made.fit(x, y)
    return list(made.staged_predict_proba(seen))


GIVEN: dict[str, dict[str, Any]] = {
    "hist_gradient_boosting": {"max_features": 0.7},
    "lightgbm": {"bagging_fraction": 0.7},
    "xgboost": {"subsample": 0.7},
    "catboost": {"learning_rate": 0.3},
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_booster_is_its_library_round_by_round(name: str, splits: tuple[Splits, int]) -> None:
    parts, classes = splits
    run = trained(name, parts, classes, rounds=ROUNDS, **GIVEN[name])
    x, y = parts.train.inputs.numpy(), parts.train.labels.numpy()
    probabilities = plain(name, x, y, parts.validation.inputs.numpy(), classes)
    labels = parts.validation.labels.numpy()
    # XGBoost's probabilities are float32.
    expected = [log_loss(labels, p.astype(float), labels=range(classes)) for p in probabilities]
    found = [row["validation/nll"] for row in run.curve]
    assert found == pytest.approx(expected, rel=1e-5)
    assert run.best_epoch == 1 + int(np.argmin(found))
    kept = run.predict_validation().exp().numpy()
    assert kept == pytest.approx(probabilities[run.best_epoch - 1], abs=1e-6)


def test_patience_ends_training_and_the_best_round_is_kept(splits: tuple[Splits, int]) -> None:
    parts, classes = splits
    run = trained("lightgbm", parts, classes, rounds=400, patience=5, learning_rate=0.3)
    found = [row["validation/nll"] for row in run.curve]
    assert run.epoch == run.best_epoch + 5 < 400
    assert found[run.best_epoch - 1] == min(found)


def test_zero_votes_and_unseen_classes_have_the_least_probability() -> None:
    inputs = torch.arange(40, dtype=torch.float64)[:, None]
    train = Part(inputs, (torch.arange(40) >= 20).long())
    parts = Splits(train, train, None, fit_transform(inputs, ()))
    run = trained("random_forest", parts, 3, n_estimators=5)
    found = run.predict(Part(inputs[:1], train.labels[:1])).exp()[0]
    votes = torch.tensor([1.0, FLOOR, 0.0], dtype=torch.float64) / (1 + FLOOR)
    expected = (votes + torch.tensor([0.0, 0.0, FLOOR], dtype=torch.float64)) / (1 + FLOOR)
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    assert all(math.isfinite(row["validation/nll"]) for row in run.curve)


def test_one_class_is_too_few() -> None:
    inputs = torch.zeros(5, 1, dtype=torch.float64)
    part = Part(inputs, torch.zeros(5, dtype=torch.long))
    with pytest.raises(ValueError, match="have 1 class; at least 2"):
        trained("random_forest", Splits(part, part, None, fit_transform(inputs, ())), 2)


def test_categories_are_counted_anew_and_what_training_has_not_is_missing() -> None:
    columns = (Column("n", "numeric"), Column("c", "categorical", tuple("abcde")))
    train = torch.tensor([[0.5, 3], [1, 1], [2, 3], [3, MISSING_CODE], [4, 4]]).double()
    native = NativeColumns.fit(train, columns)
    assert native.categories == ((1, (1.0, 3.0, 4.0)),)
    new = torch.tensor([[torch.nan, 4], [1, 2], [1, UNKNOWN_CODE], [1, MISSING_CODE], [1, 1]])
    found = native(new.double())
    assert torch.equal(found[:, 0], new[:, 0].double()) or bool(found[0, 0].isnan())
    codes = found[:, 1].tolist()
    assert codes[0] == 2.0
    assert codes[4] == 0.0
    assert all(math.isnan(code) for code in codes[1:4])
    one_hot = OneHotColumns(native)(new.double())
    assert one_hot[:, 1:].tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]]
    # The most frequent one, where there is room for one only.
    assert NativeColumns.fit(train, columns, most=1).categories == ((1, (3.0,)),)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("sklearn.svm:LinearSVC", "LinearSVC has no predict_proba"),
        ("sklearn.metrics:log_loss", "is not a class"),
        ("sklearn.ensemble:NoForest", "cannot import method"),
        ("random_forrest", "did you mean 'random_forest'"),
        ("standart", "did you mean 'standard'"),
    ],
)
def test_what_is_no_learner_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(UnknownNameError, match=complaint):
        learner(name)


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind: Any = learner("lightgbm")
    kind.check_installed()
    monkeypatch.setattr(kind, "package", "no_such_booster")
    with pytest.raises(ValueError, match=r"'no_such_booster'.*pip install 'calsweep\[trees\]'"):
        kind.check_installed()
