"""Records and evaluations as read: what none could have left is damaged, whoever edited it."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sweeps.store.codec import DamagedError
from sweeps.store.layout import trial_file
from sweeps.store.records import EvaluationRecord, TrialRecord

M = TypeVar("M", bound=BaseModel)


def checked_record(key: str, values: dict[str, Any]) -> TrialRecord:
    """A record that belongs to the key and can be true. Raises ``DamagedError``."""
    if values.get("key") != key:
        raise DamagedError("it is another trial's")
    try:
        record = _whole(TrialRecord, values)
        for name in record.files:
            trial_file(name)
    except ValueError as error:
        raise DamagedError(f"no training leaves such a record: {_first(error)}") from error
    return record


def checked_evaluation(values: dict[str, Any]) -> EvaluationRecord:
    """Raises ``DamagedError``."""
    try:
        return _whole(EvaluationRecord, values)
    except ValueError as error:
        raise DamagedError(f"no evaluation comes to this: {_first(error)}") from error


def _whole(model: type[M], values: dict[str, Any]) -> M:
    """All fields are written, so all must be there. Raises ``ValueError``."""
    if lacking := model.model_fields.keys() - values.keys():
        raise ValueError(f"it has no {min(lacking)}")
    return model.model_validate(values)


def _first(error: ValueError) -> str:
    """What is wrong first, in a few words."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
