"""Calibration error by kernel density estimation (Zhang et al. 2020)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from calibration.metrics.bootstrap_features import RESAMPLED_ELEMENTS, Summed
from calibration.metrics.checks import Data
from calibration.metrics.predictions import Predictions
from calibration.metrics.smooth import reflected_convolution, to_grid

CELLS = 2**12
# The triweight kernel of standard deviation 1 ends at 3.
REACH = 3.0


@torch.no_grad()
def kde_ece(probabilities: Data, labels: Data) -> Tensor:
    """ECE by kernel density estimation: ∫ |z - π(z)| p(z) dz over confidences z.

    p(z) = Σ_i k(z, conf_i) / N and π(z) = Σ_i correct_i k(z, conf_i) / Σ_i k(z, conf_i), so that
    the integrand is |Σ_i (z - correct_i) k(z, conf_i)| / N (Zhang et al. 2020; Eq. 8 and 12 of
    the Meta-Regularization paper with d = 1, for the top label). k is the triweight kernel
    (35/32)(1 - u²)³ reflected at 0 and 1, of standard deviation h = 1.06 σ N^(-1/5), σ that of
    the confidences (Scott's rule of thumb): its support is 3h to either side. Code in circulation
    uses σ of only the correct predictions and (2N)^(-1/5), a narrower kernel, and clips π to 1:
    on two CIFAR-10 networks its values are a tenth larger.

    Computed on a grid of 4096 cells, in O(N); if the kernel is narrower than a cell, confidences
    are not smoothed. Takes probabilities (..., N, K) with labels, or confidence (..., N) with
    correct; raises ``ValueError`` on malformed input.
    """
    return kde_ece_of(Predictions.of(probabilities, labels))


def kde_ece_of(predictions: Predictions) -> Tensor:
    """``kde_ece`` of checked predictions."""
    samples = predictions.confidence.shape[-1]
    pairs = zip(
        predictions.confidence.reshape(-1, samples),
        predictions.correct.reshape(-1, samples).double(),
        strict=True,
    )
    return torch.stack([_one(*pair) for pair in pairs]).view(predictions.batch)


def _one(confidence: Tensor, correct: Tensor) -> Tensor:
    ones = torch.ones_like(confidence)
    mass, hits = (to_grid(confidence, weights, CELLS) for weights in (ones, correct))
    return gaps(mass, hits, bandwidth(confidence)).abs().sum() / len(confidence)


def bandwidth(confidence: Tensor) -> float:
    """h = 1.06 σ N^(-1/5)."""
    return 1.06 * float(confidence.std(correction=0)) / math.pow(len(confidence), 0.2)


def gaps(mass: Tensor, hits: Tensor, width: float) -> Tensor:
    """z·mass - hits on the nodes z, both (..., nodes) smoothed; halves outside are folded in."""
    nodes = torch.linspace(0, 1, CELLS + 1, dtype=torch.float64, device=mass.device)
    if REACH * width * CELLS <= 1:
        return nodes * mass - hits
    kernel = (1 - (nodes / (REACH * width)).clamp(max=1).square()).pow(3)
    kernel = kernel / (2 * kernel.sum() - kernel[0])
    smoothed = []
    for part in (mass, hits):
        both = part.clone()
        both[..., [0, -1]] *= 2  # a point on an end coincides with its reflection
        both = reflected_convolution(both, kernel)
        both[..., [0, -1]] /= 2
        smoothed.append(both)
    return nodes * smoothed[0] - smoothed[1]


def kde_features(predictions: Predictions, bins: int) -> Summed:
    """Gaps on the grid, smoothed with the bandwidth of the original sample."""
    confidence, correct = predictions.confidence, predictions.correct.double()
    width = bandwidth(confidence)
    samples = len(confidence)
    scaled = confidence * CELLS
    left = scaled.long().clamp_(max=CELLS - 1)
    share = torch.cat([1 - (scaled - left), scaled - left]) / samples
    sample = torch.arange(samples, device=confidence.device).repeat(2)
    cells = torch.stack([torch.cat([left, left + 1]), sample])
    shape = (CELLS + 1, samples)
    mass, hits = (
        torch.sparse_coo_tensor(cells, share * weight, shape, check_invariants=False)
        for weight in (torch.ones_like(share), correct.repeat(2))
    )

    def sums(counts: Tensor) -> Tensor:
        found = []
        for part in counts.split(max(1, RESAMPLED_ELEMENTS // max(samples, CELLS))):
            drawn = part.t().double()
            on_nodes = [torch.sparse.mm(matrix, drawn).t() for matrix in (mass, hits)]
            found.append(gaps(on_nodes[0], on_nodes[1], width))
        return torch.cat(found)

    return Summed(sums, lambda sums: sums.abs().sum(-1))
