"""Random forests (Breiman 2001)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from calibration.complexity import MethodComplexity
from calibration.hyperparameters import Choice, Integer
from calibration.learners.estimator import LEARNERS, EstimatorHyperparameters
from calibration.learners.scikit_learn import ScikitEstimator


class RandomForestHyperparameters(EstimatorHyperparameters):
    """``n_estimators`` trees, none deeper than ``max_depth`` (0: no limit).

    Every split considers ``max_features`` of the columns (a share, or the square root or logarithm
    of their number) and leaves at least ``min_samples_leaf`` rows on both sides; ``criterion``
    measures its quality.
    """

    n_estimators: Annotated[int, Field(ge=1, le=100_000), Choice((100, 300))] = 100
    max_depth: Annotated[int, Field(ge=0, le=10_000)] = 0
    max_features: Annotated[
        Annotated[float, Field(gt=0, le=1)] | Literal["sqrt", "log2"],
        Choice(("sqrt", "log2", 0.25, 0.5, 0.75, 1.0)),
    ] = "sqrt"
    min_samples_leaf: Annotated[int, Field(ge=1, le=1_000_000), Integer(1, 50, log=True)] = 1
    criterion: Annotated[Literal["gini", "entropy"], Choice(("gini", "entropy"))] = "gini"


@LEARNERS.register("random_forest")
class RandomForest(ScikitEstimator):
    """scikit-learn's random forest; native missing values, categories one-hot.

    Breiman 2001.

    Criterion and leaf sizes are searched as by Grinsztajn, Oyallon and Varoquaux (2022), shares of
    columns in coarser steps. Unlike theirs, the search space does not include depth, split size,
    minimum gain, training without bootstrap, or small numbers of trees.
    """

    description = "trees on bootstrapped rows, averaged (scikit-learn)"
    Hyperparameters = RandomForestHyperparameters
    complexity = MethodComplexity.TREES
    wants = "one-hot"

    def make(self, seed: int, threads: int) -> Any:
        """The classifier."""
        from sklearn.ensemble import RandomForestClassifier

        values = self.hyperparameters.model_dump()
        values["max_depth"] = values["max_depth"] or None
        return RandomForestClassifier(**values, random_state=seed, n_jobs=threads)

    def settle(self) -> None:
        """Predict with one thread: several sum the trees' votes in no fixed order."""
        self.model.set_params(n_jobs=1)
