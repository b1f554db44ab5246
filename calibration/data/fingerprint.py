"""Content-based identity of data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np
from torch import Tensor

_ROWS = 1024


def fingerprint(description: object, tensors: Iterable[Tensor]) -> str:
    """SHA-256 (hex) of a JSON-serialisable description and of tensors' types, shapes and bytes."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for tensor in tensors:
        # In pieces: rows may be in a file that is larger than memory.
        for place, piece in enumerate(tensor.split(_ROWS) if tensor.dim() else (tensor,)):
            array = np.ascontiguousarray(piece.numpy())
            if not place:
                digest.update(f"{array.dtype.str}{tuple(tensor.shape)}".encode())
            digest.update(array.data)
    return digest.hexdigest()
