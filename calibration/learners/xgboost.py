"""XGBoost (Chen and Guestrin 2016)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from calibration.complexity import MethodComplexity
from calibration.hyperparameters import Integer, LogUniform, Uniform
from calibration.learners.estimator import (
    LEARNERS,
    BoosterHyperparameters,
    Estimator,
    Matrix,
    Task,
    log_odds,
)


class XGBoostHyperparameters(BoosterHyperparameters):
    """Trees of at most ``max_depth`` levels, with at least ``min_child_weight`` in every leaf.

    Their values are shrunk by ``learning_rate`` and penalised by ``reg_lambda``; a split must gain
    at least ``gamma``; a tree uses the share ``colsample_bytree`` of the columns, and the share
    ``subsample`` of the rows.
    """

    learning_rate: Annotated[float, Field(gt=0, le=10), LogUniform(0.01, 0.5)] = 0.3
    max_depth: Annotated[int, Field(ge=1, le=100), Integer(2, 10)] = 6
    min_child_weight: Annotated[float, Field(ge=0, le=1e10), LogUniform(0.1, 100.0)] = 1.0
    reg_lambda: Annotated[float, Field(ge=0, le=1e10), LogUniform(0.1, 10.0)] = 1.0
    gamma: Annotated[float, Field(ge=0, le=1e10)] = 0.0
    colsample_bytree: Annotated[float, Field(gt=0, le=1), Uniform(0.5, 1.0)] = 1.0
    subsample: Annotated[float, Field(gt=0, le=1), Uniform(0.5, 1.0)] = 1.0


@LEARNERS.register("xgboost")
class XGBoost(Estimator):
    """XGBoost's own boosting on histograms; native categories and missing values.

    Chen and Guestrin 2016.

    The search space is a subset of the hyperparameters that Gorishniy et al. (2021) and Grinsztajn,
    Oyallon and Varoquaux (2022) search in their published configurations. The ranges of the shares
    are theirs. Other ranges differ: in both, learning rates start at 1e-5, with which 1000 rounds
    would not get far, and depths are 3 to 10 and 1 to 11; the ranges of leaf weights and of the
    penalty differ as well.
    """

    description = "boosted trees, grown level by level (XGBoost)"
    Hyperparameters = XGBoostHyperparameters
    hyperparameters: XGBoostHyperparameters
    complexity = MethodComplexity.TREES
    package = "xgboost"
    file = "xgboost.json"
    wants = "native"
    weighted = True

    def parameters(self, task: Task) -> dict[str, Any]:
        """The parameters of XGBoost."""
        several = task.classes > 2
        return {
            **self.hyperparameters.of_library(),
            "objective": "multi:softprob" if several else "binary:logistic",
            **({"num_class": task.classes} if several else {}),
            "tree_method": "hist",
            "seed": task.seed,
            "nthread": task.threads,
            "verbosity": 0,
        }

    def fit(self, task: Task) -> Iterator[Matrix]:
        """Boost round by round; XGBoost itself adds each tree to its predictions of the rows."""
        import xgboost

        kinds = ["c" if i in task.categorical else "q" for i in range(task.inputs.shape[1])]
        rows = xgboost.DMatrix(
            task.inputs,
            task.labels,
            weight=task.weights,
            feature_types=kinds,
            enable_categorical=True,
            nthread=task.threads,
        )
        seen = xgboost.DMatrix(
            task.validation, feature_types=kinds, enable_categorical=True, nthread=task.threads
        )
        self.model = xgboost.Booster(self.parameters(task), [rows, seen])
        for grown in range(self.rounds):
            self.model.update(rows, grown)
            yield _scores(self.model.predict(seen, output_margin=True))

    def scores(self, inputs: Matrix, rounds: int) -> Matrix:
        """The sum of the trees of the first ``rounds`` rounds."""
        import xgboost

        rows = xgboost.DMatrix(
            inputs, feature_types=self.model.feature_types, enable_categorical=True, nthread=1
        )
        kept = (0, rounds)
        return _scores(self.model.predict(rows, output_margin=True, iteration_range=kept))

    def save(self, rounds: int) -> bytes:
        """XGBoost's JSON format."""
        return bytes(self.model[:rounds].save_raw("json"))

    def load(self, content: bytes) -> None:
        """Read XGBoost's JSON format."""
        import xgboost

        model = xgboost.Booster({"nthread": 1})
        try:
            model.load_model(bytearray(content))
        except xgboost.core.XGBoostError as error:
            raise ValueError(f"{self.file}: {str(error).splitlines()[0]}") from error
        self.model = model


def _scores(margins: Any) -> Matrix:
    return log_odds(np.asarray(margins, dtype=np.float64))
