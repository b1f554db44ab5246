"""The interface of a dataset: parts to train and select on, and a test part kept from both."""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from calibration.data.columns import Column, encode_columns
from calibration.data.protocol import Protocol
from calibration.hyperparameters import Settings
from calibration.registry import Registry

Kind = Literal["points", "table", "image", "text"]


class Part(NamedTuple):
    """Some rows of a dataset: inputs as read or drawn, labels as int64.

    Where the data has them: ``groups`` (int64 codes; rows of a group belong together), ``times``
    (int64 ranks; equal stamps have equal ranks), ``folds`` (int64, the position in
    ``FOLD_NAMES`` of the part that the data assigns a row to) and ``weights`` (float64, how much
    a row counts, on any scale).
    """

    inputs: Tensor
    labels: Tensor
    groups: Tensor | None = None
    times: Tensor | None = None
    folds: Tensor | None = None
    weights: Tensor | None = None

    def take(self, rows: Tensor | slice) -> Part:
        """The given rows, with all their fields."""
        return Part(*(None if values is None else values[rows] for values in self))  # type: ignore[arg-type]

    def transformed(self, transform: Transform) -> Part:
        """The same rows with their inputs transformed."""
        return self._replace(inputs=transform(self.inputs))

    def to(self, device: torch.device) -> Part:
        """The same rows on a device."""
        return Part(*(None if values is None else values.to(device) for values in self))  # type: ignore[arg-type]

    @property
    def described(self) -> list[str]:
        """The names of the fields that the rows have besides inputs and labels."""
        return [name for name in self._fields[2:] if getattr(self, name) is not None]


FOLD_NAMES = ("train", "validation", "test", "meta")
"""What a ``fold`` column may hold."""


class Transform(typing.Protocol):
    """Turns raw inputs into the float32 inputs of a network.

    It is fitted on the training part only, holds plain values and can be pickled.
    """

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the network's inputs for the raw ``inputs``."""
        ...


@dataclass(frozen=True)
class Splits:
    """All parts except the test part, which is deliberately kept elsewhere.

    ``validation`` is for early stopping and guides the search. ``apart`` are the rows, if any,
    that the protocol sets apart for calibrators and for choosing the winner; training never
    sees them. ``train_transform`` is a user's own: it is applied to a training row every time
    the row is used, and draws from torch's global generator, which follows the seed.
    """

    train: Part
    validation: Part
    meta_validation: Part | None
    transform: Transform
    apart: Part | None = None
    train_transform: Callable[[Tensor], Tensor] | None = None

    @property
    def learned_from(self) -> list[Part]:
        """Training and validation rows, and any rows held out for a method."""
        parts = (self.train, self.validation, self.meta_validation)
        return [part for part in parts if part is not None]

    @cached_property
    def prepared(self) -> list[Part]:
        """The rows of ``learned_from`` as network inputs, computed once for all networks."""
        return [part.transformed(self.transform) for part in self.learned_from]

    @property
    def choice(self) -> Part:
        """The rows on which calibrators are fitted and the winner is chosen."""
        return self.validation if self.apart is None else self.apart


class Dataset(ABC):
    """A labelled dataset with a fixed way of splitting it.

    ``fingerprint`` is a SHA-256 of the content: equal data have equal fingerprints.
    With ``independent_draws`` every seed draws fresh data, including its own test part;
    otherwise the test rows are the same for every seed and protocol. With ``fixed_split``
    the data also determines the validation rows (``fold``, ``time``): seeds then differ in
    training only. ``test_groups`` is the number of groups among the test rows, None if the
    data has no groups. ``weighted``: rows have weights, which training, metrics and
    calibrators follow.
    ``kind`` "points" means points in the plane; of "text" a network sees only embeddings.
    """

    name: str
    kind: Kind
    class_names: tuple[str, ...]
    independent_draws: bool
    fixed_split: bool = False
    test_groups: int | None = None
    weighted: bool = False
    columns: tuple[Column, ...] = ()

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 (hex) of everything that determines the rows."""

    @abstractmethod
    def split(self, protocol: Protocol, seed: int, *, held_out: bool) -> Splits:
        """Divide the rows that are not test data, stratified by class.

        No group is split between parts; with times, training comes before meta-validation,
        validation, rows set apart, and test; rows with a fold go where it assigns them.
        The validation rows depend only on the protocol and the seed; in fixed data, the rows
        set apart for the choice depend only on the protocol. ``held_out`` says whether the
        method learns on held-out data: if so, meta-validation rows are taken from the
        training share; if not, they stay there, unless the protocol requires the same
        training rows for all methods.
        Raises ``ValueError`` if a part would be empty or there are too few rows.
        """

    @abstractmethod
    def test(self, seed: int) -> Part:
        """Return the test part: the only access to test data."""

    def large_test(self, seed: int, rows: int) -> Part | None:
        """Return ``rows`` additional test rows if the dataset can draw them, else None."""
        return None

    def posterior(self, inputs: Tensor) -> Tensor | None:
        """Return the true P(y|x) of raw inputs, shape (N, K), or None where unknown."""
        return None

    def encode(self, frame: pd.DataFrame) -> Tensor:
        """Return the raw inputs of a user's own rows; columns are matched by name.

        Raises ``ValueError`` if the dataset has no named columns or ``frame`` lacks one.
        """
        if not self.columns:
            raise ValueError(f"dataset {self.name!r} has no named columns to encode a frame by")
        return encode_columns(frame, self.columns, f"dataset {self.name!r}")


class DatasetOptions(Settings, ABC):
    """The options of a registered dataset; the docstring's first line describes it."""

    noun: ClassVar[str] = "option"

    @abstractmethod
    def load(self) -> Dataset:
        """Read or set up the dataset. Raises ``ValueError`` saying what is wrong."""


DATASETS: Registry[type[DatasetOptions]] = Registry("dataset", "calsweep.datasets")
