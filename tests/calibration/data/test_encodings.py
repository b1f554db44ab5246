"""Encodings of a table's numbers, against scikit-learn and by brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import torch
from sklearn.preprocessing import QuantileTransformer, RobustScaler

from calibration.data import PROTOCOLS, Column, FixedDataset, Part
from calibration.data.encodings import NumericInputs, PiecewiseLinear, Quantiles, Robust
from calibration.data.saving import load_transform, save_transform
from calibration.data.transforms import TableTransform, category_blocks, encoded
from calibration.methods import InputHyperparameters, make_method
from calibration.models import build_embedded, build_model
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig

ENCODINGS: tuple[NumericInputs, ...] = ("robust", "quantile", "piecewise")


def values(rows: int = 400) -> torch.Tensor:
    """A skewed column, one with many ties, a yes-or-no one, and a constant."""
    rng = np.random.default_rng(0)
    columns = [rng.lognormal(size=rows), rng.poisson(2, rows), rng.random(rows) < 0.3]
    return torch.from_numpy(np.stack([*map(np.float64, columns), np.full(rows, 7.0)], axis=1))


def table() -> FixedDataset:
    rng = np.random.default_rng(1)
    raw = torch.cat([values(), torch.from_numpy(rng.integers(0, 12, (400, 1))).double()], dim=1)
    raw[::9, 0] = torch.nan
    columns = (*(Column(name, "numeric") for name in "abcd"), Column("e", "categorical"))
    labels = (raw[:, 1] + raw[:, 4] > 7).long()
    return FixedDataset("t", "table", Part(raw, labels), ("no", "yes"), columns=columns)


def test_quantiles_match_scikit_learn() -> None:
    train = values()
    new = torch.cat([values(50) * 1.1, torch.full((1, 4), -100.0), torch.full((1, 4), 100.0)])
    oracle = QuantileTransformer(n_quantiles=400, output_distribution="normal")
    oracle.fit(train.numpy())
    ours, theirs = Quantiles.fit(train)(new), oracle.transform(new.numpy())
    # Tied lowest or highest values it sends to ±5.2 instead of their middle share.
    inside = (new > train.amin(0)) & (new < train.amax(0))
    assert inside[:, :2].sum() > 60
    assert ours[inside].numpy() == pytest.approx(theirs[inside.numpy()], abs=1e-5)
    assert ours[-2:, :3].abs().numpy() == pytest.approx(5.2, abs=0.01)
    no = (train[:, 2] == 0).sum() - 1  # the highest rank of a no, of 0…399
    assert Quantiles.fit(train)(train)[:, 2].min() == pytest.approx(
        NormalDist().inv_cdf(float(no) / 399 / 2), abs=1e-5
    )
    assert ours.isfinite().all()


def test_robust_is_a_bent_robust_scaler() -> None:
    train = values()[:, :2]
    scaled = RobustScaler().fit_transform(train.numpy())
    bent = scaled / np.sqrt(1 + (scaled / 3) ** 2)
    assert Robust.fit(train)(train).numpy() == pytest.approx(bent, abs=1e-6)
    # Where quartiles coincide, half the range; where there is none, 1.
    rare = torch.tensor([[0.0, 7.0]] * 9 + [[1.0, 7.0]])
    found = Robust.fit(rare)(torch.tensor([[1.0, 8.0]]))
    assert found.tolist() == [pytest.approx([2 / np.sqrt(1 + 4 / 9), 1 / np.sqrt(1 + 1 / 9)])]


def test_piecewise_encodings_by_brute_force() -> None:
    train = values()
    fitted = PiecewiseLinear.fit(train, 5)
    new = torch.cat([values(60) * 1.3 - 0.2, torch.tensor([[-1e9] * 4, [1e9] * 4])])
    rows = []
    for row in new.tolist():
        cells: list[float] = []
        for x, edges in zip(row, fitted.edges, strict=True):
            for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                cells.append(0.0 if x < low else 1.0 if x > high else (x - low) / (high - low))
        rows.append(cells)
    assert fitted(new).numpy() == pytest.approx(np.array(rows), abs=1e-6)
    assert [len(edges) for edges in fitted.edges] == [6, len(fitted.edges[1]), 2, 2]
    assert fitted.edges[0].numpy() == pytest.approx(np.quantile(train[:, 0], np.linspace(0, 1, 6)))


@pytest.mark.parametrize("numeric", ENCODINGS)
def test_training_rows_alone_decide_and_saving_is_exact(numeric: NumericInputs) -> None:
    splits = table().split(PROTOCOLS["honest"], 0, held_out=False)
    fitted = encoded(splits, numeric, 8)
    elsewhere = Part(splits.validation.inputs * 50, splits.validation.labels)
    again = encoded(replace(splits, validation=elsewhere), numeric, 8)
    inputs = splits.validation.inputs
    assert fitted(inputs).equal(again(inputs))
    assert fitted(inputs).isfinite().all()
    loaded = load_transform(json.loads(json.dumps(save_transform(fitted))))
    assert loaded(inputs).equal(fitted(inputs))
    assert not fitted(inputs).equal(splits.transform(inputs))
    assert encoded(splits, "standard", 8) is splits.transform


def test_embedding_a_category_is_a_product_with_its_one_hot_block() -> None:
    torch.manual_seed(0)
    network = build_embedded("mlp", {"widths": [5]}, (2 + 3 + 9,), 2, blocks=(3, 9), width=4)
    plain = torch.randn(6, 2)
    small = torch.eye(3)[[0, 1, 2, 0, 1, 2]]
    large = torch.eye(9)[[0, 8, 3, 3, 1, 0]]
    large[5] = 0  # unknown in training
    vectors = torch.cat([network.tables[0][[0, 8, 3, 3, 1]], torch.zeros(1, 4)])  # type: ignore[index]
    expected = network.network(torch.cat([plain, small, vectors], dim=1))  # type: ignore[operator]
    found = network(torch.cat([plain, small, large], dim=1))
    torch.testing.assert_close(found.logits, expected.logits)
    torch.manual_seed(0)
    same = build_embedded("mlp", {}, (14,), 2, blocks=(3, 9), width=0)
    torch.manual_seed(0)
    assert str(same) == str(build_model("mlp", {}, (14,), 2))


def test_a_network_trains_on_encoded_inputs_and_is_continued_to_the_bit() -> None:
    splits = table().split(PROTOCOLS["honest"], 0, held_out=True)
    config = TrainingConfig(epochs=4, batch_size=64)

    def start(method: str, **inputs: object) -> TrainingRun:
        made = make_method(method, dict(inputs))
        return TrainingRun(
            made, splits, model="mlp", model_options={}, classes=2, config=config, seed=0
        )

    chosen = {"numeric_inputs": "piecewise", "input_bins": 4, "category_embedding": 3}
    for method in ("standard", "bo4sc"):
        whole, first = start(method, **chosen), start(method, **chosen)
        for _ in range(4):
            whole.run_epoch()
        for _ in range(2):
            first.run_epoch()
        second = start(method, **chosen)
        second.load_state_dict(first.state_dict())
        for _ in range(2):
            second.run_epoch()
        assert second.state.parameters.equal(whole.state.parameters)
        names = whole.learner.model.names
        assert names[0] == "tables.0"
        assert whole.learner.model.head == tuple(n for n in names if "head" in n)
    assert whole.curve[-1]["validation/nll"] < whole.curve[0]["validation/nll"]


def test_unused_encodings_leave_no_trace_in_what_is_recorded() -> None:
    plain = make_method("focal", {"gamma": 1.0}).hyperparameters.model_dump()
    assert not plain.keys() & InputHyperparameters.model_fields.keys()
    assert {"gamma", "lr", "weight_decay"} <= plain.keys()
    chosen = make_method("focal", {"numeric_inputs": "piecewise"}).hyperparameters.model_dump()
    assert chosen.keys() - plain.keys() == {"numeric_inputs", "input_bins"}
    assert make_method("focal", chosen).hyperparameters.input_bins == 32


def test_only_tables_are_encoded() -> None:
    pixels = torch.zeros(40, 1, 8, 8, dtype=torch.uint8)
    images = FixedDataset("i", "image", Part(pixels, torch.arange(40) % 2), ("a", "b"))
    splits = images.split(PROTOCOLS["honest"], 0, held_out=False)
    assert category_blocks(splits.transform) == ()
    with pytest.raises(ValueError, match="columns of a table"):
        encoded(splits, "quantile", 8)
    fitted = table().split(PROTOCOLS["honest"], 0, held_out=False).transform
    assert isinstance(fitted, TableTransform)
    assert category_blocks(fitted) == (12,)
