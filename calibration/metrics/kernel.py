"""Kernel calibration error."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.metrics.checks import Data
from calibration.metrics.predictions import Predictions

KERNEL_WIDTH = 0.4


@torch.no_grad()
def mmce(probabilities: Data, labels: Data) -> Tensor:
    """Maximum mean calibration error: sqrt of the mean over all pairs (i, j) of g_i g_j k_ij.

    g = correct - confidence, k_ij = exp(-|conf_i - conf_j| / 0.4) (Kumar et al. 2018).
    Takes probabilities (..., N, K) with labels, or confidence (..., N) with correct; raises
    ``ValueError`` on malformed input.
    """
    return mmce_of(Predictions.of(probabilities, labels))


def mmce_of(predictions: Predictions) -> Tensor:
    """``mmce`` of checked predictions, in O(N log N).

    Among sorted confidences the kernel factorises, k_ij = exp(-conf_i/w)·exp(conf_j/w) for
    j <= i, so that the sum over pairs is one cumulative sum.
    """
    ranked = predictions.ranked
    samples = ranked.confidence.shape[-1]
    gap = -ranked.gaps
    growth = (ranked.confidence / KERNEL_WIDTH).exp_()
    below = (gap * growth).cumsum(-1)
    # Twice the pairs j <= i counts the diagonal, where k = 1, once too often.
    pairs = 2 * (gap / growth * below).sum(-1) - gap.square().sum(-1)
    return (pairs.clamp(min=0)).sqrt() / samples
