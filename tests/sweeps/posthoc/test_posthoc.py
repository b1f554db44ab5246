"""``calsweep posthoc`` and ``apply``: the user's own predictions, and every mistake in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration import calibrators, metrics
from calibration.calibrators import Calibrator
from calibration.calibrators.saving import save_calibrator
from calibration.data.frames import read_frame
from calibration.data.predictions import read_labelled_predictions
from calibration.evaluation import cross_fitted
from sweeps.cli.main import main
from sweeps.posthoc import evaluate_stored
from sweeps.posthoc.verdicts import folds_for, resamples_for

CLASSES = ("ant", "bee", "cat")
CALIBRATORS = "temperature,vector,isotonic_top_label"


def drawn(rows: int, seed: int, factor: float = 2.5) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logits of three classes that are over-confident by ``factor``, and labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, 3, generator=generator)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
    return (factor * logits).numpy(), labels.numpy()


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    return torch.from_numpy(logits).double().softmax(-1).numpy()


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with val.npz (300 rows) and test.npz (500 rows), to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, rows, seed in (("val", 300, 0), ("test", 500, 1)):
        logits, labels = drawn(rows, seed)
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels)
    return tmp_path


def results() -> pd.DataFrame:
    return pd.read_csv("posthoc/results.csv").set_index("calibrator")


def test_the_numbers_are_those_of_the_maps_and_the_winner_is_chosen_without_test(
    there: Path, capsys: pytest.CaptureFixture
) -> None:
    assert (
        main(
            ["posthoc", "val.npz", "test.npz", "--calibrators", CALIBRATORS, "--save", "best.json"]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert "'logits' taken as logits" in printed
    assert "fitted on 300 rows, measured on 500" in printed
    (z, y), (test_z, test_y) = drawn(300, 0), drawn(500, 1)
    val = torch.from_numpy(z), torch.from_numpy(y)
    tidy = results()
    assert list(tidy.index) == ["identity", *CALIBRATORS.split(",")]
    assert (tidy["dataset"] == "test").all()
    assert (tidy["row"] == "predictions").all()
    for name in ("identity", "temperature", "vector"):
        rows = calibrators.fit(name, *val)(torch.from_numpy(test_z))
        held_back = cross_fitted(name, *val, seed=0)
        expected = metrics.panel(rows, test_y)
        intervals = metrics.bootstrap_intervals(rows, test_y, metrics=["nll", "ece"])
        floor = metrics.noise_floor(rows)
        row = tidy.loc[name]
        assert {m: row[m] for m in expected} == pytest.approx(expected, rel=1e-6, abs=1e-9)
        assert (row["ece_low"], row["ece_high"]) == pytest.approx(intervals["ece"], rel=1e-6)
        assert (row["nll_low"], row["nll_high"]) == pytest.approx(intervals["nll"], rel=1e-6)
        assert (row["floor"], row["floor_q95"]) == pytest.approx(floor, rel=1e-6)
        assert row["validation/nll"] == pytest.approx(float(metrics.nll(held_back, y)), rel=1e-6)
    assert np.isnan(tidy.loc["isotonic_top_label", "nll"])
    best = tidy["validation/nll"].idxmin()
    board = pd.read_csv("posthoc/leaderboard.csv")
    assert board.loc[board["winner"], "calibrator"].tolist() == [best]
    assert json.loads(Path("best.json").read_text())["calibrator"] == best


def test_a_better_test_score_does_not_win(there: Path) -> None:
    """Validation labels turned into noise make the temperature wrong for test; it still wins."""
    logits, labels = drawn(400, 2)
    shuffled = np.random.default_rng(0).permutation(labels)
    np.savez("noise.npz", logits=logits, labels=shuffled)
    assert main(["posthoc", "noise.npz", "test.npz", "--calibrators", "temperature"]) == 0
    tidy = results()
    assert tidy.loc["temperature", "nll"] > tidy.loc["identity", "nll"]
    board = pd.read_csv("posthoc/leaderboard.csv")
    assert board.loc[board["winner"], "calibrator"].tolist() == ["temperature"]
    said = pd.read_csv("posthoc/comparisons.csv").set_index(["calibrator", "metric"])["verdict"]
    assert said["temperature", "nll"] == "worse"
    assert said["temperature", "error"] == "equivalent"
    assert said["identity", "nll"] == "baseline"


def test_one_file_is_cross_fitted(there: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = [
        "posthoc",
        "val.npz",
        "--calibrators",
        "temperature",
        "--bins",
        "10",
        "--seed",
        "3",
    ]
    assert main(arguments) == 0
    assert "300 rows, cross-fitted" in capsys.readouterr().out
    z, y = (torch.from_numpy(array) for array in drawn(300, 0))
    expected = metrics.panel(cross_fitted("temperature", z, y, seed=3), y, bins=10)
    row = results().loc["temperature"]
    assert {m: row[m] for m in expected} == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert row["validation/nll"] == row["nll"]


def variants(there: Path) -> Mapping[str, list[str]]:
    """The same predictions in every form that is understood."""
    parts = {name: np.load(there / f"{name}.npz") for name in ("val", "test")}
    arrays = {n: (part["logits"], part["labels"]) for n, part in parts.items()}
    both = {f"{n}_{k}": v for n, part in parts.items() for k, v in part.items()}
    np.savez(there / "both.npz", **both)
    for name, (z, y) in arrays.items():
        np.savez(there / f"{name}_p.npz", probabilities=softmax(z), labels=y[:, None])
        texts = np.array(CLASSES)[y]
        np.savez(there / f"{name}_t.npz", logits=z, y=texts, class_names=np.array(CLASSES))
        frame = pd.DataFrame(z.astype(np.float64), columns=[f"logit_{c}" for c in CLASSES])
        frame.assign(note="x", label=texts).to_csv(there / f"{name}_l.csv", index=False)
        frame = pd.DataFrame(softmax(z), columns=list(CLASSES))
        frame.assign(species=texts).to_parquet(there / f"{name}.parquet")
        columns = ["p_3", "p_1", "p_2"]  # the labels 1, 2, 3 are their names, in any order
        frame = pd.DataFrame(softmax(z)[:, [2, 0, 1]], columns=columns)
        frame.insert(0, "y", y + 1)
        frame.insert(0, "id", range(len(y)))
        frame.to_csv(there / f"{name}_n.tsv", index=False, sep="\t")
    return {
        "one file": ["both.npz"],
        "probabilities": ["val_p.npz", "test_p.npz"],
        "texts": ["val_t.npz", "test_t.npz"],
        "CSV": ["val_l.csv", "test_l.csv"],
        "Parquet": ["val.parquet", "test.parquet", "--label", "species"],
        "numbers as names": ["val_n.tsv", "test_n.tsv"],
    }


def test_every_form_of_the_same_predictions_gives_the_same(there: Path) -> None:
    main(["posthoc", "val.npz", "test.npz", "--calibrators", "temperature"])
    expected = results()
    for form, files in variants(there).items():
        assert main(["posthoc", *files, "--calibrators", "temperature"]) == 0, form
        for column in ("nll", "ece", "error", "classwise_ece", "validation/nll"):
            found = results()[column].to_numpy()
            np.testing.assert_allclose(found, expected[column], rtol=2e-5, err_msg=form)


def test_what_was_taken_for_what_is_said(there: Path, capsys: pytest.CaptureFixture) -> None:
    variants(there)
    main(["posthoc", "val_l.csv", "--calibrators", "temperature"])
    printed = capsys.readouterr().out
    assert "columns logit_ant … logit_cat taken as logits" in printed
    assert "not used: note" in printed
    main(["posthoc", "val.parquet", "--label", "species", "--calibrators", "temperature"])
    assert "columns ant … cat taken as probabilities" in capsys.readouterr().out


def test_a_probability_of_zero_counts_as_the_least_there_is(there: Path) -> None:
    probs = np.full((12, 3), 1 / 3, dtype=np.float32)
    probs[0], probs[1] = (1, 0, 0), (1 - 1e-20, 1e-20, 0)
    np.savez("zeros.npz", probs=probs, labels=np.arange(12) % 3)
    found, _ = read_labelled_predictions(Path("zeros.npz"))
    assert found.logits[0].tolist() == pytest.approx([0, np.log(1e-20), np.log(1e-20)])
    assert any("3 probabilities of 0" in note for note in found.notes)
    probs[1] = (0.9, 0.1, 0)
    np.savez("rounded.npz", probs=probs, labels=np.arange(12) % 3)
    found, _ = read_labelled_predictions(Path("rounded.npz"))
    assert float(found.logits[1, 2]) == pytest.approx(np.log(1e-12))


Z, Y = drawn(40, 5)
WITH_NAN = np.where(np.arange(120).reshape(40, 3) == 50, np.nan, Z)
TABLE = pd.DataFrame(softmax(Z), columns=[f"prob_{c}" for c in CLASSES]).assign(label=Y)
BAD_SUM = np.where(np.arange(40)[:, None] == 7, 0.2, softmax(Z))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"labels": Y}, ["neither 'logits' nor 'probs'", "found labels"]),
        ({"logits": Z}, ["no array 'labels'"]),
        ({"logits": Z[:, 0], "labels": Y}, ["one score per row", "--score-kind logit"]),
        ({"logits": Z[:, :1], "labels": Y}, ["one score per row", "--positive CLASS"]),
        ({"logits": Z[:0], "labels": Y[:0]}, ["(0, 3)"]),
        ({"logits": Z[None], "labels": Y}, ["(1, 40, 3)", "(N, K)"]),
        ({"logits": Z.astype(str), "labels": Y}, ["logits must be numbers"]),
        ({"logits": Z.astype(object), "labels": Y}, ["plain arrays", "holds objects"]),
        ({"logits": WITH_NAN, "labels": Y}, ["found nan in row 16, class 2"]),
        ({"logits": np.where(Z > 4, np.inf, Z), "labels": Y}, ["found inf", "±100"]),
        ({"logits": Z, "labels": Y + 1}, ["0…2", "found 3", "counted from 1"]),
        ({"logits": Z, "labels": Y - 1}, ["0…2", "found -1"]),
        ({"logits": Z, "labels": Y.astype(float)}, ["whole numbers", "float64", "astype(int)"]),
        ({"logits": Z, "labels": Y[:-1]}, ["(40,)", "found (39,)"]),
        ({"logits": Z, "labels": np.eye(3)[Y]}, ["one-hot", "argmax(1)"]),
        ({"logits": Z, "labels": np.array(CLASSES)[Y]}, ["'ant' is none of the classes 0, 1, 2"]),
        ({"logits": Z, "labels": 0 * Y}, ["all 40 rows are of class '0'"]),
        ({"logits": Z[:5], "labels": Y[:5]}, ["5 rows are too few"]),
        ({"probs": Z, "labels": Y}, ["must not be negative", "call them logits"]),
        ({"probs": BAD_SUM, "labels": Y}, ["sum to 1", "found 0.6 in row 7"]),
        ({"logits": Z, "labels": Y, "class_names": np.array(["a", "b"])}, ["names 2 classes"]),
        ({"val_logits": Z, "val_labels": Y, "test_logits": Z}, ["no array 'test_labels'"]),
        (
            {"val_logits": Z, "val_labels": Y, "test_logits": Z[:, :2], "test_labels": Y % 2},
            ["has 3 classes", "has 2"],
        ),
    ],
)
def test_mistakes_in_arrays_are_one_message_and_nothing_is_written(
    arrays: dict[str, NDArray[Any]], words: list[str], there: Path, capsys: pytest.CaptureFixture
) -> None:
    np.savez("mine.npz", **arrays)
    _refused(["posthoc", "mine.npz", "--save", "best.json"], ["mine.npz", *words], there, capsys)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop(columns="label"), ["no column 'label'", "--label"]),
        (lambda t: t.assign(y=t["label"]), ["'label' and 'y'", "--label"]),
        (lambda t: t[["label"]].assign(a="x"), ["no columns of scores", "logit_CLASS"]),
        (lambda t: t.assign(prob_bee="high"), ["'prob_bee'", "found 'high'"]),
        (lambda t: t.assign(prob_bee=t["prob_bee"].where(t.index != 4)), ["'prob_bee'", "row 4"]),
        (lambda t: t.assign(prob_bee=0.5), ["prob_ant … prob_cat must sum to 1", "logit_…"]),
        (lambda t: t.assign(label=t["label"].where(t.index != 4)), ["'label'", "missing"]),
        (lambda t: t.assign(label="dog"), ["'dog' is none of the classes ant, bee, cat"]),
        (lambda t: t.iloc[:0], ["there are no rows"]),
        (
            lambda t: t.rename(columns=lambda c: c.removeprefix("prob_")).assign(
                ant=t["prob_ant"].where(t.index != 3, 0.0), label=np.array(CLASSES)[Y]
            ),
            ["look like probabilities", "row 3"],
        ),
    ],
)
def test_mistakes_in_tables_are_one_message_and_nothing_is_written(
    change: Callable[[pd.DataFrame], pd.DataFrame],
    words: list[str],
    there: Path,
    capsys: pytest.CaptureFixture,
) -> None:
    change(TABLE).to_csv("mine.csv", index=False)
    _refused(["posthoc", "mine.csv"], ["mine.csv", *words], there, capsys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["posthoc", "nowhere.npz"], ["nowhere.npz: no such file"]),
        (["posthoc", "val.npz", "nowhere.npz"], ["nowhere.npz: no such file"]),
        (["posthoc", "val.npz", "two.npz"], ["val.npz has 3 classes", "two.npz has 2"]),
        (["posthoc", "text.npz"], ["text.npz: not a readable NPZ"]),
        (["posthoc", "text.yaml"], ["text.yaml", "not a .csv"]),
        (["posthoc", "val.npz", "--calibrators", "temperatur"], ["did you mean 'temperature'"]),
        (["posthoc", "val.npz", "--calibrators", ","], ["--calibrators", "comma-separated names"]),
        (["posthoc", "val.npz", "--calibrators", "json:loads"], ["not a subclass of Calibrator"]),
        (["posthoc", "val.npz", "--label", "y"], ["--label names a column"]),
        (["posthoc", "val.npz", "--out", "test.npz"], ["--out", "is a file"]),
        (["posthoc", "val.npz", "--save", "."], ["--save", "is a directory"]),
        (
            ["apply", "text.yaml", "val.npz", "--out", "o.npz"],
            ["text.yaml: not a saved calibrator"],
        ),
        (["apply", "nowhere.json", "val.npz", "--out", "o.npz"], ["nowhere.json: no such file"]),
        (
            ["apply", "list.json", "val.npz", "--out", "o.npz"],
            ["list.json: not a saved calibrator"],
        ),
        (["apply", "huge.json", "val.npz", "--out", "o.npz"], ["huge.json: about: ", "too large"]),
        (["apply", "best.json", "two.npz", "--out", "o.npz"], ["two.npz has 2 classes", "with 3"]),
        (["apply", "best.json", "other.csv", "--out", "o.npz"], ["bee, ant, cat", "ant, bee, cat"]),
        (["apply", "best.json", "val.npz", "--out", "o.txt"], ["--out", "*.parquet"]),
        (["apply", "best.json", "text.npz", "--out", "o.npz"], ["text.npz: not a readable NPZ"]),
    ],
)
def test_other_mistakes_are_one_message_too(
    arguments: list[str], words: list[str], there: Path, capsys: pytest.CaptureFixture
) -> None:
    np.savez("two.npz", logits=Z[:, :2], labels=Y % 2)
    for name in ("text.npz", "text.yaml"):
        Path(name).write_text("hello")
    Path("list.json").write_text("[1]")
    TABLE[["prob_bee", "prob_ant", "prob_cat"]].to_csv("other.csv", index=False)
    fitted = calibrators.fit("temperature", torch.from_numpy(Z), torch.from_numpy(Y))
    saved = save_calibrator(fitted) | {"about": {"class_names": CLASSES}}
    Path("best.json").write_text(json.dumps(saved))
    huge = {"class_shares": [10**400, 1, 1]}  # JSON has numbers that no float can hold
    Path("huge.json").write_text(json.dumps(saved | {"about": huge}))
    _refused(arguments, words, there, capsys)


@pytest.mark.parametrize("seed", ["-1", "9" * 30, "many"])
def test_a_seed_that_no_generator_takes_is_named(
    seed: str, there: Path, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit):
        main(["posthoc", "val.npz", "--seed", seed])
    assert f"--seed: found '{seed}'; write a whole number" in capsys.readouterr().err


def _refused(
    arguments: list[str], words: list[str], there: Path, capsys: pytest.CaptureFixture
) -> None:
    before = sorted(there.rglob("*"))
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == []
    assert said.count("\n") == 1
    assert sorted(there.rglob("*")) == before


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_the_saved_map_gives_the_same_probabilities_elsewhere(there: Path, suffix: str) -> None:
    main(["posthoc", "val.npz", "--calibrators", "vector", "--save", "deep/best.json"])
    fresh, _ = drawn(50, 9)
    np.savez("fresh.npz", logits=fresh, labels=np.full(50, -7))  # ignored, whatever they are
    assert main(["apply", "deep/best.json", "fresh.npz", "--out", f"out{suffix}"]) == 0
    z, y = (torch.from_numpy(array) for array in drawn(300, 0))
    expected = calibrators.fit("vector", z, y)(torch.from_numpy(fresh)).numpy()
    if suffix == ".npz":
        stored = np.load("out.npz")
        rows, confidence, predicted = (
            stored[name] for name in ("probabilities", "confidence", "classes")
        )
    else:
        frame = read_frame(Path(f"out{suffix}"))
        rows = frame[[f"prob_{k}" for k in range(3)]].to_numpy()
        confidence, predicted = frame["confidence"].to_numpy(), frame["class"].astype(int)
    assert np.array_equal(rows, expected)
    assert np.array_equal(confidence, expected.max(1))
    assert np.array_equal(predicted, expected.argmax(1))


def test_a_top_label_map_gives_confidences_only(there: Path) -> None:
    z, y = (torch.from_numpy(array) for array in drawn(300, 0))
    fitted = calibrators.fit("isotonic_top_label", z, y)
    Path("top.json").write_text(json.dumps(save_calibrator(fitted)))
    assert main(["apply", "top.json", "test.npz", "--out", "out.csv"]) == 0
    frame = read_frame(Path("out.csv"))
    test_z, _ = drawn(500, 1)
    assert list(frame.columns) == ["labels", "class", "confidence"]  # what came with the rows stays
    assert np.array_equal(frame["confidence"], fitted(torch.from_numpy(test_z)).numpy())
    assert np.array_equal(frame["class"], test_z.argmax(1))


def test_output_is_whole_or_not_there(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["posthoc", "val.npz", "--calibrators", "vector", "--save", "best.json"])
    Path("out.csv").write_text("earlier")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    before = sorted(there.rglob("*"))
    assert main(["apply", "best.json", "val.npz", "--out", "out.csv"]) == 2
    assert sorted(there.rglob("*")) == before
    assert Path("out.csv").read_text() == "earlier"


class Fails(Calibrator):
    description = "for this test"
    scaling = False
    keeps_argmax = False
    fast = True

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        raise RuntimeError("no luck")

    def _apply(self, logits: Tensor) -> Tensor:
        return logits


def test_a_map_that_fails_does_not_take_the_others_along(
    there: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["posthoc", "val.npz", "--calibrators", f"temperature,{__name__}:Fails"]) == 1
    assert "Fails failed and has no row: RuntimeError: no luck" in capsys.readouterr().out
    assert list(results().index) == ["identity", "temperature"]


def test_the_evaluation_keeps_what_diagrams_need(there: Path) -> None:
    validation, _ = read_labelled_predictions(Path("val.npz"))
    test, _ = read_labelled_predictions(Path("test.npz"))
    found = evaluate_stored(validation, test, ["temperature", "isotonic_top_label"])
    assert found.winner == "temperature"
    for name, (confidence, correct) in found.confidences.items():
        ece = found.results.set_index("calibrator").loc[name, "ece"]
        assert float(metrics.ece(confidence, correct)) == pytest.approx(ece, abs=1e-12)
    again = evaluate_stored(validation, test, ["temperature", "isotonic_top_label"], workers=1)
    hidden = ["fit_seconds"]  # the only thing that how many work at a time may change
    pd.testing.assert_frame_equal(
        found.results.drop(columns=hidden), again.results.drop(columns=hidden)
    )


def test_many_rows_get_fewer_resamples_and_folds() -> None:
    assert [resamples_for(n) for n in (100, 20_000, 40_000, 10**6)] == [1000, 1000, 500, 400]
    assert [folds_for(n) for n in (100, 20_000, 20_001)] == [5, 5, 2]
