"""Blobs 1.3 and 1.7 of Sanguin et al. 2024 (BO4SC): five Gaussian classes in the plane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration.data.dataset import DATASETS, Dataset, Kind
from calibration.data.drawn import DrawnDataset, DrawnOptions, Source

# The centres of make_blobs(centers=5, center_box=(-10, 10), random_state=35). The paper
# does not give its own; accuracy varies from .83 to .99 over states, and this state matches.
CENTRES = np.random.RandomState(35).uniform(-10, 10, (5, 2))


@dataclass(frozen=True)
class Blobs(Source):
    """y uniform over five classes, x ~ N(centre of y, deviation² I)."""

    deviation: float

    kind: Kind = "points"
    class_names: tuple[str, ...] = ("0", "1", "2", "3", "4")

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw independent pairs."""
        labels = rng.integers(len(CENTRES), size=count)
        return CENTRES[labels] + self.deviation * rng.normal(size=(count, 2)), labels

    def posterior(self, inputs: Tensor) -> Tensor:
        """Exact: softmax over classes of −‖x − centre‖² / (2 deviation²)."""
        centres = torch.from_numpy(CENTRES).to(inputs.device)
        squared = (inputs[:, None] - centres).square().sum(-1)
        return (-squared / (2 * self.deviation**2)).softmax(-1)


@DATASETS.register("blobs-1.3")
class Blobs13(DrawnOptions):
    """Five Gaussian blobs in the plane, standard deviation 1.3 (Bayes accuracy 0.936)."""

    def load(self) -> Dataset:
        """Set up the dataset."""
        return DrawnDataset("blobs-1.3", Blobs(1.3), self)


@DATASETS.register("blobs-1.7")
class Blobs17(DrawnOptions):
    """Five Gaussian blobs in the plane, standard deviation 1.7 (Bayes accuracy 0.870)."""

    def load(self) -> Dataset:
        """Set up the dataset."""
        return DrawnDataset("blobs-1.7", Blobs(1.7), self)
