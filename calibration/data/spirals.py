"""Spiral 2.5 and 3.5 of Sanguin et al. 2024 (BO4SC): two interlocking noisy spirals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration.data.dataset import DATASETS, Dataset, Kind
from calibration.data.drawn import DrawnDataset, DrawnOptions, Source

TURN = 3 * np.pi
GROWTH = 2.6
NODES = 256
_CHUNK = 4096


def _arm(t: NDArray[np.float64]) -> NDArray[np.float64]:
    circle: NDArray[np.float64] = np.stack([np.cos(t), np.sin(t)], axis=1)
    return GROWTH * t[:, None] * circle


@dataclass(frozen=True)
class Spiral(Source):
    """x = ±P(t) + N(0, deviation² I), t = 3π√u, u uniform, P(t) = 2.6 t (cos t, sin t).

    The sign is + for class 0 and − for class 1, which are equally likely.
    """

    deviation: float

    kind: Kind = "points"
    class_names: tuple[str, ...] = ("0", "1")

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw independent pairs."""
        labels = rng.integers(2, size=count)
        curve = _arm(TURN * np.sqrt(rng.random(count))) * (1 - 2 * labels)[:, None]
        return curve + self.deviation * rng.normal(size=(count, 2)), labels

    def posterior(self, inputs: Tensor) -> Tensor:
        """Integrate p(x|0) = ∫ N(x; P(t), deviation² I) 2t/(3π)² dt; p(x|1) = p(−x|0).

        Gauss–Legendre quadrature with 256 nodes agrees with adaptive integration to
        1e-12 over [−40, 40]²: the integrand is smooth at the nodes' spacing.
        """
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        t = TURN * (nodes + 1) / 2
        log_weights = torch.from_numpy(np.log(weights * t)).to(inputs.device)
        arm = torch.from_numpy(_arm(t)).to(inputs.device)
        # In chunks, since every point is paired with every node.
        return torch.cat(
            [self._rows(rows, arm, log_weights) for rows in torch.split(inputs, _CHUNK)]
        )

    def _rows(self, rows: Tensor, arm: Tensor, log_weights: Tensor) -> Tensor:
        squared = (torch.cdist(rows, sign * arm).square() for sign in (1, -1))
        joint = [(log_weights - s / (2 * self.deviation**2)).logsumexp(-1) for s in squared]
        return torch.stack(joint, dim=1).softmax(-1)


@DATASETS.register("spiral-2.5")
class Spiral25(DrawnOptions):
    """Two interlocking spirals with noise of standard deviation 2.5 (Bayes accuracy 0.921)."""

    def load(self) -> Dataset:
        """Set up the dataset."""
        return DrawnDataset("spiral-2.5", Spiral(2.5), self)


@DATASETS.register("spiral-3.5")
class Spiral35(DrawnOptions):
    """Two interlocking spirals with noise of standard deviation 3.5 (Bayes accuracy 0.827)."""

    def load(self) -> Dataset:
        """Set up the dataset."""
        return DrawnDataset("spiral-3.5", Spiral(3.5), self)
