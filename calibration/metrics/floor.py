"""The ECE that a calibrated model would have: values below it are not meaningful."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from calibration.metrics.binning import width_index
from calibration.metrics.checks import (
    Data,
    check_confidence,
    check_count,
    check_simplex,
    to_floating,
)
from calibration.row_weights import mean_one

_ELEMENTS = 2**20


class NoiseFloor(NamedTuple):
    """Mean and 95 % quantile of the ECE under perfect calibration."""

    mean: float
    q95: float


@torch.no_grad()
def noise_floor(
    probabilities_or_confidence: Data,
    *,
    bins: int = 15,
    draws: int = 200,
    seed: int = 0,
    correct: Tensor | None = None,
    groups: Tensor | None = None,
    weights: Tensor | None = None,
) -> NoiseFloor:
    """ECE of the given confidences when correct ~ Bernoulli(confidence), over ``draws`` draws.

    Takes confidences (N) or probabilities (N, K). The floor is specific to these confidences:
    that of an over-confident model is too low for the same model after temperature scaling.

    Errors of samples in one group are correlated, and the gap of a bin then varies more than with
    independent samples. With ``groups`` (N) and ``correct`` (N) each bin's gap is widened by
    the square root of its design effect, 1 + (m - 1)·r (Kish 1965): m is the mean number of
    samples in the bin from a sample's own group, r the correlation of two samples of one
    group and bin, over all bins and not below 0. ``weights`` (N) weight the gaps of samples, as
    in the ECE that the floor belongs to. Raises ``ValueError`` on malformed input.
    """
    confidence = _confidence(probabilities_or_confidence)
    number, repeats = check_count(bins, "bins"), check_count(draws, "draws")
    generator = torch.Generator(device=confidence.device).manual_seed(seed)
    weight = None if weights is None else mean_one(weights).to(confidence.device)
    gaps = _calibrated_gaps(confidence, number, repeats, generator, weight)
    if groups is not None and correct is not None:
        gaps = gaps * design_effects(confidence, correct, groups, number, weight).sqrt()
    errors = gaps.abs().sum(-1) / len(confidence)
    return NoiseFloor(float(errors.mean()), float(errors.quantile(0.95)))


def _confidence(values: Data) -> Tensor:
    tensor = to_floating(values, "probabilities")
    if tensor.ndim == 1:
        return check_confidence(tensor).double()
    if tensor.ndim > 2:
        raise ValueError(
            "noise_floor takes confidences (N) or probabilities (N, K), "
            f"found shape {tuple(tensor.shape)}"
        )
    check_simplex(tensor, "probabilities")
    return tensor.amax(-1).double()


def design_effects(
    confidence: Tensor, correct: Tensor, groups: Tensor, bins: int, weights: Tensor | None = None
) -> Tensor:
    """The factor by which groups raise the variance of each bin's gap (bins), or 1.

    The bins are those of ``noise_floor``, of equal width.
    """
    gap = confidence - correct.double()
    return effects_of_groups(gap, width_index(confidence, bins), groups, bins, weights)


def effects_of_groups(
    gap: Tensor, index: Tensor, groups: Tensor, bins: int, weights: Tensor | None = None
) -> Tensor:
    """``design_effects`` of samples with this ``gap`` (N) in the bins ``index`` (N)."""
    rows = torch.bincount(index, minlength=bins).double()
    if weights is None:
        rest = gap - (torch.bincount(index, gap, minlength=bins) / rows.clamp(min=1))[index]
    else:
        mass = torch.bincount(index, weights, minlength=bins)
        mean = torch.bincount(index, weights * gap, minlength=bins) / mass.masked_fill(mass == 0, 1)
        rest = weights * (gap - mean[index])
    _, cell = (groups.to(index.device) * bins + index).unique(return_inverse=True)
    size = torch.bincount(cell).double()
    pairs = (size * (size - 1)).sum()
    together = torch.bincount(cell, rest).square().sum() - rest.square().sum()
    variance = rest.square().mean()
    if pairs == 0 or variance == 0:
        return torch.ones_like(rows)
    correlation = (together / pairs / variance).clamp(0, 1)
    mean_size = torch.bincount(index, size[cell], minlength=bins) / rows.clamp(min=1)
    return 1 + (mean_size - 1).clamp(min=0) * correlation


def _calibrated_gaps(
    confidence: Tensor,
    bins: int,
    draws: int,
    generator: torch.Generator,
    weights: Tensor | None = None,
) -> Tensor:
    """Gaps (draws, bins) of simulated outcomes, as sums over samples.

    Computed in blocks of samples, with all draws of a block at once.
    """
    index = width_index(confidence, bins)
    gap = torch.zeros(draws, bins, dtype=torch.float64, device=confidence.device)
    step = max(1, _ELEMENTS // draws)
    for start in range(0, len(confidence), step):
        level = confidence[start : start + step]
        uniform = torch.rand(draws, len(level), generator=generator, device=level.device)
        if weights is not None:
            weighed = (
                one_hot(index[start : start + step], bins) * weights[start : start + step, None]
            )
            gap += (level - (uniform < level).double()) @ weighed
            continue
        # Sums of 0 and 1 are exact in float32.
        member = one_hot(index[start : start + step], bins).float()
        gap += level @ member.double() - (uniform < level).float() @ member
    return gap
