"""Beta calibration (Kull, Silva Filho and Flach 2017)."""

from __future__ import annotations

import numpy as np

from calibration.calibrators.calibrator import CALIBRATORS, Floats
from calibration.calibrators.logistic import shrunk_logistic_regression
from calibration.calibrators.one_vs_rest import Score
from calibration.calibrators.platt import LogisticMap


@CALIBRATORS.register("beta")
class Beta(LogisticMap):
    """σ(a·log p − b·log(1 − p) + c) per class, a and b at least 0 (Kull et al. 2017).

    If an unconstrained fit gives a negative a or b, which would not be monotone, it is fixed at 0
    and the rest is fitted again.
    """

    description = "beta calibration, one-vs-rest (Kull et al. 2017)"
    fast = True
    unchanged = (1.0, 1.0, 0.0)

    def _fit_map(self, score: Score, target: Floats) -> Floats:
        features, centre = self._features(score), np.array(self.unchanged)
        free = np.ones(3, dtype=bool)
        while True:
            theta = np.zeros(3)
            theta[free], converged = shrunk_logistic_regression(
                features[free], target, centre[free], score.weights
            )
            if (theta[:2] >= 0).all():
                self.converged = self.converged and converged
                return theta
            free[:2] &= theta[:2] >= 0

    def _features(self, score: Score) -> Floats:
        return np.stack([score.log_p, -score.log_not_p, np.ones_like(score.log_p)])
