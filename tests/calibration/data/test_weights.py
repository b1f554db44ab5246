"""A column of weights: which values it may hold, and that it changes the data's identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from calibration.data import PROTOCOLS, Dataset, load_dataset

PROTOCOL = PROTOCOLS["honest"]


def frame_of(rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": np.arange(rows, dtype=float),
            "w": 1 + rng.random(rows),
            "part": np.select(
                [np.arange(rows) % 4 == 0, np.arange(rows) % 4 == 1],
                ["test", "validation"],
                "train",
            ),
            "y": np.arange(rows) // 4 % 2,
        }
    )


def loaded(tmp_path: Path, frame: pd.DataFrame, **options: Any) -> Dataset:
    frame.to_csv(tmp_path / "t.csv", index=False)
    given = {"path": tmp_path / "t.csv", "target": "y", "drop": ["part"], **options}
    return load_dataset("table", given)


def test_weights_go_with_their_rows_and_are_no_input(tmp_path: Path) -> None:
    frame = frame_of()
    dataset = loaded(tmp_path, frame, weight="w")
    assert dataset.weighted
    assert [column.name for column in dataset.columns] == ["x"]
    splits = dataset.split(PROTOCOL, 0, held_out=True)
    assert splits.meta_validation is not None
    for part in (splits.train, splits.validation, splits.meta_validation, dataset.test(0)):
        assert part.weights is not None
        expected = frame["w"].to_numpy()[part.inputs[:, 0].long().numpy()]
        np.testing.assert_array_equal(part.weights.numpy(), expected)


def test_weights_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    frame = frame_of()
    plain = loaded(tmp_path, frame.drop(columns="w"))
    weighted = loaded(tmp_path, frame, weight="w")
    other = loaded(tmp_path, frame.assign(w=2 * frame["w"]), weight="w")
    assert not plain.weighted
    assert len({plain.fingerprint, weighted.fingerprint, other.fingerprint}) == 3


def test_arrays_have_weights_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"inputs": rng.normal(size=(60, 2)), "labels": np.arange(60) % 2, "w": np.arange(60)}
    test = {"test_inputs": np.zeros((4, 2)), "test_labels": np.arange(4) % 2}
    np.savez(tmp_path / "a.npz", **arrays, **test, test_w=np.ones(4))
    dataset = load_dataset("arrays", {"path": tmp_path / "a.npz", "weight": "w"})
    assert torch.equal(torch.as_tensor(dataset.test(0).weights), torch.ones(4).double())
    np.savez(tmp_path / "a.npz", **arrays, **test)
    with pytest.raises(ValueError, match=r"a\.npz: no weight array 'test_w'; found"):
        load_dataset("arrays", {"path": tmp_path / "a.npz", "weight": "w"})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1.5, r"t\.csv, weight column 'w': found '-1\.5' in row 7 .*0 or more"),
        (np.inf, r"t\.csv, weight column 'w': found 'inf' in row 7"),
        (np.nan, r"t\.csv, weight column 'w': 1 rows have no weight, first row 7"),
        ("much", r"t\.csv, weight column 'w': found 'much' in row 7"),
    ],
)
def test_what_cannot_weigh_is_refused(tmp_path: Path, value: object, message: str) -> None:
    frame = frame_of()
    frame["w"] = frame["w"].astype(object)
    frame.loc[7, "w"] = value
    with pytest.raises(ValueError, match=message):
        loaded(tmp_path, frame, weight="w")


def test_parts_need_weight(tmp_path: Path) -> None:
    frame = frame_of()
    with pytest.raises(ValueError, match="weight column 'w': all 120 weights are 0"):
        loaded(tmp_path, frame.assign(w=0), weight="w")
    nothing = frame.assign(w=(frame["part"] != "test").astype(float))
    with pytest.raises(ValueError, match="the test part has 30 rows, and all of their weights"):
        loaded(tmp_path, nothing, weight="w", fold="part")
    nothing = frame.assign(w=(frame["part"] != "validation").astype(float))
    with pytest.raises(ValueError, match="the validation part of protocol 'honest' has 30 rows"):
        loaded(tmp_path, nothing, weight="w", fold="part").split(PROTOCOL, 0, held_out=False)
    lost = frame.assign(w=((frame["part"] != "train") | (frame["y"] == 0)).astype(float))
    with pytest.raises(ValueError, match=r"the training part .* has no row of class '1'"):
        loaded(tmp_path, lost, weight="w", fold="part").split(PROTOCOL, 0, held_out=False)


def test_a_column_has_one_role(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="column 'w' cannot be both group and weight"):
        loaded(tmp_path, frame_of(), weight="w", group="w")
    with pytest.raises(ValueError, match="column 'y' cannot be both the target and weight"):
        loaded(tmp_path, frame_of(), weight="y")
