"""A trial's stored predictions as a Parquet table, for analysis elsewhere."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from torch import Tensor

PARTS = ("validation", "test")


def predictions_parquet(arrays: Mapping[str, Tensor]) -> bytes:
    """One row per example of ``{part}_logits``, ``{part}_labels`` and ``{part}_posterior``.

    Columns: ``part`` (validation or test), ``label``, ``predicted`` (the largest logit),
    ``confidence`` (its softmax probability, before any calibrator), ``logits`` and
    ``posterior`` (lists of one number per class; the latter null if it is unknown); if rows
    have weights, ``weight``.
    """
    tables = [_part(part, arrays) for part in PARTS if f"{part}_logits" in arrays]
    buffer = io.BytesIO()
    pq.write_table(pa.concat_tables(tables), buffer, compression="zstd")
    return buffer.getvalue()


def _part(part: str, arrays: Mapping[str, Tensor]) -> pa.Table:
    logits, labels = arrays[f"{part}_logits"], arrays[f"{part}_labels"]
    confidence, predicted = logits.double().softmax(-1).max(-1)
    known = arrays.get(f"{part}_posterior")
    rows = len(labels)
    weights = arrays.get(f"{part}_weights")
    more = {} if weights is None else {"weight": pa.array(weights.double().numpy())}
    return pa.table(
        {
            "part": pa.array([part] * rows, pa.string()),
            "label": pa.array(labels.int().numpy()),
            "predicted": pa.array(predicted.int().numpy()),
            "confidence": pa.array(confidence.float().numpy()),
            "logits": _lists(logits),
            "posterior": pa.nulls(rows, pa.list_(pa.float32())) if known is None else _lists(known),
            **more,
        }
    )


def _lists(values: Tensor) -> pa.ListArray:
    flat = pa.array(values.float().reshape(-1).numpy())
    offsets = pa.array(range(0, values.numel() + 1, values.shape[1]), pa.int32())
    return pa.ListArray.from_arrays(offsets, flat)
