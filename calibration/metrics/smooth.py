"""Calibration errors smoothed over confidence, without bins.

Functions take probabilities (..., N, K) with labels (..., N), or confidence (..., N) with
correct (..., N), return a float64 tensor of the batch shape and raise ``ValueError`` on
malformed input.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.metrics.checks import Data, check_positive
from calibration.metrics.chunks import row_chunks
from calibration.metrics.predictions import Predictions

# The bandwidth is found to within 2^-10 and not searched below 0.001, as in the reference.
HALVINGS = 10
LEAST_BANDWIDTH = 0.001
# More samples than this are first condensed onto a grid finer than the smoothing grids.
MOST_POINTS = 2**16
FINE_CELLS = 2**14
KERNEL_ELEMENTS = 2**20


@torch.no_grad()
def smooth_ece(probabilities: Data, labels: Data) -> Tensor:
    """Smooth ECE of Błasiok & Nakkiran 2023, as computed by their package ``relplot``.

    smECE_σ = ∫ |Σ_i k_σ(t, conf_i)(conf_i - correct_i)| dt / N with the reflected Gaussian
    kernel k_σ; the bandwidth is the fixed point σ = smECE_σ. O(N log N + grid · log grid).

    The discretisation (grid, bandwidth steps, mass at the very ends 0 and 1 reflected once) is
    that of the reference, so that values can be compared. It has an effect: if most confidences
    are within 0.001 of 1, the value exceeds ``ece``, which the integral itself never does.
    """
    return smooth_ece_of(Predictions.of(probabilities, labels))


def smooth_ece_of(predictions: Predictions) -> Tensor:
    """``smooth_ece`` of checked predictions."""
    values = [fixed_point(smoother)[0] for smoother in smoothers(predictions)]
    return torch.stack(values).view(predictions.batch)


def smoothers(predictions: Predictions) -> list[Smoother]:
    """One smoother per batch element."""
    ranked = predictions.ranked
    shape = (-1, ranked.samples)
    pairs = zip(ranked.confidence.reshape(shape), ranked.gaps.reshape(shape), strict=True)
    return [Smoother(*pair, ranked.weight) for pair in pairs]


class Smoother:
    """Gaps (n) at confidences (n) in ascending order, ready for smoothing with any bandwidth.

    If samples have ``weights`` (n), the gaps are multiplied by them.
    """

    def __init__(self, confidence: Tensor, gap: Tensor, weights: Tensor | None = None) -> None:
        if len(gap) > MOST_POINTS:
            self._weights = condense(confidence, gap, FINE_CELLS, weights)
            self._confidence = torch.linspace(
                0, 1, FINE_CELLS + 1, dtype=torch.float64, device=gap.device
            )
        else:
            self._weights = (gap, torch.ones_like(gap) if weights is None else weights)
            self._confidence = confidence
        self._grids: dict[int, Tensor] = {}

    def grid(self, cells: int) -> Tensor:
        """Gap and mass (2, nodes) on the nodes 0, 1/cells, …, 1."""
        if cells not in self._grids:
            parts = [to_grid(self._confidence, part, cells) for part in self._weights]
            self._grids[cells] = torch.stack(parts)
        return self._grids[cells]

    def reference_error(self, bandwidth: float) -> Tensor:
        """smECE_σ with the reference implementation's grid and mesh."""
        smoothed = convolve(self.grid(cells_for(bandwidth)), bandwidth)
        on_mesh = interpolate(smoothed, mesh_for(bandwidth, smoothed.device))
        gap, mass = on_mesh[0], on_mesh[1]
        return gap.abs().sum() / mass.sum()

    def error(self, bandwidth: float) -> Tensor:
        """smECE_σ by the trapezium rule, mass at 0 and 1 reflected onto itself."""
        grid = self.grid(cells_for(bandwidth)).clone()
        ends = [0, -1]
        grid[:, ends] *= 2
        smoothed = convolve(grid, bandwidth)
        smoothed[:, ends] /= 2
        gap, mass = smoothed[0], smoothed[1]
        return gap.abs().sum() / mass.sum()


def cells_for(bandwidth: float) -> int:
    """Grid cells for a bandwidth: at least ten per bandwidth; even, so that kernels are centred."""
    return max(1000, 2 * round(5 / bandwidth))


def mesh_for(bandwidth: float, device: torch.device) -> Tensor:
    """The points at which the reference implementation evaluates smoothed functions."""
    points = max(200, round(10 / bandwidth))
    return torch.linspace(0, 1, points, dtype=torch.float64, device=device)


def to_grid(positions: Tensor, weights: Tensor, cells: int) -> Tensor:
    """Split each weight between the two nodes next to its position, in proportion to nearness."""
    scaled = positions * cells
    node = scaled.long().clamp_(max=cells - 1)
    right = torch.bincount(node, weights=(scaled - node) * weights, minlength=cells)
    return _on_nodes(torch.bincount(node, weights=weights, minlength=cells), right)


def condense(
    confidence: Tensor, gap: Tensor, cells: int, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``to_grid`` of gaps and of ones (or weights), from cumulative sums.

    Confidences are ascending.
    """
    number = torch.arange(cells, dtype=torch.float64, device=gap.device)
    ranks = torch.searchsorted(confidence, number[1:] / cells)
    ends = torch.cat([ranks, ranks.new_tensor([len(gap)])]) - 1

    def totals(values: Tensor) -> Tensor:
        sums = torch.where(ends < 0, 0.0, values.cumsum(0)[ends.clamp(min=0)])
        return sums.diff(prepend=sums.new_zeros(1))

    if weights is None:
        mass = ((ends + 1).double().diff(prepend=number[:1]), totals(confidence))
    else:
        mass = (totals(weights), totals(weights * confidence))
    grids = []
    for total, moment in ((totals(gap), totals(gap * confidence)), mass):
        grids.append(_on_nodes(total, cells * moment - number * total))
    return grids[0], grids[1]


def _on_nodes(total: Tensor, right: Tensor) -> Tensor:
    """Node values from the weight in each cell and the part that belongs to its right end."""
    values = total.new_zeros(len(total) + 1)
    values[:-1] += total - right
    values[1:] += right
    return values


def convolve(values: Tensor, bandwidth: float) -> Tensor:
    """Smooth grid values (..., nodes) with a Gaussian reflected at 0 and 1, cut at 1/2."""
    cells = values.shape[-1] - 1
    distance = torch.arange(cells + 1, dtype=torch.float64, device=values.device) / cells
    kernel = (distance / bandwidth).square_().mul_(-0.5).exp_().masked_fill_(distance > 0.5, 0)
    return reflected_convolution(values, kernel)


def reflected_convolution(values: Tensor, kernel: Tensor) -> Tensor:
    """Grid values (..., nodes) on [0, 1], reflected at both ends, with an even kernel (nodes).

    The kernel is given at the distances of the nodes from 0.
    """
    # Reflection makes the signal even with period 2, where convolution is a product of spectra.
    spectrum = torch.fft.rfft(_mirrored(values)) * torch.fft.rfft(_mirrored(kernel))
    smoothed: Tensor = torch.fft.irfft(spectrum, n=2 * (values.shape[-1] - 1))
    return smoothed[..., : values.shape[-1]]


def _mirrored(values: Tensor) -> Tensor:
    return torch.cat([values, values[..., 1:-1].flip(-1)], dim=-1)


def interpolate(values: Tensor, mesh: Tensor) -> Tensor:
    """Piecewise linear interpolation of grid values (..., nodes) at the points of ``mesh``."""
    cells = values.shape[-1] - 1
    scaled = mesh * cells
    node = scaled.long().clamp_(max=cells - 1)
    return torch.lerp(values[..., node], values[..., node + 1], scaled - node)


def fixed_point(smoother: Smoother) -> tuple[Tensor, float]:
    """The smoothed error at the smallest bandwidth found not below it, and that bandwidth."""
    found: dict[float, Tensor] = {}

    def error(bandwidth: float) -> Tensor:
        if bandwidth not in found:
            found[bandwidth] = smoother.reference_error(bandwidth)
        return found[bandwidth]

    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle < LEAST_BANDWIDTH or middle < float(error(middle)):
            low = middle
        else:
            high = middle
    return error(high), high


@torch.no_grad()
def sece(probabilities: Data, labels: Data, *, bandwidth: float = 0.01) -> Tensor:
    """SECE of the Meta-Regularization paper (Eq. 5-7): mean |SACC_i - conf_i|.

    SACC_i = Σ_j correct_j k(conf_i, conf_j) / Σ_j k(conf_i, conf_j) with a Gaussian kernel of
    the given bandwidth (0.01 there; larger suits small sets). O(N²) time, bounded memory.
    """
    width = check_positive(bandwidth, "bandwidth")
    predictions = Predictions.of(probabilities, labels)
    samples = predictions.confidence.shape[-1]
    values = [
        _sece(confidence, correct, width)
        for confidence, correct in zip(
            predictions.confidence.reshape(-1, samples),
            predictions.correct.reshape(-1, samples).double(),
            strict=True,
        )
    ]
    return torch.stack(values).view(predictions.confidence.shape[:-1])


def _sece(confidence: Tensor, correct: Tensor, bandwidth: float) -> Tensor:
    scaled = confidence / bandwidth
    total = torch.zeros((), dtype=torch.float64, device=confidence.device)
    outcome = torch.stack([correct, torch.ones_like(correct)], dim=-1)
    for chunk in row_chunks(len(scaled), len(scaled), KERNEL_ELEMENTS):
        kernel = (scaled[chunk, None] - scaled).square_().mul_(-0.5).exp_()
        hits, mass = (kernel @ outcome).unbind(-1)
        total += (hits / mass - confidence[chunk]).abs().sum()
    return total / len(scaled)
