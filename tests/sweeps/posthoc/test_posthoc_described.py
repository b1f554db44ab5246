"""Stored predictions whose rows have weights or belong to groups."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from calibration.data.predictions import StoredPredictions
from calibration.evaluation import LabelledLogits, cross_fitted, predictions_of, scores
from sweeps.cli.main import main
from sweeps.posthoc import evaluate_stored

CLASSES = ("ant", "bee", "cat")
GROUPS = 60


def stored(rows: int, seed: int) -> StoredPredictions:
    """Over-confident predictions of three classes."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, 3, generator=generator)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
    return StoredPredictions(
        f"s{seed}", (2 * logits).numpy(), labels.numpy(), CLASSES, "logits", ()
    )


def taken(part: StoredPredictions, rows: NDArray[Any]) -> StoredPredictions:
    assert part.labels is not None
    return replace(part, logits=part.logits[rows], labels=part.labels[rows])


def only_row(evaluation: Any, calibrator: str = "temperature") -> pd.Series[Any]:
    return evaluation.results.set_index("calibrator").loc[calibrator]


def test_whole_weights_are_repeated_rows_and_their_scale_is_nothing() -> None:
    validation, test = stored(150, 0), stored(200, 1)
    draw = np.random.default_rng(0)
    times = [draw.integers(0, 4, len(part.logits)) for part in (validation, test)]
    weighted = [
        replace(part, weights=1.0 * each)
        for part, each in zip((validation, test), times, strict=True)
    ]
    repeated = [
        taken(part, np.repeat(np.arange(len(each)), each))
        for part, each in zip((validation, test), times, strict=True)
    ]
    found = evaluate_stored(weighted[0], weighted[1], ["temperature"])
    expected = evaluate_stored(repeated[0], repeated[1], ["temperature"])
    plain = evaluate_stored(validation, test, ["temperature"])
    for metric in ("nll", "brier", "error", "ece", "auroc"):
        assert only_row(found)[metric] == pytest.approx(only_row(expected)[metric], abs=1e-6)
        assert only_row(found)[metric] != pytest.approx(only_row(plain)[metric], abs=1e-4)
    assert found.fitted_shares == pytest.approx(expected.fitted_shares)
    assert found.measured_shares == pytest.approx(expected.measured_shares)
    scaled = [replace(part, weights=7.5 * part.weights) for part in weighted]  # type: ignore[operator]
    again = evaluate_stored(scaled[0], scaled[1], ["temperature"])
    numbers = ["nll", "nll_low", "nll_high", "ece", "ece_high", "floor", "validation/nll"]
    assert only_row(again)[numbers].tolist() == pytest.approx(only_row(found)[numbers].tolist())


def test_copies_of_a_row_that_are_a_group_count_once() -> None:
    validation, once = stored(100, 0), stored(GROUPS, 1)
    copied = taken(once, np.repeat(np.arange(GROUPS), 4))
    test = replace(copied, groups=np.repeat(np.arange(GROUPS), 4).astype(str))
    grouped, single, naive = (
        evaluate_stored(validation, each, ["temperature"]) for each in (test, once, copied)
    )
    mine, theirs = only_row(grouped), only_row(single)
    assert mine["nll"] == pytest.approx(theirs["nll"])
    # The same resamples, widened to those of new groups by Student's t.
    student = stats.t.ppf(0.975, GROUPS - 1) / stats.norm.ppf(0.975)
    wider = student * math.sqrt(GROUPS / (GROUPS - 1))
    for end in ("low", "high"):
        distance = wider * (theirs[f"nll_{end}"] - theirs["nll"])
        assert mine[f"nll_{end}"] - mine["nll"] == pytest.approx(distance)
    assert 1.5 < mine["floor"] / only_row(naive)["floor"] < 2.5
    lines = [
        e.comparisons.set_index(["calibrator", "metric"]).loc["temperature", "nll"]
        for e in (grouped, single)
    ]
    assert [line["pairs"] for line in lines] == [GROUPS, GROUPS]
    distances = [line["high"] - line["difference"] for line in lines]
    assert distances[0] == pytest.approx(wider * distances[1])


def test_groups_are_cross_fitted_as_wholes() -> None:
    part = stored(120, 0)
    groups = np.arange(120) % 20
    found = evaluate_stored(replace(part, groups=groups.astype(str)), None, ["temperature"])
    logits, labels = torch.from_numpy(part.logits).double(), torch.from_numpy(part.labels)
    held_back = cross_fitted("temperature", logits, labels, seed=0, groups=torch.from_numpy(groups))
    expected = scores(predictions_of(held_back, LabelledLogits(logits, labels)), bins=15)
    assert only_row(found)["validation/nll"] == pytest.approx(expected["nll"])
    assert "Student's t with 19 degrees of freedom" in " ".join(found.notes)


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """val.csv and test.csv with weights and customers, and both.npz with the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    arrays: dict[str, Any] = {"class_names": np.array(CLASSES)}
    for place, name in enumerate(("val", "test")):
        part = stored(120, place)
        assert part.labels is not None
        table = pd.DataFrame(part.logits.astype(float), columns=list(CLASSES))
        table["label"] = np.array(CLASSES)[part.labels]
        table["importance"] = 1 + np.arange(120) % 3
        table["customer"] = [f"{name}{row // 3}" for row in range(120)]
        table.to_csv(f"{name}.csv", index=False)
        arrays |= {f"{name}_logits": part.logits.astype(float), f"{name}_labels": part.labels}
        for column in ("importance", "customer"):
            arrays[f"{name}_{column}"] = table[column].to_numpy(
                dtype=str if column == "customer" else float
            )
    np.savez("both.npz", **arrays)
    return tmp_path


NAMED = ("--weights", "importance", "--group", "customer", "--calibrators", "temperature,bbq")


def test_columns_and_arrays_are_named_alike_and_apply_leaves_them_aside(
    there: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["posthoc", "val.csv", "test.csv", *NAMED, "--save", "best.json"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "40 groups by 'customer', weights by 'importance'" in printed
    assert "Intervals and tests are about new groups (40 in the measured rows)." in printed
    assert "the fits of the calibrators bbq; diagrams" in printed
    page = Path("posthoc/report.html").read_text()
    assert "intervals, band and floor are for new groups. Diagrams, with the ECE and floor" in page
    tables = pd.read_csv("posthoc/results.csv")
    assert main(["posthoc", "both.npz", *NAMED, "--out", "arrays"]) == 0
    arrays = pd.read_csv("arrays/results.csv")
    for column in ("nll", "nll_low", "ece", "floor", "validation/nll"):
        assert tables[column].tolist() == pytest.approx(arrays[column].tolist())
    # Both columns of numbers and of texts might be taken for classes, and are kept.
    assert main(["apply", "best.json", "test.csv", "--out", "out.csv"]) == 0
    assert {"importance", "customer", "prob_ant"} <= set(pd.read_csv("out.csv").columns)


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({"importance": -1.0}, NAMED, "test.csv, weight column 'importance': found '-1' in row 0"),
        ({"customer": None}, NAMED, "test.csv, group column 'customer': 1 rows have no group"),
        ({"customer": "val7"}, NAMED, "group 'val7' is also in val.csv (1 such group)"),
        ({}, ("--weights", "import"), "no weight column 'import'; did you mean 'importance'?"),
        ({}, ("--group", "label"), "column 'label' cannot be both the labels and group"),
        ({}, ("--group", "importance", "--weights", "importance"), "both group and weight"),
    ],
)
def test_descriptions_that_cannot_be_are_refused(
    there: Path,
    change: dict[str, Any],
    options: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture,
) -> None:
    table = pd.read_csv("test.csv")
    for column, value in change.items():
        table.loc[0, column] = value
    table.to_csv("test.csv", index=False)
    assert main(["posthoc", "val.csv", "test.csv", *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("posthoc").exists()


def test_one_group_or_weight_in_one_class_is_too_little(
    there: Path, capsys: pytest.CaptureFixture
) -> None:
    table = pd.read_csv("val.csv")
    table.assign(customer="me").to_csv("one.csv", index=False)
    assert main(["posthoc", "one.csv", *NAMED]) == 2
    assert "all 120 rows are of group 'me'; at least two" in capsys.readouterr().err
    table.assign(importance=1.0 * (table["label"] == "bee")).to_csv("one.csv", index=False)
    assert main(["posthoc", "one.csv", *NAMED]) == 2
    assert "whose weight is above 0 are of class 'bee'" in capsys.readouterr().err
