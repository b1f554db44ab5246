"""The digest of a night's results: sensitive to the last bit, and to nothing else."""

from __future__ import annotations

import io
import math

import numpy as np
import pandas as pd
import pytest

from sweeps.nightly.archive.results import digest, parquet
from sweeps.nightly.judge.assessment import differing


def results() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        {
            "sweep": "s",
            "dataset": d,
            "row": m,
            "calibrator": p,
            "seed": seed,
            "key": f"{d}{seed}",
        }
        for d in ("a", "b")
        for m in ("x", "y")
        for p in ("identity", "temperature")
        for seed in (1, 2, 3)
    ]
    frame = pd.DataFrame(rows)
    for name in ("ece", "nll", "error", "work_seconds"):
        frame[name] = rng.random(len(frame))
    frame.loc[3, "nll"] = math.nan
    return frame.assign(converged=True, hyperparameters='{"lr": 0.1}', logits="0f")


def test_one_bit_of_one_number_is_another_digest() -> None:
    frame, other = results(), results()
    other.loc[7, "ece"] = np.nextafter(other.loc[7, "ece"], 1.0)
    assert digest(other) != digest(frame)
    assert differing(other, frame) == ["ece"]


@pytest.mark.parametrize("column", ["hyperparameters", "logits", "seed", "row"])
def test_any_other_value_is_another_digest(column: str) -> None:
    other = results()
    other.loc[5, column] = 9 if column == "seed" else "other"
    assert digest(other) != digest(results())


def test_order_clock_and_file_do_not_matter() -> None:
    frame = results()
    shuffled = frame.sample(frac=1, random_state=1)[list(frame.columns[::-1])]
    assert digest(shuffled) == digest(frame)
    assert digest(frame.assign(work_seconds=9.0, key="another")) == digest(frame)
    before = frame.assign(seconds=9.0)  # as earlier versions wrote it
    assert digest(before) == digest(frame)
    assert differing(frame, before) == []
    assert digest(pd.read_parquet(io.BytesIO(parquet(frame)))) == digest(frame)


def test_a_row_less_is_another_digest() -> None:
    frame = results()
    assert digest(frame.iloc[1:]) != digest(frame)
    assert digest(frame.drop(columns="nll")) != digest(frame)
