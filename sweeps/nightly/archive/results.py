"""A night's results as they are stored: one tidy frame, its columns, its file and its digest."""

from __future__ import annotations

import hashlib
import io

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from calibration.metrics import METRICS, Shown
from sweeps.nightly.archive.nights import FORMAT_ENTRY, NIGHTS_FORMAT

RESULTS_FILE = "results.parquet"
CELL = ["sweep", "dataset", "row", "calibrator"]
KEYS = [*CELL, "seed"]
TIMES = ("work_seconds", "reference", "busy")
"""What a training took: seconds of work (CPU time; on a GPU wall-clock time), those of one unit
of reference work done between its epochs, and the ratio of wall-clock to CPU time of that unit:
1 on an otherwise idle machine."""
UNLIKE = (*TIMES, "key", "seconds")
"""Columns that may differ between identical nights: the times (``seconds`` is in nights of
earlier versions), and the name of a trial."""


def judged() -> tuple[str, ...]:
    """The metrics by which a night can be judged: those of the leaderboard; lower is better."""
    names = METRICS.names(Shown.LEADERBOARD)
    return tuple(name for name in names if METRICS[name].direction == "minimize")


def cells(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    """The cells of a frame, in its order."""
    return [tuple(map(str, cell)) for cell in frame[CELL].drop_duplicates().to_numpy()]


def reference_seconds(frame: pd.DataFrame) -> float:
    """The median seconds per unit of reference work over a night; NaN if there was none."""
    return float(frame["reference"].median()) if "reference" in frame else float("nan")


def digest(frame: pd.DataFrame) -> str:
    """A digest of everything that should be bit-identical: every value of every row.

    Floating-point numbers enter exactly, not as printed. The order of rows and of columns
    does not matter.
    """
    columns = sorted(name for name in frame.columns if name not in UNLIKE)
    summed = hashlib.sha256("\n".join(columns).encode())
    for row in frame.sort_values(KEYS)[columns].itertuples(index=False):
        summed.update(repr([_exact(value) for value in row]).encode())
    return summed.hexdigest()


def parquet(frame: pd.DataFrame) -> bytes:
    """A frame as a Parquet file that states the format of the nights."""
    buffer = io.BytesIO()
    table = pa.Table.from_pandas(frame, preserve_index=False)
    named = {**table.schema.metadata, FORMAT_ENTRY: str(NIGHTS_FORMAT).encode()}
    pq.write_table(table.replace_schema_metadata(named), buffer)
    return buffer.getvalue()


def _exact(value: object) -> str:
    return float(value).hex() if isinstance(value, float) else str(value)
