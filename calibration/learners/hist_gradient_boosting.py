"""Histogram-based gradient boosting by scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from calibration.complexity import MethodComplexity
from calibration.learners.estimator import (
    LEARNERS,
    BoosterHyperparameters,
    Matrix,
    Task,
    log_odds,
)
from calibration.learners.leafwise import ColumnShare, LeastRows, MostLeaves, Shrinkage
from calibration.learners.scikit_learn import ScikitEstimator

ROUNDS_AT_ONCE = 20
"""Rounds grown at a time: every warm start bins the rows again."""


class HistGradientBoostingHyperparameters(BoosterHyperparameters):
    """Every tree has at most ``max_leaf_nodes`` leaves of at least ``min_samples_leaf`` rows.

    Its values are shrunk by ``learning_rate`` and penalised by ``l2_regularization``; every split
    considers the share ``max_features`` of the columns.
    """

    learning_rate: Shrinkage = 0.1
    max_leaf_nodes: MostLeaves = 31
    min_samples_leaf: LeastRows = 20
    l2_regularization: Annotated[float, Field(ge=0, le=1e10)] = 0.0
    max_features: ColumnShare = 1.0


@LEARNERS.register("hist_gradient_boosting")
class HistGradientBoosting(ScikitEstimator):
    """scikit-learn's HistGradientBoostingClassifier; native categories and missing values.

    Rounds are grown in blocks by a warm start, which gives the same trees as all at once.
    The search space is a subset of the hyperparameters that Holzmüller, Grinsztajn and Steinwart
    (2024) search for LightGBM; their ranges are wider, except for the share of columns.
    """

    description = "boosted trees on histograms (scikit-learn)"
    Hyperparameters = HistGradientBoostingHyperparameters
    hyperparameters: HistGradientBoostingHyperparameters
    complexity = MethodComplexity.TREES
    wants = "native"
    most_categories = 255  # as many as there are bins

    def make(self, seed: int, threads: int) -> Any:
        """The classifier, without early stopping: the best round is chosen elsewhere."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        values = self.hyperparameters.of_library()
        return HistGradientBoostingClassifier(
            **values, early_stopping=False, warm_start=True, random_state=seed
        )

    def fit(self, task: Task) -> Iterator[Matrix]:
        """Grow blocks of rounds."""
        from threadpoolctl import threadpool_limits

        self.model = self.make(task.seed, task.threads)
        self.model.set_params(categorical_features=list(task.categorical) or None)
        for grown in range(0, self.rounds, ROUNDS_AT_ONCE):
            reached = min(grown + ROUNDS_AT_ONCE, self.rounds)
            with threadpool_limits(task.threads):
                self.model.set_params(max_iter=reached)
                self.model.fit(task.inputs, task.labels, sample_weight=task.weights)
                staged = self.model.staged_decision_function(task.validation)
                block = [log_odds(scores) for scores in islice(staged, grown, reached)]
            yield from block

    def scores(self, inputs: Matrix, rounds: int) -> Matrix:
        """The sum of the trees of the first ``rounds`` rounds."""
        staged = self.model.staged_decision_function(inputs)
        return log_odds(next(islice(staged, rounds - 1, rounds)))
