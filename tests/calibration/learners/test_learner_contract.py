"""Every registered estimator keeps the contract, and so does any classifier of scikit-learn."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from calibration.learners import LEARNERS, learner
from calibration.learners.estimator import Matrix, Task
from calibration.learners.logistic_regression import LogisticRegression
from calibration.methods import METHODS
from calibration.testing import ContractError, check_learner

BRIEF = {
    "random_forest": {"n_estimators": 20},
    "hist_gradient_boosting": {"rounds": 22, "min_samples_leaf": 5, "max_leaf_nodes": 4},
    "lightgbm": {"rounds": 12, "min_data_in_leaf": 5},
    "xgboost": {"rounds": 12},
    "catboost": {"rounds": 12, "learning_rate": 0.3, "depth": 4},
}


@pytest.mark.parametrize("name", list(LEARNERS))
def test_every_estimator_keeps_the_contract(name: str) -> None:
    assert name not in METHODS
    check_learner(LEARNERS[name], BRIEF.get(name))


class Forgetful(LogisticRegression):
    """Predicts at random."""

    def scores(self, inputs: Matrix, rounds: int) -> Matrix:
        noise = np.random.default_rng().normal(size=(len(inputs), 1))
        return super().scores(inputs, rounds) + noise * np.arange(self.model.classes_.size)


class Cheat(LogisticRegression):
    """Looks at validation labels."""

    def fit(self, task: Task) -> Iterator[Matrix]:
        known = task.validation_labels >= 0
        inputs = np.concatenate([task.inputs, task.validation[known]])
        labels = np.concatenate([task.labels, task.validation_labels[known]])
        self.model = self.make(0, 1).fit(inputs, labels)
        yield self.scores(task.validation, 1)


class Amnesiac(LogisticRegression):
    """Stores less than it needs."""

    def load(self, content: bytes) -> None:
        super().load(content)
        self.model.coef_ = self.model.coef_ * 0.5


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (Forgetful, "the same seed must"),
        (Cheat, "validation labels must not influence"),
        (Amnesiac, "a stored estimator must predict the same"),
    ],
)
def test_a_broken_estimator_is_found_out(kind: type[LogisticRegression], rule: str) -> None:
    with pytest.raises(ContractError, match=f"{kind.__name__} .*{rule}"):
        check_learner(kind)


def test_a_classifier_by_its_import_path_is_stored_and_found_again() -> None:
    kind: Any = learner("sklearn.ensemble:ExtraTreesClassifier")
    assert kind is learner("sklearn.ensemble:ExtraTreesClassifier")
    run = kind(kind.Hyperparameters.checked({"n_estimators": 3}, "row"))
    inputs, labels = np.arange(20.0)[:, None], np.arange(20) % 2
    task = Task(inputs, labels, None, inputs, labels, None, 2, (), seed=0, threads=1)
    (scores,) = run.fit(task)
    stored = run.save(1)
    again = kind(run.hyperparameters)
    again.load(stored)
    assert np.array_equal(again.scores(inputs, 1), scores)
    assert "random_state" not in kind.Hyperparameters.model_fields
    with pytest.raises(ValueError, match="min_samples_leaf"):
        kind.Hyperparameters.checked({"min_samples_leaf": -3}, "row")
    with pytest.raises(ValueError, match=r"unknown hyperparameter 'max_deep'; did you mean"):
        kind.Hyperparameters.checked({"max_deep": 3}, "row")


def test_a_stored_classifier_of_strange_parts_is_not_loaded() -> None:
    import skops.io
    from sklearn.preprocessing import FunctionTransformer

    hostile = skops.io.dumps(FunctionTransformer(subprocess.run))
    for name in ("logistic_regression", "sklearn.naive_bayes:GaussianNB"):
        kind: Any = learner(name)
        with pytest.raises(ValueError, match=r"subprocess\.run, which .* does not trust"):
            kind(kind.Hyperparameters()).load(hostile)
