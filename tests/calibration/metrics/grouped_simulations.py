"""How often intervals of grouped samples hold the truth: ``python -m`` this module prints it.

Groups of different sizes have an accuracy of their own. A classifier that is always 80 % sure
is right 70 % of the time over all groups, so that the truth of its metrics is known.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from calibration import metrics

SURE, RIGHT = 0.8, 0.7
TRUTH = {
    "error": 1 - RIGHT,
    "nll": -RIGHT * math.log(SURE) - (1 - RIGHT) * math.log(1 - SURE),
    "brier": 2 * (RIGHT * (1 - SURE) ** 2 + (1 - RIGHT) * SURE**2),
    "ece": SURE - RIGHT,
}


class Draw(NamedTuple):
    """Probabilities (N, 2), labels (N), and the group of each."""

    probabilities: Tensor
    labels: Tensor
    groups: Tensor


def drawn(groups: int, rng: np.random.Generator) -> Draw:
    """So many groups of 1 to about 20 samples; their accuracies are Beta(3.5, 1.5)."""
    sizes = 1 + rng.poisson(8, groups)
    accuracy = rng.beta(5 * RIGHT, 5 * (1 - RIGHT), groups)
    member = np.repeat(np.arange(groups), sizes)
    right = rng.random(len(member)) < accuracy[member]
    rows = torch.tensor([SURE, 1 - SURE], dtype=torch.float64).expand(len(member), 2)
    return Draw(rows, torch.from_numpy((~right).astype(np.int64)), torch.from_numpy(member))


def coverage(
    groups: int, repeats: int, *, grouped: bool = True, resamples: int = 400, seed: int = 0
) -> dict[str, float]:
    """The share of 95 % intervals that hold the truth, by metric."""
    rng = np.random.default_rng(seed)
    held = dict.fromkeys(TRUTH, 0)
    for repeat in range(repeats):
        draw = drawn(groups, rng)
        found = metrics.bootstrap_intervals(
            draw.probabilities,
            draw.labels,
            metrics=list(TRUTH),
            resamples=resamples,
            seed=repeat,
            groups=draw.groups if grouped else None,
        )
        for name, (low, high) in found.items():
            held[name] += low <= TRUTH[name] <= high
    return {name: count / repeats for name, count in held.items()}


if __name__ == "__main__":
    for number, whole in ((8, True), (15, True), (30, True), (50, True), (50, False), (100, True)):
        shares = coverage(number, 2000, grouped=whole, resamples=500)
        kind = "groups" if whole else "rows  "
        print(f"{number:4} {kind}", {name: f"{share:.3f}" for name, share in shares.items()})
