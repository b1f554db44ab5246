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
    """What has come of a confirm trial."""

    record: TrialRecord
    evaluations: Mapping[str, EvaluationRecord]


class Outcomes:
    """The records and evaluations of a spec's trials.

    ``writes``: this process trains the sweep, others only read it; ``retry_failed``: failed
    records are retired where they are first met.
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
        """The trial's record, if nothing of the trial is left to do."""
        record = self.record(trial)
        if trial.key not in self._checked:  # where a trial is first met
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
        # Once, where a sweep is taken up: a file that has changed since is not taken over.
        if first_seen and record.status == "done" and not self.store.intact(record):
            return None
        if record.status != "done" or trial.config.phase == "search":
            return record
        there = self._evaluations(record)
        self._confirmed[trial.key] = Confirmed(record, there)
        # Who only reads takes what other versions have made, and says so.
        if missing_evaluations(
            there, self.spec.calibrator_names, failed=again, outdated=self._writes
        ):
            return None
        return None if self._lacks_ensemble(trial, failed=again) else record

    def begin(self, trial: PlannedTrial) -> None:
        """The trial is given out now: what comes of it is this sweep's own."""
        self._seen.add(trial.key)

    def keep(self, trial: PlannedTrial, record: TrialRecord) -> None:
        """Remember what came of a trial."""
        self._summaries[trial.study_id, trial.key] = record.summary
        if trial.config.phase == "confirm" and trial.key not in self._confirmed:
            self._confirmed[trial.key] = Confirmed(record, self._evaluations(record))

    def forget(self, key: str) -> None:
        """Read a confirm trial anew: it may have been evaluated since."""
        self._confirmed.pop(key, None)

    def summary(self, trial: PlannedTrial) -> TrialSummary | None:
        """What has come of a trial; None while it has not ended."""
        known = self._confirmed.get(trial.key)  # perhaps not evaluated yet
        return known.record.summary if known else self._summaries.get((trial.study_id, trial.key))

    def result(self, trial: PlannedTrial) -> Confirmed | None:
        """The record and the evaluations of a confirm trial; None while it has not ended."""
        return self._confirmed.get(trial.key)

    def read_again(self, trials: Iterable[PlannedTrial]) -> None:
        """Read again what lies with a cell's trials: the last to end evaluates their ensemble."""
        for trial in trials:
            known = self._confirmed.get(trial.key)
            if known is not None:
                found = self._evaluations(known.record)
                self._confirmed[trial.key] = Confirmed(known.record, found)

    def stop(self, trial: PlannedTrial, body: Mapping[str, Any], reason: str) -> None:
        """File a trial as stopped early by its study."""
        outcome = TrialOutcome(**body, status="pruned", reason=reason)
        self.store.file_stopped(self.spec.name, trial.study_id, trial.key, outcome)

    def give_up(self, trial: PlannedTrial, reason: str) -> None:
        """File a trial that will not be begun again as failed, or what it still lacks."""
        record = self.record(trial)
        if record is None:
            self._file_failure(trial, reason)
            return
        tag = self.spec.evaluation.tag
        there = self.store.evaluations(record, tag)
        for name in missing_evaluations(there, self.spec.calibrator_names):
            found = EvaluationRecord(failed=reason, version=current_version(name), made=time.time())
            self.store.write_evaluation(trial.key, tag, name, found)

    def _file_failure(self, trial: PlannedTrial, reason: str) -> None:
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
        """Whether a worker must still evaluate its cell's ensemble; asked of the last seed."""
        seeds = self.spec.ensemble_seeds
        if not self._writes or not seeds or trial.config.seed != seeds[-1]:
            return False
        pool = EnsembleEvaluation(trial.config, seeds, self.store, self.spec.evaluation)
        return bool(pool.missing(self.spec.calibrator_names, failed=failed)[1])
