"""What an estimator is: typed hyperparameters and a fit that goes on in rounds.

An estimator is handed numbers (``Task``) and yields what it makes of the validation rows after
every round: one for learners that are fitted in one go, as many as there are trees for boosting.
All else (curves, the best round, patience, checkpoints, files) is the same for every estimator
and lives in ``estimator_training``.
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
"""The least probability of a class: counts of finitely many rows or trees may come to 0, which says
that there were too few of them, and would cost an infinite NLL; and a class that training has not
seen is not impossible."""
TRAINING_SETTINGS = ("stop_on", "stop_ties", "threads")
"""What of a spec's ``training`` an estimator follows; all else is about networks."""


class EstimatorHyperparameters(Hyperparameters):
    """Base of every estimator's hyperparameters; the library's defaults are tried first."""

    defaults_first: ClassVar[bool] = True


class BoosterHyperparameters(EstimatorHyperparameters):
    """The hyperparameters every boosted ensemble has.

    At most ``rounds`` rounds are trained and the best by validation data is kept; training ends
    when no round was better for ``patience`` rounds.
    """

    rounds: Annotated[int, Field(ge=1, le=100_000)] = 1000
    patience: Annotated[int, Field(ge=1, le=100_000)] = 50

    def of_library(self) -> dict[str, Any]:
        """All others, under the names that the library has for them."""
        return self.model_dump(exclude={"rounds", "patience"})


@dataclass(frozen=True)
class Task:
    """Rows to learn from, encoded as the estimator wants them, and how to go about it.

    ``labels`` count the classes that the training rows have, from 0 to ``classes`` − 1; there are
    at least two. Of the columns that are ``categorical`` the numbers are codes; NaN is missing.
    ``weights``, where rows have some, have a mean of 1. Whoever decides by itself when to end
    uses ``validation_labels`` (−1 for classes that training has not) and ``patience``; the others
    are ended.
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
    """A classifier of a library, to be fitted and kept.

    Subclasses set ``description`` (one line for listings), ``Hyperparameters``, ``file`` (what the
    fitted model is stored as), ``wants`` and ``package`` (what must be installed, if it need not
    be). ``version`` is part of every trial's key: raise it when a change alters results.
    ``complexity`` decides between results that validation data cannot tell apart.
    """

    description: ClassVar[str]
    Hyperparameters: ClassVar[type[EstimatorHyperparameters]] = EstimatorHyperparameters
    complexity: ClassVar[int] = MethodComplexity.BILEVEL
    version: ClassVar[int] = 1
    file: ClassVar[str]
    package: ClassVar[str] = "sklearn"
    wants: ClassVar[Literal["native", "one-hot", "transformed"]] = "transformed"
    """Its inputs: raw numbers with codes of categories and gaps; the same with one-hot categories;
    or those of a network, standardised, without gaps, categories one-hot."""
    most_categories: ClassVar[int | None] = None
    """How many categories of a column are told apart; the rarest further ones count as missing."""
    weighted: ClassVar[bool] = False
    """It follows ``Task.weights``; one that does not is refused on data whose rows have weights."""
    needs_held_out: ClassVar[bool] = False

    def __init__(self, hyperparameters: EstimatorHyperparameters) -> None:
        self.hyperparameters = hyperparameters

    @property
    def deterministic(self) -> bool:
        """Whether the seed changes nothing, however many rows there are.

        Where all seeds have the same parts, too, one training serves them all.
        """
        return False

    @property
    def rounds(self) -> int:
        """How many rounds there are at most."""
        found = self.hyperparameters
        return found.rounds if isinstance(found, BoosterHyperparameters) else 1

    @property
    def patience(self) -> int | None:
        """After how many rounds without a better one training ends."""
        found = self.hyperparameters
        return found.patience if isinstance(found, BoosterHyperparameters) else None

    @abstractmethod
    def fit(self, task: Task) -> Iterator[Matrix]:
        """Train, and yield the ``scores`` of the validation rows after every round.

        What was trained is kept in ``self``. On machines of one type the
        same task gives the same numbers, to the bit.
        """

    @abstractmethod
    def scores(self, inputs: Matrix, rounds: int) -> Matrix:
        """Log-probabilities (N, classes) up to a constant in every row, after so many rounds."""

    @abstractmethod
    def save(self, rounds: int) -> bytes:
        """What was trained in so many rounds, in the library's own format; never a pickle."""

    @abstractmethod
    def load(self, content: bytes) -> None:
        """Take up what ``save`` gave. Raises ``ValueError`` for anything else."""

    @classmethod
    def imports(cls) -> tuple[str, ...]:
        """The packages that predicting imports."""
        return (cls.package,)

    @classmethod
    def check_installed(cls) -> None:
        """Raise ``ValueError`` with the command to type if the library is not there."""
        if importlib.util.find_spec(cls.package) is None:
            raise ValueError(
                f"needs the package {cls.package!r}, which is not installed; "
                "pip install 'calsweep[trees]'"
            )


def log_odds(margins: Matrix) -> Matrix:
    """Scores of two classes (N, 2) from the log-odds (N,) of the second; more are as they are."""
    if margins.ndim == 2:
        return margins
    return np.stack([np.zeros_like(margins), margins], axis=1)
