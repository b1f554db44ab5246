"""What ECE would read if the model were calibrated: nothing below it means anything."""

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

_ELEMENTS = 2**20


class NoiseFloor(NamedTuple):
    """Mean and 95 % quantile of the ECE under perfect calibration."""

    mean: float
    q95: float


@torch.no_grad()
def noise_floor(
    probabilities_or_confidence: Data, *, bins: int = 15, draws: int = 200, seed: int = 0
) -> NoiseFloor:
    """ECE of the given confidences when correct ~ Bernoulli(confidence), over ``draws`` draws.

    Takes confidences (N) or probabilities (N, K). The floor belongs to these very confidences:
    an over-confident model's is too low for its temperature-scaled self. Raises ``ValueError``
    on malformed input.
    """
    confidence = _confidence(probabilities_or_confidence)
    number, repeats = check_count(bins, "bins"), check_count(draws, "draws")
    generator = torch.Generator(device=confidence.device).manual_seed(seed)
    errors = _calibrated_errors(confidence, number, repeats, generator)
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


def _calibrated_errors(
    confidence: Tensor, bins: int, draws: int, generator: torch.Generator
) -> Tensor:
    """ECE (draws) of simulated outcomes; samples in blocks, all draws of a block at once."""
    index = width_index(confidence, bins)
    gap = torch.zeros(draws, bins, dtype=torch.float64, device=confidence.device)
    step = max(1, _ELEMENTS // draws)
    for start in range(0, len(confidence), step):
        level = confidence[start : start + step]
        uniform = torch.rand(draws, len(level), generator=generator, device=level.device)
        # Sums of 0 and 1 are exact in float32.
        member = one_hot(index[start : start + step], bins).float()
        gap += level @ member.double() - (uniform < level).float() @ member
    return gap.abs().sum(-1) / len(confidence)
