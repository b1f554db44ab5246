"""The store: records, checkpoints and a sweep's own files, on a path or a URI."""

from sweeps.store.codec import encode_arrays, encode_tensors
from sweeps.store.files import StoreError, write_atomically
from sweeps.store.layout import RESERVED_NAMES, file_name
from sweeps.store.lock import LockedError
from sweeps.store.store import Store

__all__ = [
    "RESERVED_NAMES",
    "LockedError",
    "Store",
    "StoreError",
    "encode_arrays",
    "encode_tensors",
    "file_name",
    "write_atomically",
]
