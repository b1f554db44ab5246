"""The outcomes of a sweep's trials, as the store has them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from sweeps.engine.cell import PlannedTrial
from sweeps.engine.ensembles import EnsembleEvaluation
from sweeps.engine.environment import environment
from sweeps.engine.evaluation import current_version, missing_evaluations
from sweeps.spec.schema import Spec
from sweeps.store import EvaluationRecord, Store, TrialOutcome, TrialRecord, TrialSummary


class Confirmed(NamedTuple):
    """The outcome of a confirm trial."""

    record: TrialRecord
    evaluations: Mapping[str, EvaluationRecord]


class Outcomes:
    """The records and evaluations of a spec's trials.

    ``writes``: this process trains the sweep, others only read it; ``retry_failed``: failed
    records are retired when they are first read.
    """

    def __init__(self, spec: Spec, store: Store, *, writes: bool, retry_failed: bool) -> None:
        self.spec = spec
        self.store = store
        self._writes, self._retry_failed = writes, retry_failed
        self._summaries: dict[tuple[str, str], TrialSummary] = {}
        self._confirmed: dict[str, Confirmed] = {}
        self._seen: set[str] = set()
        self._checked: set[str] = set()

    def record(self, trial: PlannedTrial) -> TrialRecord | None:
        """How the trial ended for its study."""
        if self.spec.scheduler.name == "none":  # nothing is stopped: one request less
            return self.store.record(trial.key)
        return self.store.outcome(self.spec.name, trial.study_id, trial.key)

    def ended(self, trial: PlannedTrial) -> TrialRecord | None:
        """The trial's record, if nothing is left to do for the trial."""
        record = self.record(trial)
        if trial.key not in self._checked:  # the first time that it is asked for
            self._checked.add(trial.key)
            if self._writes:
                self.store.clear_trial(trial.key, record)
        if record is None:
            return None
        first_seen = self._writes and trial.key not in self._seen
        self._seen.add(trial.key)
        again = first_seen and self._retry_failed
        if again and record.status == "failed":
            self.store.retire(record)
            return None
        # Once, when a sweep is resumed: a record whose files have changed since is not reused.
        if first_seen and record.status == "done" and not self.store.intact(record):
            return None
        if record.status != "done" or trial.config.phase == "search":
            return record
        there = self._evaluations(record)
        self._confirmed[trial.key] = Confirmed(record, there)
        # A reader accepts what other versions have made, and reports it as outdated.
        if missing_evaluations(
            there, self.spec.calibrator_names, failed=again, outdated=self._writes
        ):
            return None
        return None if self._lacks_ensemble(trial, failed=again) else record

    def begin(self, trial: PlannedTrial) -> None:
        """Note that the trial is assigned to a worker now: its outcome is this sweep's own."""
        self._seen.add(trial.key)

    def keep(self, trial: PlannedTrial, record: TrialRecord) -> None:
        """Remember the outcome of a trial."""
        self._summaries[trial.study_id, trial.key] = record.summary
        if trial.config.phase == "confirm" and trial.key not in self._confirmed:
            self._confirmed[trial.key] = Confirmed(record, self._evaluations(record))

    def forget(self, key: str) -> None:
        """Read a confirm trial again next time: it may have been evaluated since."""
        self._confirmed.pop(key, None)

    def summary(self, trial: PlannedTrial) -> TrialSummary | None:
        """The summary of a trial; None while it has not ended."""
        known = self._confirmed.get(trial.key)  # perhaps not evaluated yet
        return known.record.summary if known else self._summaries.get((trial.study_id, trial.key))

    def result(self, trial: PlannedTrial) -> Confirmed | None:
        """The record and the evaluations of a confirm trial; None while it has not ended."""
        return self._confirmed.get(trial.key)

    def read_again(self, trials: Iterable[PlannedTrial]) -> None:
        """Read a cell's evaluations again: the last trial to end has evaluated the ensemble."""
        for trial in trials:
            known = self._confirmed.get(trial.key)
            if known is not None:
                found = self._evaluations(known.record)
                self._confirmed[trial.key] = Confirmed(known.record, found)

    def stop(self, trial: PlannedTrial, body: Mapping[str, Any], reason: str) -> None:
        """Record a trial as stopped early by its study."""
        outcome = TrialOutcome(**body, status="pruned", reason=reason)
        self.store.file_stopped(self.spec.name, trial.study_id, trial.key, outcome)

    def give_up(self, trial: PlannedTrial, reason: str) -> None:
        """Record a trial that is not started again as failed, or the evaluations it lacks."""
        record = self.record(trial)
        if record is None:
            self._record_failure(trial, reason)
            return
        tag = self.spec.evaluation.tag
        there = self.store.evaluations(record, tag)
        for name in missing_evaluations(there, self.spec.calibrator_names):
            found = EvaluationRecord(failed=reason, version=current_version(name), made=time.time())
            self.store.write_evaluation(trial.key, tag, name, found)

    def _record_failure(self, trial: PlannedTrial, reason: str) -> None:
        about: dict[str, Any] = {
            "config": trial.config.model_dump(mode="json"),
            "environment": environment(),
            "status": "failed",
            "reason": reason,
        }
        live = self.store.live(trial.key) or {}
        reached = {n: live[n] for n in ("lineage", "times", "curve") if n in live}
        try:
            outcome = TrialOutcome(**about, **reached)
        except ValidationError:  # a live curve that somebody edited
            outcome = TrialOutcome(**about)
        self.store.file_record(trial.key, outcome)

    def _evaluations(self, record: TrialRecord) -> dict[str, EvaluationRecord]:
        if record.status != "done":
            return {}
        return self.store.evaluations(record, self.spec.evaluation.tag)

    def _lacks_ensemble(self, trial: PlannedTrial, *, failed: bool) -> bool:
        """Whether a worker must still evaluate the cell's ensemble; only the last seed asks."""
        seeds = self.spec.ensemble_seeds
        if not self._writes or not seeds or trial.config.seed != seeds[-1]:
            return False
        pool = EnsembleEvaluation(trial.config, seeds, self.store, self.spec.evaluation)
        return bool(pool.missing(self.spec.calibrator_names, failed=failed)[1])
