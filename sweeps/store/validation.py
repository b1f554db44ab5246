"""Validate records and evaluations when read: impossible values count as damage."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sweeps.store.codec import DamagedError
from sweeps.store.layout import trial_file
from sweeps.store.records import EvaluationRecord, TrialRecord

M = TypeVar("M", bound=BaseModel)


def checked_record(key: str, values: dict[str, Any]) -> TrialRecord:
    """A record that belongs to the key and has possible values. Raises ``DamagedError``."""
    if values.get("key") != key:
        raise DamagedError("it belongs to another trial")
    try:
        record = _whole(TrialRecord, values)
        for name in record.files:
            trial_file(name)
    except ValueError as error:
        raise DamagedError(f"no training produces such a record: {_first(error)}") from error
    return record


def checked_evaluation(values: dict[str, Any]) -> EvaluationRecord:
    """An evaluation with possible values. Raises ``DamagedError``."""
    try:
        return _whole(EvaluationRecord, values)
    except ValueError as error:
        raise DamagedError(f"no evaluation produces such values: {_first(error)}") from error


def _whole(model: type[M], values: dict[str, Any]) -> M:
    """All fields are always written, so all must be present. Raises ``ValueError``."""
    if lacking := model.model_fields.keys() - values.keys():
        raise ValueError(f"it has no {min(lacking)}")
    return model.model_validate(values)


def _first(error: ValueError) -> str:
    """The first problem, in a few words."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
