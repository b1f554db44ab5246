"""The contract of every sampler, and the registry they are found in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from calibration.hyperparameters import Choice
from calibration.registry import Registry
from sweeps.errors import UserError
from sweeps.search.space import Space

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

# Constants, because a raised budget must continue with the same suggestions.
STARTUP_TRIALS = 5


class SamplerError(UserError):
    """A sampler raised something; the message says which, at which trial, and what."""


class Sampler(ABC):
    """How one search chooses its next trial: makes an Optuna sampler for every trial.

    A study makes one for its ``space`` and number of ``objectives``. ``make`` is called again for
    every trial, with a seed derived from the study and the trial's number, so that nothing carries
    over from one trial to the next except what is in the study's trials. That is why a resumed
    search suggests what an uninterrupted one would have.

    ``make`` must return a fresh sampler that draws all its random numbers from ``seed``. Its
    ``after_trial`` is called for any trial that ends, not only for the one it was made for.
    """

    description: ClassVar[str]
    """One line for the list of samplers."""
    is_grid: ClassVar[bool] = False
    """Tries every point of the space's grid, in order: the grid's size is the budget."""
    several_objectives: ClassVar[bool] = True
    """Can improve more than one objective."""
    conditions: ClassVar[bool] = True
    """Can search hyperparameters that only some trials have."""
    learns: ClassVar[bool] = True
    """Suggests by the results of earlier trials, in the order in which they happen to end."""
    keeps_notes: ClassVar[bool] = True
    """Keeps its state in the trials it suggests, so a resumed search asks it about them again.

    If it is False, resuming saves the time of suggesting them.
    """
    startup: ClassVar[int] = 0
    """How many trials, from the first, it suggests without looking at results.

    They can be suggested ahead of time. One that does not learn suggests all its trials like this.
    """
    most_trials: ClassVar[int | None] = None
    """The number of trials beyond which suggesting takes too long."""
    version: ClassVar[int] = 1
    """Increase it when suggestions change: its searches are then different ones."""

    def __init__(self, space: Space, objectives: int = 1) -> None:
        self.space = space
        self.objectives = objectives

    @abstractmethod
    def make(self, seed: int) -> BaseSampler:
        """The sampler of one trial."""

    def related(self) -> list[str] | None:
        """The hyperparameters it relates to each other; any others it draws one by one, at random.

        None: it finds out from the trials, as Optuna's samplers do by themselves.
        """
        return None

    def always(self) -> list[str]:
        """The hyperparameters that every trial has, and that leave a choice."""
        return [
            hyperparameter
            for hyperparameter, domain in sorted(self.space.searched.items())
            if hyperparameter not in self.space.conditions
            and not (isinstance(domain, Choice) and len(domain.values) == 1)
        ]


SAMPLERS: Registry[type[Sampler]] = Registry("sampler", "calsweep.samplers")
