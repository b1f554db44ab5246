"""Blood alcohol concentration (BAC): may this person drive, by the Widmark formula?

A simulation that replaces the data of Nugent and Cunningham used by Sanguin et al. 2024
(BO4SC).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration.data.columns import Column
from calibration.data.dataset import DATASETS, Dataset, Kind
from calibration.data.drawn import DrawnDataset, DrawnOptions, Source

_COLUMNS = ("male", "weight", "units", "meal", "hours")


@dataclass(frozen=True)
class BloodAlcohol(Source):
    """y = [BAC + N(0, noise²) > limit], BAC = 10·units·f / (r·weight) − β·hours, in g/L.

    Sexes are equally likely; r = .68 and weight ~ N(78, 12) kg for men, .55 and
    N(65, 11) for women; 0–10 units of 10 g of alcohol, of which a fraction f = 1, .9 or .75
    is absorbed after a meal of level 0, 1 or 2; 0.25–6 hours elapsed; β = .15 per hour.
    """

    noise: float = 0.02
    limit: float = 0.8
    elimination: float = 0.15
    distribution: tuple[float, float] = (0.55, 0.68)
    weight_mean: tuple[float, float] = (65.0, 78.0)
    weight_deviation: tuple[float, float] = (11.0, 12.0)
    absorbed: tuple[float, float, float] = (1.0, 0.9, 0.75)

    kind: Kind = "table"
    class_names: tuple[str, ...] = ("below", "above")
    columns: tuple[Column, ...] = tuple(Column(name, "numeric") for name in _COLUMNS)

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw independent pairs; the columns are male, weight, units, meal, hours."""
        male = rng.integers(2, size=count)
        spread = np.array(self.weight_deviation)[male]
        weight = np.array(self.weight_mean)[male] + spread * rng.normal(size=count)
        units = rng.integers(11, size=count)
        meal = rng.integers(3, size=count)
        hours = rng.uniform(0.25, 6, size=count)
        inputs = np.stack([male, weight, units, meal, hours], axis=1)
        measured = self._level(torch.from_numpy(inputs)).numpy()
        measured = measured + self.noise * rng.normal(size=count)
        return inputs, (measured > self.limit).astype(np.int64)

    def posterior(self, inputs: Tensor) -> Tensor:
        """Exact: P(above | x) = Φ((BAC − limit) / noise)."""
        score = (self._level(inputs) - self.limit) / self.noise
        return torch.stack([torch.special.ndtr(-score), torch.special.ndtr(score)], dim=1)

    def _level(self, inputs: Tensor) -> Tensor:
        male, weight, units, meal, hours = inputs.unbind(-1)
        ratio = inputs.new_tensor(self.distribution)[male.long()]
        absorbed = inputs.new_tensor(self.absorbed)[meal.long()]
        return 10 * units * absorbed / (ratio * weight) - self.elimination * hours


@DATASETS.register("bac")
class Bac(DrawnOptions):
    """Blood alcohol above 0.8 g/L, simulated by the Widmark formula (Bayes accuracy 0.993)."""

    def load(self) -> Dataset:
        """Set up the dataset."""
        return DrawnDataset("bac", BloodAlcohol(), self)
