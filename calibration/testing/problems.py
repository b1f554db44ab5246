"""Small separable problems that every training method must solve, and ways to corrupt them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from calibration.data import Part, Protocol, Splits
from calibration.data.dataset import Kind
from calibration.data.fixed import FixedDataset
from calibration.methods import Method
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig

BATCH = 32
SHARES = Protocol(name="conformance", validation=60, meta_validation=BATCH)
ROWS = 60 + 4 * BATCH + 1
"""With rows held out or without, the last of an epoch's batches of 32 has a single sample."""


class SealedError(Exception):
    """Raised when the test part of a ``SealedDataset`` is requested."""


class SealedDataset(FixedDataset):
    """A dataset whose test part must not be requested."""

    def test(self, seed: int) -> Part:
        """Raise ``SealedError``."""
        raise SealedError


@dataclass(frozen=True)
class Problem:
    """Rows to learn, a network and a way to train it."""

    name: str
    rows: Part
    classes: int
    model: str
    model_options: dict[str, Any]
    training: TrainingConfig

    def dataset(self, test: Part | None = None) -> SealedDataset:
        """The rows with some test part, by default the same rows."""
        names = tuple(str(k) for k in range(self.classes))
        kind: Kind = "table" if self.rows.inputs.ndim == 2 else "image"
        return SealedDataset(self.name, kind, self.rows, names, test=test or self.rows)

    def splits(self, method: Method, dataset: SealedDataset | None = None) -> Splits:
        """The rows that ``method`` sees, including held-out rows if it needs them."""
        return (dataset or self.dataset()).split(SHARES, 0, held_out=method.needs_held_out)

    def run(self, method: Method, splits: Splits, *, seed: int = 0) -> TrainingRun:
        """A training run before its first epoch."""
        return TrainingRun(
            method,
            splits,
            model=self.model,
            model_options=self.model_options,
            classes=self.classes,
            config=self.training,
            seed=seed,
        )


def poisoned(part: Part, classes: int) -> Part:
    """NaN inputs and wrong labels: using them shows in the result."""
    nothing = torch.full(part.inputs.shape, torch.nan, dtype=torch.float64)
    return mislabelled(part, classes)._replace(inputs=nothing)


def mislabelled(part: Part, classes: int) -> Part:
    """The same inputs, every one of them with the label of the next class."""
    return part._replace(labels=(part.labels + 1) % classes)


def two_clouds() -> Problem:
    """Points in the plane in two classes: a small network, mini-batches."""
    training = TrainingConfig(epochs=10, batch_size=BATCH, stop_on="none", evaluate_every=3)
    rows = _clouds(classes=2, dimensions=2)
    return Problem("MLP, 2 classes, mini-batches", rows, 2, "mlp", {"widths": (16,)}, training)


def ten_clouds() -> Problem:
    """A table of ten columns and ten classes: a small network, full batches."""
    training = TrainingConfig(epochs=40, batch_size="full", stop_on="none", evaluate_every=20)
    rows = _clouds(classes=10, dimensions=10)
    return Problem("MLP, 10 classes, full batch", rows, 10, "mlp", {"widths": (32,)}, training)


def two_patterns() -> Problem:
    """Images of two classes: a convolutional network, full batches."""
    training = TrainingConfig(epochs=30, batch_size="full", stop_on="none", evaluate_every=10)
    return _of_patterns("CNN, 2 classes, full batch", 2, training)


def ten_patterns() -> Problem:
    """Images of ten classes: a convolutional network, mini-batches, the best epoch's weights."""
    training = TrainingConfig(epochs=20, batch_size=20, schedule="cosine", evaluate_every=4)
    return _of_patterns("CNN, 10 classes, mini-batches", 10, training)


def lonely_pattern() -> Problem:
    """Images with a single one in the last batch: too few for batch normalisation to train on."""
    training = TrainingConfig(epochs=2, batch_size=BATCH)
    return _of_patterns("CNN, 10 classes, a batch of one sample", 10, training)


def _of_patterns(name: str, classes: int, training: TrainingConfig) -> Problem:
    rows = _patterns(classes)
    return Problem(name, rows, classes, "small_cnn", {"channels": (8, 32)}, training)


def _clouds(*, classes: int, dimensions: int) -> Part:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(ROWS) % classes
    centres = 5 * torch.eye(dimensions, dtype=torch.float64)[:classes]
    noise = torch.randn(ROWS, dimensions, generator=generator, dtype=torch.float64)
    return Part(centres[labels] + 0.5 * noise, labels)


def _patterns(classes: int) -> Part:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(ROWS) % classes
    patterns = 200 * torch.randint(2, (classes, 1, 8, 8), generator=generator)
    noise = 40 * torch.rand(ROWS, 1, 8, 8, generator=generator)
    return Part((patterns[labels] + noise).to(torch.uint8), labels)
