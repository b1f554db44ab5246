"""A full matrix and intercepts (Guo et al. 2017, Kull et al. 2019, Berta et al. 2026)."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.calibrators.calibrator import CALIBRATORS
from calibration.calibrators.softmax_regression import AffineScaling, FullLogits
from calibration.complexity import CalibratorComplexity


@CALIBRATORS.register("matrix")
class MatrixScaling(AffineScaling):
    """softmax((I + M) z/T + b), T the best temperature, z centred (Guo et al. 2017).

    Every entry of M and b has a standard normal prior, as in ``vector``. K² parameters overfit
    unless N is much larger.
    """

    description = "a full matrix and intercepts (Guo et al. 2017)"
    complexity = CalibratorComplexity.PER_PAIR
    fast = False
    affine = FullLogits()

    def _features(self, logits: Tensor) -> Tensor:
        return self._centred(logits)

    def _ridge(self, classes: int) -> Tensor:
        prior = 0.5 / self.samples
        return _matrix_ridge(classes, diagonal=prior, off_diagonal=prior, intercept=prior)


@CALIBRATORS.register("structured_matrix")
class StructuredMatrixScaling(AffineScaling):
    """softmax((I + M) x + b), shrunk to temperature scaling (Berta et al. 2026).

    x are the log-probabilities after temperature scaling, smoothed by 1/(N+1) of the uniform
    distribution; the penalty is (K/N)(‖diag M‖² + ‖b‖²) + (K(K−1)/N)‖off-diag M‖².
    """

    description = "matrix scaling shrunk to temperature scaling (Berta et al. 2026)"
    complexity = CalibratorComplexity.PER_PAIR
    fast = False
    affine = FullLogits()

    def _features(self, logits: Tensor) -> Tensor:
        return self._smoothed(logits)

    def _ridge(self, classes: int) -> Tensor:
        weak = classes / self.samples
        strong = weak * (classes - 1)
        return _matrix_ridge(classes, diagonal=weak, off_diagonal=strong, intercept=weak)


@CALIBRATORS.register("dirichlet")
class Dirichlet(AffineScaling):
    """softmax((I + M) log p / T + b), p = softmax(z), T the best temperature (Kull et al. 2019).

    Off-diagonal and intercept regularisation (ODIR) with λ = μ = 1e-3:
    λ‖off-diag M‖² + μ‖b‖², sums as in the authors' code, not means. M is relative to the best
    temperature, so that the penalty does not depend on the scale of the logits; its diagonal has
    the prior of ``matrix``.
    """

    description = "Dirichlet calibration with ODIR (Kull et al. 2019)"
    complexity = CalibratorComplexity.PER_PAIR
    fast = False
    affine = FullLogits()

    def _features(self, logits: Tensor) -> Tensor:
        return torch.log_softmax(logits, 1) / self.temperature

    def _ridge(self, classes: int) -> Tensor:
        prior = 0.5 / self.samples
        return _matrix_ridge(classes, diagonal=prior, off_diagonal=1e-3, intercept=1e-3)


def _matrix_ridge(classes: int, diagonal: float, off_diagonal: float, intercept: float) -> Tensor:
    weights = torch.full((classes, classes), off_diagonal, dtype=torch.float64)
    weights.fill_diagonal_(diagonal)
    return torch.cat([weights.flatten(), torch.full((classes,), intercept, dtype=torch.float64)])
