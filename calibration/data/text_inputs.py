"""Texts as raw inputs: their UTF-8 bytes, padded with zeros.

A text is thus part of a dataset's content like any number, whatever tokenizer reads it later.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

MOST_BYTES = 8192
"""Limit per text; encoders read at most 512 tokens by default, which are fewer bytes."""


def encode_texts(texts: pd.Series[Any]) -> Tensor:
    """The texts' bytes (N, longest); a missing text is empty, and too long a text truncated."""
    encoded = [_bytes(text) for text in texts.astype(object).where(texts.notna(), "")]
    longest = max(map(len, encoded), default=1) or 1
    rows = np.zeros((len(encoded), longest), dtype=np.uint8)
    for row, content in zip(rows, encoded, strict=True):
        row[: len(content)] = np.frombuffer(content, dtype=np.uint8)
    return torch.from_numpy(rows)


def longest_text(texts: pd.Series[Any]) -> int:
    """The number of columns that ``encode_texts`` would give."""
    return max((len(_bytes(text)) for text in texts.dropna()), default=1) or 1


def decode_texts(inputs: Tensor) -> list[str]:
    """The inverse of ``encode_texts``."""
    rows = inputs.numpy()
    return [bytes(row).rstrip(b"\0").decode("utf-8", "ignore") for row in rows]


def padded(inputs: Tensor, length: int) -> Tensor:
    """The same texts in rows of ``length``."""
    return torch.nn.functional.pad(inputs, (0, length - inputs.shape[1]))


def _bytes(text: object) -> bytes:
    return str(text).replace("\0", " ").encode("utf-8", "replace")[:MOST_BYTES]
