"""One weight and one intercept per class (Guo et al. 2017, Berta et al. 2026)."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.calibrators.calibrator import CALIBRATORS
from calibration.calibrators.softmax_regression import AffineScaling, DiagonalLogits


@CALIBRATORS.register("vector")
class VectorScaling(AffineScaling):
    """softmax((1 + v) ⊙ z/T + b), T the best temperature, z centred (Guo et al. 2017).

    Every entry of v and b has a standard normal prior: worth one observation, it keeps the
    optimum finite if classes are absent or separable.
    """

    description = "a weight and an intercept per class (Guo et al. 2017)"
    fast = True
    affine = DiagonalLogits()

    def _features(self, logits: Tensor) -> Tensor:
        return self._centred(logits)

    def _ridge(self, classes: int) -> Tensor:
        return torch.full((2 * classes,), 0.5 / self.samples, dtype=torch.float64)


@CALIBRATORS.register("structured_vector")
class StructuredVectorScaling(AffineScaling):
    """softmax((1 + v) ⊙ x + b), shrunk to temperature scaling (Berta et al. 2026).

    x are the log-probabilities after temperature scaling, smoothed by 1/(N+1) of the uniform
    distribution; the penalty is (K/N)(‖v‖² + ‖b‖²).
    """

    description = "vector scaling shrunk to temperature scaling (Berta et al. 2026)"
    fast = True
    affine = DiagonalLogits()

    def _features(self, logits: Tensor) -> Tensor:
        return self._smoothed(logits)

    def _ridge(self, classes: int) -> Tensor:
        return torch.full((2 * classes,), classes / self.samples, dtype=torch.float64)
