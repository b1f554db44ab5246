from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from calibration.data import FixedDataset, Part, Protocol
from calibration.data.columns import (
    MISSING_CODE,
    UNKNOWN_CODE,
    Column,
    encode_columns,
    infer_columns,
)
from calibration.data.transforms import Standardise, TableTransform


def mixed_frame(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": rng.normal(5, 3, rows),
            "b": rng.integers(0, 1000, rows).astype(float),
            "colour": rng.choice(["red", "grün", "青"], rows),
            "flag": rng.random(rows) < 0.3,
        }
    )
    frame.loc[rng.random(rows) < 0.2, "b"] = np.nan
    return frame


def test_table_transform_matches_sklearn() -> None:
    train, other = mixed_frame(301, 0), mixed_frame(50, 1)
    other.loc[3, "colour"] = "unseen"
    other.loc[4, "a"] = np.nan  # missing here only: imputed, but no indicator
    columns = infer_columns(train, train.columns, (), "test")
    fitted = TableTransform.fit(encode_columns(train, columns, "test"), columns)
    found = fitted(encode_columns(other, columns, "test"))

    numbers = ["a", "b", "flag"]
    indicator = SimpleImputer(strategy="median", add_indicator=True)
    reference = ColumnTransformer(
        [
            ("n", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
            ("c", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["colour"]),
        ]
    )
    train, other = train.astype({"flag": float}), other.astype({"flag": float})
    reference.fit(train)
    expected = reference.transform(other)
    gaps = indicator.fit(train[numbers]).transform(other[numbers])[:, 3:]
    expected = np.hstack([expected[:, :3], gaps, expected[:, 3:]])
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert found[3, 4:].tolist() == [0, 0, 0]


def test_standardise_matches_numpy_per_feature_and_per_channel() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(1e6, 2.0, (1000, 3))
    found = Standardise.fit(torch.from_numpy(table))
    np.testing.assert_allclose(found.mean, table.mean(0), rtol=1e-13)
    np.testing.assert_allclose(found.scale, table.std(0), rtol=1e-9)
    images = rng.integers(256, size=(700, 3, 5, 4), dtype=np.uint8)
    found = Standardise.fit(torch.from_numpy(images))
    np.testing.assert_allclose(found.mean.flatten(), images.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(found.scale.flatten(), images.std((0, 2, 3)), rtol=1e-12)
    scaled = found(torch.from_numpy(images))
    assert scaled.dtype == torch.float32
    assert scaled.shape == images.shape
    np.testing.assert_allclose(scaled.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std((0, 2, 3)), 1, atol=1e-4)


@pytest.mark.parametrize("constant", [0.0, 0.1, -3e9])
def test_a_constant_feature_becomes_zero(constant: float) -> None:
    inputs = torch.full((999, 2), constant, dtype=torch.float64)
    inputs[:, 1] = torch.arange(999)
    assert Standardise.fit(inputs)(inputs)[:, 0].abs().max() < 1e-5


def test_missing_and_unknown_categories() -> None:
    columns = (Column("c", "categorical", ("x", "y", "z")),)
    train = torch.tensor([[0.0], [2.0], [MISSING_CODE]], dtype=torch.float64)
    fitted = TableTransform.fit(train, columns)
    new = torch.tensor([[0.0], [1.0], [2.0], [MISSING_CODE], [UNKNOWN_CODE]], dtype=torch.float64)
    # Levels in order of their code: missing, x, z; y was not in training.
    assert fitted(new).tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0]]
    without_missing = TableTransform.fit(train[:2], columns)
    assert without_missing(new[3:]).tolist() == [[0, 0], [0, 0]]


def test_an_empty_column_is_harmless() -> None:
    inputs = torch.tensor([[float("nan"), 1.0], [float("nan"), 3.0]], dtype=torch.float64)
    columns = (Column("empty", "numeric"), Column("b", "numeric"))
    assert TableTransform.fit(inputs, columns)(inputs).tolist() == [[0, -1, 1], [0, 1, 1]]


@pytest.mark.parametrize("kind", ["points", "table", "image"])
def test_nothing_but_training_rows_enters_the_transform(kind: str) -> None:
    """Replace every row outside the training part: the transform must not notice."""
    rng = np.random.default_rng(0)
    columns: tuple[Column, ...] = ()
    if kind == "image":
        inputs = torch.from_numpy(rng.integers(256, size=(120, 3, 4, 4), dtype=np.uint8))
    else:
        inputs = torch.from_numpy(rng.normal(size=(120, 3)))
    if kind == "table":
        inputs[:, 0] = torch.from_numpy(rng.integers(-2, 3, 120))
        inputs[::7, 1] = float("nan")
        names = ("numeric", "categorical")
        columns = (Column("c", names[1], ("p", "q", "r")), *(Column(n, names[0]) for n in "de"))
    labels = torch.arange(120) % 3

    def transformed(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dataset = FixedDataset("d", kind, Part(values, labels), ("0", "1", "2"), columns=columns)
        splits = dataset.split(Protocol(name="p"), 4, held_out=True)
        return splits.train.inputs, splits.transform(inputs)

    train, before = transformed(inputs)
    trained = {row.numpy().tobytes() for row in train}
    other = torch.tensor([row.numpy().tobytes() not in trained for row in inputs])
    assert 40 < other.sum() < 70
    changed = inputs.clone()
    changed[other] = 1 if kind == "image" else 1e6
    assert transformed(changed)[1].equal(before)
    changed[~other] = inputs[~other].roll(1, dims=1)
    assert not transformed(changed)[1].equal(before)


def test_transforms_can_be_pickled() -> None:
    frame = mixed_frame(40, 2)
    columns = infer_columns(frame, frame.columns, (), "test")
    raw = encode_columns(frame, columns, "test")
    fitted = TableTransform.fit(raw, columns)
    assert pickle.loads(pickle.dumps(fitted))(raw).equal(fitted(raw))
