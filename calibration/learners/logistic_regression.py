"""Logistic regression with an L2 penalty."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from calibration.complexity import MethodComplexity
from calibration.hyperparameters import LogUniform
from calibration.learners.estimator import LEARNERS, EstimatorHyperparameters
from calibration.learners.scikit_learn import ScikitEstimator


class LogisticRegressionHyperparameters(EstimatorHyperparameters):
    """``C`` is the inverse strength of the penalty on the coefficients.

    L-BFGS takes at most ``max_iter`` iterations.
    """

    C: Annotated[float, Field(gt=0, le=1e10), LogUniform(1e-4, 1e4)] = 1.0
    max_iter: Annotated[int, Field(ge=1, le=1_000_000)] = 1000


@LEARNERS.register("logistic_regression")
class LogisticRegression(ScikitEstimator):
    """scikit-learn's multinomial logistic regression, on the same inputs as networks.

    Numbers are standardised, missing values imputed and indicated, categories one-hot.
    """

    description = "linear: softmax regression with an L2 penalty (scikit-learn)"
    Hyperparameters = LogisticRegressionHyperparameters
    complexity = MethodComplexity.LINEAR

    @property
    def deterministic(self) -> bool:
        """Always: the problem is convex, and L-BFGS starts at 0."""
        return True

    def make(self, seed: int, threads: int) -> Any:
        """The classifier, which has no randomness."""
        from sklearn.linear_model import LogisticRegression as Classifier

        return Classifier(**self.hyperparameters.model_dump())
