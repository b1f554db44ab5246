"""Outcomes and evaluations of trials that were never trained: whole, and as small as can be."""

from __future__ import annotations

from typing import Any

from calibration.evaluation import evaluation_version
from sweeps.store import EvaluationRecord, Store, TrialOutcome, TrialRecord


def outcome(status: str = "done", **changes: Any) -> TrialOutcome:
    """A trial that came to something, or failed."""
    about: dict[str, Any] = {"config": {}, "environment": {}, "status": status}
    about |= {"reason": "a bug"} if status == "failed" else {"validation": {"nll": 0.5}}
    return TrialOutcome(**about | changes)


def evaluation(calibrator: str = "temperature", **changes: Any) -> EvaluationRecord:
    """An evaluation of this version."""
    about: dict[str, Any] = {"version": evaluation_version(calibrator), "made": 1.0}
    if "failed" not in changes:
        about |= {"test": {"ece": 0.25}, "floor": (0.1, 0.2)}
    return EvaluationRecord(**about | changes)


def changed(record: TrialOutcome, **changes: Any) -> TrialOutcome:
    """The outcome of a record, as another trial might have had it."""
    kept = {name: getattr(record, name) for name in TrialOutcome.model_fields}
    return TrialOutcome(**kept | changes)


def recorded(store: Store, key: str) -> TrialRecord:
    """The record of a trial that has one."""
    record = store.record(key)
    assert record is not None
    return record
