"""Datasets drawn from a known distribution: fresh points for every seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property, partial
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from calibration.data.columns import Column
from calibration.data.dataset import Dataset, DatasetOptions, Kind, Part, Splits
from calibration.data.fingerprint import fingerprint
from calibration.data.protocol import Protocol
from calibration.data.splitting import split_pool, stream
from calibration.data.transforms import fit_transform

Count = Annotated[int, Field(ge=10, le=10_000_000)]


class Source(ABC):
    """A joint distribution of inputs and labels with a known posterior.

    Write it as a frozen dataclass: its ``repr``, which names every parameter, is part of
    the fingerprint.
    """

    kind: Kind
    class_names: tuple[str, ...]
    columns: tuple[Column, ...] = ()

    @abstractmethod
    def draw(
        self, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw ``count`` independent pairs: inputs (count, D) and labels."""

    @abstractmethod
    def posterior(self, inputs: Tensor) -> Tensor:
        """Return P(y|x) in float64, shape (N, K)."""


class DrawnOptions(DatasetOptions):
    """How many points to draw for training and validation, and for testing."""

    points: Count = 1000
    test_points: Count = 1000


class DrawnDataset(Dataset):
    """Independent pairs from a ``Source``; the test part has a stream of its own."""

    independent_draws = True

    def __init__(self, name: str, source: Source, options: DrawnOptions) -> None:
        self.name, self._source, self._options = name, source, options
        self.kind, self.class_names = source.kind, source.class_names
        self.columns = source.columns

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the source's parameters, the numbers of points and a small draw."""
        description = [repr(self._source), self._options.model_dump()]
        inputs, labels = self._draw("fingerprint", 0, 64)[:2]
        # Rounded: processors differ in the last bits of a sine.
        return fingerprint(description, (inputs.round(decimals=6), labels))

    def split(self, protocol: Protocol, seed: int, *, held_out: bool) -> Splits:
        """Draw ``points`` pairs for this seed and divide them; see ``Dataset.split``."""
        return split_pool(
            self._draw("pool", seed, self._options.points),
            protocol,
            seed,
            held_out=held_out,
            validation=protocol.drawn_validation or protocol.validation,
            fit=partial(fit_transform, columns=self.columns),
            name=self.name,
        )

    def test(self, seed: int) -> Part:
        """Draw this seed's ``test_points`` test pairs."""
        return self._draw("test", seed, self._options.test_points)

    def large_test(self, seed: int, rows: int) -> Part:
        """Draw ``rows`` test pairs from a stream of their own."""
        return self._draw("large test", seed, rows)

    def posterior(self, inputs: Tensor) -> Tensor:
        """Return the true P(y|x) of raw inputs, shape (N, K), in float64."""
        return self._source.posterior(inputs.double())

    def _draw(self, part: str, seed: int, count: int) -> Part:
        inputs, labels = self._source.draw(count, stream(self.name, seed, part))
        return Part(torch.from_numpy(inputs), torch.from_numpy(labels))
