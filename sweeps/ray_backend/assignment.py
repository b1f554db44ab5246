"""What the driver sends to a worker: one value for each trial, or for each cohort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from sweeps.engine.identity import TrialConfig
from sweeps.ray_backend.handshake import Handshake
from sweeps.spec.schema import Evaluation, Spec

BLOCK_SECONDS = 2.0
ASSIGNMENT = "assignment"
"""Its name in Tune's configuration."""


@dataclass(frozen=True)
class Terms:
    """The settings that all trials of a sweep share.

    ``block``: seconds of training between two reports; ``paced``: reference work is interleaved;
    ``timed``: cohorts measure whether training one by one is faster.
    """

    store: str
    sweep: str
    calibrators: tuple[str, ...]
    evaluation: Evaluation
    time_limit: float | None
    ensemble: tuple[int, ...] = ()
    cpu: float = 1.0
    gpu: float = 0.0
    block: float = BLOCK_SECONDS
    handshake: Handshake | None = None
    paced: bool = False
    timed: bool = False

    @classmethod
    def of(cls, spec: Spec, store: str) -> Self:
        """Those of a spec, on one CPU of this machine."""
        names = tuple(spec.calibrator_names)
        about = spec.evaluation, spec.time_limit, spec.ensemble_seeds
        return cls(store, spec.name, names, *about, timed=spec.cohort == "auto")


@dataclass(frozen=True)
class AssignedTrial:
    """A trial of a study; at ``rungs`` (epochs) it reports its curve."""

    trial: TrialConfig
    study_id: str
    rungs: tuple[int, ...]


@dataclass(frozen=True)
class Assignment:
    """The trials for one worker: one, or several of one shape to be trained together."""

    members: tuple[AssignedTrial, ...]
    terms: Terms

    def __deepcopy__(self, memo: object) -> Self:
        """Tune copies and keeps configurations; this one never changes."""
        return self

    def __str__(self) -> str:
        """The name that Tune gives the trial's directory."""
        first = self.members[0].trial
        return f"{first.dataset_name} {first.method} {first.phase}"
