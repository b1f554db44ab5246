"""The store: records, checkpoints and a sweep's own files, on a path or a URI."""

from sweeps.store.codec import encode_arrays, encode_tensors
from sweeps.store.files import StoreError
from sweeps.store.layout import RESERVED_NAMES, file_name
from sweeps.store.lock import LockedError
from sweeps.store.records import (
    EvaluationRecord,
    ReferenceTimes,
    TrialOutcome,
    TrialRecord,
    TrialSummary,
)
from sweeps.store.store import Store

__all__ = [
    "RESERVED_NAMES",
    "EvaluationRecord",
    "LockedError",
    "ReferenceTimes",
    "Store",
    "StoreError",
    "TrialOutcome",
    "TrialRecord",
    "TrialSummary",
    "encode_arrays",
    "encode_tensors",
    "file_name",
]
