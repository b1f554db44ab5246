"""Encoding and decoding of the store's values: sealed JSON, checkpoints, arrays, tensors.

Whatever is read may be damaged or hostile: bytes that are not what was written raise
``DamagedError``, and nothing that could run code is unpickled (``weights_only``).
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

STORE_FORMAT = 4
"""Format of a store; increase it with any change that another version would misread."""
# Up to format 2 checkpoints had their own numbering and did not state the store's format.
CHECKPOINT_HEADER = re.compile(rb"calsweep checkpoint (?:1 )?sha256:([0-9a-f]{64})\n")
CHECKPOINT_LINE = re.compile(rb"format (\d{1,9})\n")
# The checksum comes first and in a fixed form, so that it can be verified on the raw bytes.
SEAL = re.compile(rb'\{"checksum": "sha256:([0-9a-f]{64})",\n')
SEAL_LENGTH = len(b'{"checksum": "sha256:",\n') + 64


class DamagedError(Exception):
    """Stored bytes are not what was written; the message says why."""


class OtherFormatError(Exception):
    """Stored bytes are intact, but in the format of another version of calsweep."""

    def __init__(self, found: int) -> None:
        super().__init__(f"format {found}")
        self.found = found


def digest(content: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def seal(values: Mapping[str, Any]) -> bytes:
    """Plain JSON whose first entry is a checksum of everything after it, one line per entry.

    Numbers that are infinite or NaN are written as strings. ``checksum`` and ``format`` are
    the seal's own: values by these names raise ``ValueError``.
    """
    if taken := {"checksum", "format"} & values.keys():
        raise ValueError(f"found the entry {sorted(taken)[0]!r}, which the store adds itself")
    entries = sorted({**values, "format": STORE_FORMAT}.items())
    body = (",\n".join(f"{json.dumps(name)}: {_dump(v)}" for name, v in entries) + "}\n").encode()
    return b'{"checksum": "sha256:%s",\n' % digest(body).encode() + body


def unseal(content: bytes) -> dict[str, Any]:
    """The values given to ``seal``, with ``format`` and ``checksum``.

    Raises ``DamagedError`` and ``OtherFormatError``. Files of format 1 had no checksum and did
    not have to state a format: JSON that was never sealed counts as format 1.
    """
    found = SEAL.match(content)
    if found and digest(content[SEAL_LENGTH:]).encode() != found[1]:
        raise DamagedError("its checksum is wrong")
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedError("it is not valid JSON") from error
    if not isinstance(values, dict):
        raise DamagedError("it is not a JSON object")
    version = values.get("format", 1)
    if not isinstance(version, int) or (version == STORE_FORMAT and not found):
        raise DamagedError("its checksum is missing")
    if version != STORE_FORMAT:
        raise OtherFormatError(version)
    return values


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def encode_checkpoint(values: dict[str, Any]) -> bytes:
    """A line with a checksum of everything after it, one with the format, ``encode_tensors``."""
    content = b"format %d\n" % STORE_FORMAT + encode_tensors(values)
    return b"calsweep checkpoint sha256:%s\n" % digest(content).encode() + content


def decode_checkpoint(content: bytes) -> dict[str, Any]:
    """The inverse of ``encode_checkpoint``. Raises ``DamagedError`` and ``OtherFormatError``."""
    header = CHECKPOINT_HEADER.match(content)
    if header is None or digest(content[header.end() :]).encode() != header[1]:
        raise DamagedError("its checksum is wrong")
    line = CHECKPOINT_LINE.match(content, header.end())
    version = 2 if line is None else int(line[1])
    if line is None or version != STORE_FORMAT:
        raise OtherFormatError(version)
    return decode_tensors(content[line.end() :])


def encode_arrays(arrays: Mapping[str, torch.Tensor]) -> bytes:
    """Tensors as a compressed NPZ file, which any tool can read."""
    buffer = io.BytesIO()
    plain: dict[str, Any] = {name: each.detach().cpu().numpy() for name, each in arrays.items()}
    np.savez_compressed(buffer, **plain)  # no allow_pickle: NumPy before 2.2 stores it as an array
    return buffer.getvalue()


def decode_arrays(content: bytes) -> dict[str, torch.Tensor]:
    """The inverse of ``encode_arrays``. Raises ``DamagedError``."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except Exception as error:  # zip, zlib and numpy each raise their own for broken bytes
        raise DamagedError(f"its arrays cannot be read ({error})") from error


def encode_tensors(values: dict[str, Any]) -> bytes:
    """Tensors and plain values as a torch file."""
    buffer = io.BytesIO()
    torch.save(values, buffer)
    return buffer.getvalue()


def decode_tensors(content: bytes) -> dict[str, Any]:
    """The inverse of ``encode_tensors``. Raises ``DamagedError``."""
    try:
        values = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch documents no single error for broken or forbidden bytes
        raise DamagedError("its tensors cannot be read") from error
    if not isinstance(values, dict):
        raise DamagedError("its tensors are not a dictionary")
    return values
