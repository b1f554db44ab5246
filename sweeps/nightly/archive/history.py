"""The results of all complete nights in one file, which outlives the nights themselves."""

from __future__ import annotations

import io

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from sweeps.nightly.archive.night import (
    FORMAT_ENTRY,
    HISTORY_FILE,
    NIGHTS_FORMAT,
    Nights,
    NightState,
)
from sweeps.nightly.judge.rules import judged
from sweeps.nightly.run.results import KEYS
from sweeps.store.files import StoreError, write_atomically

RESULTS = "results.parquet"


def read_history(nights: Nights) -> pd.DataFrame:
    """One row per night, cell and seed, in the order of nights.

    ``reference`` has the seconds that the reference work took in that night. A file that is
    missing or damaged is made anew from the nights that are still there. Raises ``StoreError``
    for one that is there and cannot be read: what it knows of deleted nights must not be lost.
    """
    path = nights.directory / HISTORY_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return _rebuilt(nights)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}; make it readable") from error
    try:
        return pd.read_parquet(io.BytesIO(content))[_columns()]
    except (OSError, ValueError, KeyError):  # pyarrow's own errors are among them
        return _rebuilt(nights)


def others(history: pd.DataFrame, night: str) -> list[str]:
    """The complete nights besides one, in order."""
    return sorted(str(each) for each in history["night"].unique() if each != night)


def keep(nights: Nights, state: NightState, results: pd.DataFrame) -> pd.DataFrame:
    """Take a complete night into the history, in place of what it said before."""
    before = read_history(nights)
    others = before[before["night"] != state.night]
    return _written(nights, [others, _rows(state, results)])


def forget(nights: Nights, night: str) -> pd.DataFrame:
    """The history without a night that turned out not to be complete."""
    before = read_history(nights)
    others = before[before["night"] != night]
    return before if len(others) == len(before) else _written(nights, [others])


def comparable(history: pd.DataFrame, since: str, reference: float) -> pd.DataFrame:
    """The nights since the baseline's, their seconds as the machine of the baseline had them.

    What came before was judged against another baseline: the step to this one was accepted,
    and is no drift.
    """
    recent = history[history["night"] >= since]
    seconds = recent["seconds"] / recent["reference"] * reference
    return recent.assign(seconds=seconds)[["night", *KEYS, *judged(), "seconds"]]


def parquet(frame: pd.DataFrame) -> bytes:
    """A frame as a Parquet file that names the format of the nights."""
    buffer = io.BytesIO()
    table = pa.Table.from_pandas(frame, preserve_index=False)
    named = {**table.schema.metadata, FORMAT_ENTRY: str(NIGHTS_FORMAT).encode()}
    pq.write_table(table.replace_schema_metadata(named), buffer)
    return buffer.getvalue()


def _columns() -> list[str]:
    return ["night", *KEYS, *judged(), "seconds", "reference"]


def _rebuilt(nights: Nights) -> pd.DataFrame:
    found = []
    for night in nights.dates():
        state = nights.state(night)
        if state is not None and state.status == "complete":
            try:
                results = pd.read_parquet(nights.place(night) / RESULTS)
            except (OSError, ValueError):
                continue
            found.append(_rows(state, results))
    return _written(nights, found) if found else pd.DataFrame(columns=_columns())


def _rows(state: NightState, results: pd.DataFrame) -> pd.DataFrame:
    rows = results.reindex(columns=[*KEYS, *judged(), "seconds"])
    return rows.assign(night=state.night, reference=state.reference_seconds)[_columns()]


def _written(nights: Nights, parts: list[pd.DataFrame]) -> pd.DataFrame:
    there = [part for part in parts if len(part)]
    whole = pd.concat(there) if there else pd.DataFrame(columns=_columns())
    whole = whole.sort_values(["night", *KEYS], ignore_index=True)
    write_atomically(nights.directory / HISTORY_FILE, parquet(whole))
    return whole
