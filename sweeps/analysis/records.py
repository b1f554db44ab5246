"""A sweep's records as one value, for analysis, tracking and report.

Row scores are too large to hold for every trial: they are read on demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibration.hyperparameters import Value
from calibration.metrics.row_scores import RowScores
from sweeps.analysis.row_evidence import Name, RowEvidence
from sweeps.engine.identity import TrialConfig
from sweeps.spec import LoadedSpec
from sweeps.spec.schema import Spec
from sweeps.store import EvaluationRecord, TrialRecord, TrialSummary


@dataclass(frozen=True)
class SearchTrial:
    """A search trial: ``values`` of its objectives, ``searched`` its searched hyperparameters.

    ``on_front``: no other trial of its cell beats it in all objectives; ``best``: its settings
    were chosen to be confirmed.
    """

    number: int
    key: str
    searched: Mapping[str, Value]
    values: tuple[float, ...]
    on_front: bool
    best: bool
    summary: TrialSummary | None


@dataclass(frozen=True)
class ConfirmedTrial:
    """A confirm trial; ``record`` is None while it has not been trained."""

    key: str
    config: TrialConfig
    record: TrialRecord | None
    evaluations: Mapping[str, EvaluationRecord]
    outdated: frozenset[str] = frozenset()
    """The calibrators whose evaluation was made by another version."""

    @property
    def summary(self) -> TrialSummary | None:
        """The summary of its record."""
        return None if self.record is None else self.record.summary

    @property
    def done(self) -> TrialRecord | None:
        """Its record, unless the training failed."""
        return self.record if self.record is not None and self.record.status == "done" else None


@dataclass(frozen=True)
class CellRecords:
    """One row on one dataset.

    ``chosen`` are the hyperparameters to confirm, None while the search is running or if all of
    it failed; ``importance`` is the stored importance of each hyperparameter.
    """

    dataset: str
    row: str
    chosen: Mapping[str, Value] | None
    search: Sequence[SearchTrial]
    confirmed: Sequence[ConfirmedTrial]
    importance: Mapping[str, Any] | None

    @property
    def summaries(self) -> list[TrialSummary]:
        """The summaries of all its trials that have ended."""
        trials = [*(t.summary for t in self.search), *(t.summary for t in self.confirmed)]
        return [trial for trial in trials if trial is not None]


RowReader = Callable[[ConfirmedTrial, str], RowScores | None]
"""Returns the scores of each test row in a trial under a calibrator, if recorded."""


@dataclass(frozen=True)
class SweepRecords:
    """A sweep's spec, and all of its records so far.

    ``look`` counts the looks at its results, each with more seeds than the one before.
    ``row_scores`` reads the scores that are too large to keep for every trial and calibrator.
    """

    loaded: LoadedSpec
    cells: Mapping[tuple[str, str], CellRecords]
    total: int
    done: int
    failed: int
    finished: bool
    reasons: Counter[str] = field(default_factory=Counter)
    look: int = 1
    row_scores: RowReader = field(default=lambda trial, calibrator: None, repr=False)

    @property
    def fixed_test_parts(self) -> list[str]:
        """The datasets whose test rows are the same for every seed."""
        datasets = self.loaded.datasets.items()
        return [name for name, dataset in datasets if not dataset.independent_draws]

    def row_evidence(self, dataset: str) -> RowEvidence:
        """The scores of single test rows of a dataset, read on demand."""

        def read(name: Name, seed: int) -> RowScores | None:
            row, calibrator = name
            trials = self.confirmed(dataset, row)
            trial = next((t for t in trials if t.config.seed == seed), None)
            return None if trial is None else self.row_scores(trial, calibrator)

        return RowEvidence(read, self.spec.bins)

    @property
    def spec(self) -> Spec:
        """The sweep's spec."""
        return self.loaded.spec

    def confirmed(self, dataset: str, row: str) -> Sequence[ConfirmedTrial]:
        """The confirm trials of a cell, by seed; empty while its search is running."""
        return self.cells[dataset, row].confirmed
