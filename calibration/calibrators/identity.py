"""The identity map: the uncalibrated row of a leaderboard."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.calibrators.calibrator import CALIBRATORS, Calibrator
from calibration.complexity import CalibratorComplexity


@CALIBRATORS.register("identity")
class Identity(Calibrator):
    """softmax(z), unchanged."""

    description = "no map: the network's own softmax"
    complexity = CalibratorComplexity.NONE
    scaling = True
    keeps_argmax = True
    fast = True
    weighted = True

    def _fit(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        pass

    def _apply(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, 1)
