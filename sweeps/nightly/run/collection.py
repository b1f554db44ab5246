"""The results of a night's sweeps: one tidy frame, and what is missing from it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from calibration.text import count
from sweeps.analysis.records import SweepRecords
from sweeps.analysis.results import failed_calibrators, label, results
from sweeps.engine.reference_work import VERSION
from sweeps.nightly.archive.results import CELL, KEYS
from sweeps.nightly.judge.verdict import SweepCount
from sweeps.spec import ORACLE, LoadedSpec
from sweeps.store import Store, TrialRecord
from sweeps.sweep import SPEC, Sweep

MOST_REASONS = 5


class Collected(NamedTuple):
    """The night's results, a count for every sweep, and why the night is not complete."""

    results: pd.DataFrame
    sweeps: list[SweepCount]
    problems: list[str]


def collect(sweeps: Mapping[str, LoadedSpec], store: Store, judged: Sequence[str]) -> Collected:
    """Read the sweeps of a night, by their own names, from its store.

    A cell is complete if it has every seed, and a number in every metric that is ``judged``.
    """
    frames, counts, problems = [], [], []
    for name, dated in sweeps.items():
        if store.read_file(dated.spec.name, SPEC) is None:
            counts.append(SweepCount(name, dated.spec.name, 0, 0, 0, 0.0))
            problems.append(f"{name} was not started")
            continue
        sweep = Sweep(dated, store).records
        frame = _tidy(name, sweep, store)
        seconds = _trained_seconds(sweep)
        counts.append(
            SweepCount(name, dated.spec.name, sweep.total, sweep.done, sweep.failed, seconds)
        )
        problems += _problems(name, sweep, frame)
        problems += _no_numbers(name, frame, judged)
        frames.append(frame)
    there = [frame for frame in frames if len(frame)]
    whole = pd.concat(there, ignore_index=True) if there else pd.DataFrame(columns=KEYS)
    return Collected(whole, counts, problems)


def _tidy(name: str, sweep: SweepRecords, store: Store) -> pd.DataFrame:
    frame = results(sweep)
    if frame.empty:
        return pd.DataFrame(columns=KEYS)
    # The oracle is not a network: it has neither a cost nor anything that could get worse.
    frame = frame[frame["row"] != ORACLE].rename(columns={"train_seconds": "work_seconds"})
    trained = [trial for cell in sweep.cells.values() for trial in cell.confirmed if trial.done]
    logits = {trial.key: _logits(store, trial.done) for trial in trained if trial.done}
    frame = frame.assign(logits=frame["key"].map(logits))
    for column, values in _pace(trial.done for trial in trained if trial.done).items():
        frame[column] = frame["key"].map(values).astype(float)
    frame.insert(0, "sweep", name)
    return frame


def _pace(records: Iterable[TrialRecord]) -> dict[str, dict[str, float]]:
    """``reference`` and ``busy`` of the ``TIMES``, by key: how fast the machine was."""
    found: dict[str, dict[str, float]] = {"reference": {}, "busy": {}}
    for record in records:
        gpu, times = record.gpu > 0, record.reference
        if times is None or not times.repeats or times.version != VERSION:
            continue
        took = times.seconds if gpu else times.cpu_seconds
        found["reference"][record.key] = took / times.repeats
        # A process that waits for a GPU uses no CPU time: the load is unknown.
        found["busy"][record.key] = 1.0 if gpu else times.seconds / times.cpu_seconds
    return found


def _logits(store: Store, record: TrialRecord) -> str:
    """A digest of the trial's predictions, independent of how they are stored."""
    summed = hashlib.sha256()
    for name, tensor in sorted(store.predictions(record).items()):
        array = tensor.numpy()
        summed.update(f"{name} {array.dtype} {array.shape}\n".encode())
        summed.update(array.tobytes())
    return summed.hexdigest()[:16]


def _trained_seconds(sweep: SweepRecords) -> float:
    return sum(trial.seconds for cell in sweep.cells.values() for trial in cell.summaries)


def _problems(name: str, sweep: SweepRecords, frame: pd.DataFrame) -> Iterator[str]:
    """Why a sweep's results fall short of its spec."""
    if sweep.failed:
        yield f"{name}: {sweep.failed} of {count(sweep.total, 'trial')} failed"
        for reason, times in sweep.reasons.most_common(MOST_REASONS):
            yield f"{name}: {times} failed: {' '.join(reason.split())[:300]}"
    for calibrator, reason in failed_calibrators(sweep).items():
        yield f"{name}: calibrator {calibrator} failed: {' '.join(reason.split())[:300]}"
    if sweep.done < sweep.total:
        yield f"{name}: {sweep.done} of {count(sweep.total, 'trial')} done"
    measured = Counter(zip(frame["dataset"], frame["row"], frame["calibrator"], strict=True))
    for dataset, row in sweep.cells:
        for calibrator in sweep.spec.calibrator_names:
            there = measured[dataset, row, calibrator]
            if there < sweep.spec.confirm_seeds:
                cell = f"{label(row, calibrator)} on {dataset}"
                yield f"{name}: {cell} has {there} of {count(sweep.spec.confirm_seeds, 'seed')}"


def _no_numbers(name: str, frame: pd.DataFrame, judged: Sequence[str]) -> Iterator[str]:
    """Cells whose values exist but are NaN; an infinite value counts as a value."""
    for cell, rows in frame.groupby(CELL[1:]):
        assert isinstance(cell, tuple)
        dataset, row, calibrator = map(str, cell)
        for metric in judged:
            absent = int(rows[metric].isna().sum()) if metric in rows else len(rows)
            if absent:
                where = f"{label(row, calibrator)} on {dataset}"
                of = count(len(rows), "seed")
                yield f"{name}: {where}: {metric} is not a number on {absent} of {of}"
