"""LightGBM (Ke et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from calibration.complexity import MethodComplexity
from calibration.hyperparameters import Uniform
from calibration.learners.estimator import (
    LEARNERS,
    BoosterHyperparameters,
    Estimator,
    Matrix,
    Task,
    log_odds,
)
from calibration.learners.leafwise import ColumnShare, LeastRows, MostLeaves, Shrinkage


class LightGBMHyperparameters(BoosterHyperparameters):
    """Every tree has at most ``num_leaves`` leaves of at least ``min_data_in_leaf`` rows.

    Its values are shrunk by ``learning_rate`` and penalised by ``lambda_l2``; it uses the share
    ``feature_fraction`` of the columns, and the share ``bagging_fraction`` of the rows.
    """

    learning_rate: Shrinkage = 0.1
    num_leaves: MostLeaves = 31
    min_data_in_leaf: LeastRows = 20
    lambda_l2: Annotated[float, Field(ge=0, le=1e10)] = 0.0
    feature_fraction: ColumnShare = 1.0
    bagging_fraction: Annotated[float, Field(gt=0, le=1), Uniform(0.5, 1.0)] = 1.0


@LEARNERS.register("lightgbm")
class LightGBM(Estimator):
    """LightGBM's own boosting; native categories and missing values.

    Ke et al. 2017. Deterministic: histograms are always built row-wise; the faster way is not
    chosen by timing. The search space is a subset of the hyperparameters that Holzmüller,
    Grinsztajn and Steinwart (2024) search for LightGBM; their ranges are wider, except for the
    share of columns.
    """

    description = "boosted trees, grown leaf by leaf (LightGBM)"
    Hyperparameters = LightGBMHyperparameters
    hyperparameters: LightGBMHyperparameters
    complexity = MethodComplexity.TREES
    package = "lightgbm"
    file = "lightgbm.txt"
    wants = "native"
    weighted = True

    def parameters(self, task: Task) -> dict[str, Any]:
        """The parameters of LightGBM."""
        several = task.classes > 2
        return {
            **self.hyperparameters.of_library(),
            "bagging_freq": 1,
            "objective": "multiclass" if several else "binary",
            **({"num_class": task.classes} if several else {}),
            "seed": task.seed,
            "num_threads": task.threads,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }

    def fit(self, task: Task) -> Iterator[Matrix]:
        """Boost round by round."""
        import lightgbm

        told = self.parameters(task)
        rows = lightgbm.Dataset(
            task.inputs,
            task.labels,
            weight=task.weights,
            categorical_feature=list(task.categorical),
            params=told,
        )
        self.model = lightgbm.Booster(told, rows)
        total = np.zeros(0)
        for grown in range(self.rounds):
            self.model.update()
            added = self._margins(task.validation, grown, 1)
            total = total + added if grown else added
            yield log_odds(total)

    def scores(self, inputs: Matrix, rounds: int) -> Matrix:
        """The sum of the trees of the first ``rounds`` rounds."""
        return log_odds(self._margins(inputs, 0, rounds))

    def _margins(self, inputs: Matrix, start: int, rounds: int) -> Matrix:
        found = self.model.predict(
            inputs, raw_score=True, start_iteration=start, num_iteration=rounds, num_threads=1
        )
        return np.asarray(found, dtype=np.float64)

    def save(self, rounds: int) -> bytes:
        """LightGBM's text format."""
        text: str = self.model.model_to_string(num_iteration=rounds)
        return text.encode()

    def load(self, content: bytes) -> None:
        """Read LightGBM's text format."""
        import lightgbm

        try:
            self.model = lightgbm.Booster(model_str=content.decode())
        except lightgbm.basic.LightGBMError as error:
            raise ValueError(f"{self.file}: {error}") from error
