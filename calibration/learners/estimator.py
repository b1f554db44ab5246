"""The interface of estimators: typed hyperparameters and a fit that proceeds in rounds.

An estimator is given numbers (``Task``) and yields its scores of the validation rows after every
round: one round for estimators that are fitted in one go, one per tree for boosting. Everything
else (curves, the best round, patience, checkpoints, files) is the same for every estimator and is
implemented in ``estimator_training``.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from calibration.complexity import MethodComplexity
from calibration.hyperparameters import Hyperparameters
from calibration.registry import Registry

LEARNERS: Registry[type[Estimator]] = Registry("learner", "calsweep.learners")

Matrix = NDArray[np.float64]

FLOOR = 1e-6
"""The minimum probability of a class: counts of finitely many rows or trees may be 0, which only
means that there were too few of them, but would give an infinite NLL; and a class not seen in
training is not impossible."""
TRAINING_SETTINGS = ("stop_on", "stop_ties", "threads")
"""The settings of a spec's ``training`` that apply to estimators; the rest is for networks."""


class EstimatorHyperparameters(Hyperparameters):
    """Base of every estimator's hyperparameters; the library's defaults are tried first."""

    defaults_first: ClassVar[bool] = True


class BoosterHyperparameters(EstimatorHyperparameters):
    """The hyperparameters that every boosted ensemble has.

    At most ``rounds`` rounds are trained, and the best on validation data is kept; training stops
    after ``patience`` rounds without improvement.
    """

    rounds: Annotated[int, Field(ge=1, le=100_000)] = 1000
    patience: Annotated[int, Field(ge=1, le=100_000)] = 50

    def of_library(self) -> dict[str, Any]:
        """All other hyperparameters, under the library's names."""
        return self.model_dump(exclude={"rounds", "patience"})


@dataclass(frozen=True)
class Task:
    """Training and validation rows, encoded as the estimator wants them, and how to train.

    ``labels`` number the classes that occur in the training rows, from 0 to ``classes`` − 1; there
    are at least two. ``categorical`` columns contain codes; NaN means missing. ``weights``, if
    rows have any, have a mean of 1. Estimators that decide themselves when to stop use
    ``validation_labels`` (−1 for classes that do not occur in training) and ``patience``; the
    others are stopped.
    """

    inputs: Matrix
    labels: NDArray[np.int64]
    weights: Matrix | None
    validation: Matrix
    validation_labels: NDArray[np.int64]
    patience: int | None
    classes: int
    categorical: tuple[int, ...]
    seed: int
    threads: int


class Estimator(ABC):
    """A classifier from another library, to be fitted and stored.

    Subclasses set ``description`` (one line for listings), ``Hyperparameters``, ``file`` (the name
    under which the fitted model is stored), ``wants`` and ``package`` (what must be installed, if
    it is optional). ``version`` is part of every trial's key: raise it when a change alters
    results. ``complexity`` breaks ties between results that validation data cannot distinguish.
    """

    description: ClassVar[str]
    Hyperparameters: ClassVar[type[EstimatorHyperparameters]] = EstimatorHyperparameters
    complexity: ClassVar[int] = MethodComplexity.BILEVEL
    version: ClassVar[int] = 1
    file: ClassVar[str]
    package: ClassVar[str] = "sklearn"
    wants: ClassVar[Literal["native", "one-hot", "transformed"]] = "transformed"
    """Its inputs: raw numbers with category codes and missing values; the same with one-hot
    categories; or those of a network: standardised, imputed, categories one-hot."""
    most_categories: ClassVar[int | None] = None
    """How many categories of a column are distinguished; the rarest others count as missing."""
    weighted: ClassVar[bool] = False
    """Whether it uses ``Task.weights``; if not, it is rejected for data with row weights."""
    needs_held_out: ClassVar[bool] = False

    def __init__(self, hyperparameters: EstimatorHyperparameters) -> None:
        self.hyperparameters = hyperparameters

    @property
    def deterministic(self) -> bool:
        """Whether results do not depend on the seed, for any number of rows.

        If all seeds have the same parts, too, one training serves them all.
        """
        return False

    @property
    def rounds(self) -> int:
        """The maximum number of rounds."""
        found = self.hyperparameters
        return found.rounds if isinstance(found, BoosterHyperparameters) else 1

    @property
    def patience(self) -> int | None:
        """The number of rounds without improvement after which training stops."""
        found = self.hyperparameters
        return found.patience if isinstance(found, BoosterHyperparameters) else None

    @abstractmethod
    def fit(self, task: Task) -> Iterator[Matrix]:
        """Train, and yield the ``scores`` of the validation rows after every round.

        The fitted model is kept in ``self``. On machines of the same type, the same task gives
        bit-identical numbers.
        """

    @abstractmethod
    def scores(self, inputs: Matrix, rounds: int) -> Matrix:
        """Log-probabilities (N, classes) up to a constant per row, after ``rounds`` rounds."""

    @abstractmethod
    def save(self, rounds: int) -> bytes:
        """The model after ``rounds`` rounds in the library's own format; never a pickle."""

    @abstractmethod
    def load(self, content: bytes) -> None:
        """Load the result of ``save``. Raises ``ValueError`` for anything else."""

    @classmethod
    def imports(cls) -> tuple[str, ...]:
        """The packages that prediction imports."""
        return (cls.package,)

    @classmethod
    def check_installed(cls) -> None:
        """Raise ``ValueError`` with the install command if the library is not installed."""
        if importlib.util.find_spec(cls.package) is None:
            raise ValueError(
                f"needs the package {cls.package!r}, which is not installed; "
                "pip install 'calsweep[trees]'"
            )


def log_odds(margins: Matrix) -> Matrix:
    """Scores (N, 2) from the log-odds (N,) of the second of two classes; others are unchanged."""
    if margins.ndim == 2:
        return margins
    return np.stack([np.zeros_like(margins), margins], axis=1)
