"""Content-based identity of data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np
from torch import Tensor


def fingerprint(description: object, tensors: Iterable[Tensor]) -> str:
    """Return a SHA-256 (hex) of a JSON-able description and of tensors' types, shapes and bytes."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for tensor in tensors:
        array = np.ascontiguousarray(tensor.numpy())
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()
