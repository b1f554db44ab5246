"""The results of all complete nights in one file, which outlives the nights' directories."""

from __future__ import annotations

import io

import pandas as pd

from sweeps.nightly.archive.nights import HISTORY_FILE, Nights, NightState
from sweeps.nightly.archive.results import KEYS, RESULTS_FILE, TIMES, judged, parquet
from sweeps.store.files import StoreError, write_atomically


def read_history(nights: Nights) -> pd.DataFrame:
    """One row per night, cell and seed, in the order of nights.

    ``git`` is the revision of that night. A missing or damaged file is rebuilt from the nights
    that still exist. Raises ``StoreError`` if the file exists and cannot be read: its results
    of deleted nights must not be lost.
    """
    path = nights.directory / HISTORY_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return _rebuilt(nights)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}; make it readable") from error
    try:
        found = pd.read_parquet(io.BytesIO(content))
        if not {"night", *KEYS} <= set(found.columns):
            return _rebuilt(nights)
        return _typed(found)  # columns that earlier versions did not have are unknown
    except (OSError, ValueError):  # pyarrow's own errors are among them
        return _rebuilt(nights)


def others(history: pd.DataFrame, night: str) -> list[str]:
    """The other complete nights, in order."""
    return sorted(str(each) for each in history["night"].unique() if each != night)


def keep(nights: Nights, state: NightState, results: pd.DataFrame) -> pd.DataFrame:
    """Add a complete night to the history, replacing its previous entry."""
    before = read_history(nights)
    others = before[before["night"] != state.night]
    return _written(nights, [others, _rows(state, results)])


def forget(nights: Nights, night: str) -> pd.DataFrame:
    """Remove a night that turned out not to be complete from the history."""
    before = read_history(nights)
    others = before[before["night"] != night]
    return before if len(others) == len(before) else _written(nights, [others])


def comparable(history: pd.DataFrame, since: str, reference: float) -> pd.DataFrame:
    """The nights since the baseline's, their ``cost`` in seconds at the baseline's pace.

    Earlier nights were judged against another baseline: the step to this one was accepted and
    is not drift. ``reference`` is the baseline night's seconds per unit of reference work.
    """
    recent = history[history["night"] >= since]
    cost = recent["work_seconds"] / recent["reference"] * reference
    return recent.assign(cost=cost)[["night", "git", *KEYS, *judged(), "cost"]]


def _columns() -> list[str]:
    return ["night", "git", *KEYS, *judged(), *TIMES]


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    types = dict.fromkeys((*judged(), *TIMES), "float64")
    return frame.reindex(columns=_columns()).fillna({"git": ""}).astype(types)


def _rebuilt(nights: Nights) -> pd.DataFrame:
    found = []
    for night in nights.dates():
        state = nights.state(night)
        if state is not None and state.status == "complete":
            try:
                results = pd.read_parquet(nights.place(night) / RESULTS_FILE)
            except (OSError, ValueError):
                continue
            found.append(_rows(state, results))
    return _written(nights, found) if found else pd.DataFrame(columns=_columns())


def _rows(state: NightState, results: pd.DataFrame) -> pd.DataFrame:
    revision = state.identity.get("git", "")
    return _typed(results.assign(night=state.night, git=revision))


def _written(nights: Nights, parts: list[pd.DataFrame]) -> pd.DataFrame:
    there = [part for part in parts if len(part)]
    whole = pd.concat(there) if there else pd.DataFrame(columns=_columns())
    whole = whole.sort_values(["night", *KEYS], ignore_index=True)
    write_atomically(nights.directory / HISTORY_FILE, parquet(whole))
    return whole
