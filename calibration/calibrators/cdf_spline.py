"""Recalibration by a spline of the cumulative gap, "KS-spline" (Gupta et al. 2021)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from calibration.calibrators.calibrator import CALIBRATORS, Calibrator, Floats
from calibration.calibrators.isotonic import Curve
from calibration.calibrators.natural_spline import NaturalSplines
from calibration.complexity import CalibratorComplexity

_KNOTS = 6


@CALIBRATORS.register("cdf_spline")
class CdfSpline(Calibrator):
    """The predicted class's confidence c plus the slope of a spline (Gupta et al. 2021).

    With samples in ascending order of c, the cumulative sums of (correct − c)/N against the
    fraction of samples are fitted by a natural cubic spline with 6 evenly spaced knots, by least
    squares. Its derivative is accuracy minus c. The other classes share the remaining
    probability in proportion to their softmax probabilities. The new confidence is kept
    1/(N+2) away from 0 and 1, a distance that N samples cannot resolve.
    """

    description = "spline of the confidence's cumulative gap (Gupta et al. 2021)"
    complexity = CalibratorComplexity.PIECES
    scaling = False
    keeps_argmax = False
    fast = True

    samples: int
    gap: Curve

    def _fit(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        confidence, predicted = torch.softmax(logits, 1).max(1)
        correct = (predicted == labels).to(torch.float64)
        self.samples = len(labels)
        self.gap = gap_curve(confidence.numpy(), correct.numpy())

    def _apply(self, logits: Tensor) -> Tensor:
        confidence, predicted = torch.softmax(logits, 1).max(1, keepdim=True)
        new = confidence + torch.from_numpy(self.gap(confidence.numpy()))
        least = 1 / (self.samples + 2)
        new = new.clamp(least, 1 - least)
        others = torch.softmax(logits.scatter(1, predicted, -torch.inf), 1)
        return (others * (1 - new)).scatter(1, predicted, new)


def gap_curve(confidence: Floats, correct: Floats) -> Curve:
    """Accuracy minus confidence as a function of confidence."""
    distinct, where, count = np.unique(confidence, return_inverse=True, return_counts=True)
    # Tied samples share their mean; otherwise their order would matter.
    gap = (np.bincount(where, weights=correct) / count - distinct).repeat(count)
    fraction = np.linspace(0, 1, len(gap))
    splines = NaturalSplines(np.linspace(0, 1, _KNOTS))
    values = np.linalg.lstsq(splines(fraction), np.cumsum(gap) / len(gap), rcond=None)[0]
    slope = splines.slopes(fraction) @ values
    return Curve(distinct, np.add.reduceat(slope, np.cumsum(count) - count) / count)
