"""Binary problems: one declared score per row, rounded probabilities, missing labels, priors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from calibration import calibrators
from calibration.calibrators.saving import save_calibrator
from calibration.data.predictions import Reading, read_labelled_predictions, read_predictions
from sweeps.cli.main import main

ROWS = 400
FRAUD = ["--label", "outcome", "--positive", "fraud", "--calibrators", "temperature"]


def drawn(seed: int = 0, rows: int = ROWS) -> pd.DataFrame:
    """Over-confident log-odds of a class that one row in ten has, with ids like 007."""
    rng = np.random.default_rng(seed)
    truth = rng.random(rows) < 0.1
    z = 2 * (rng.normal(size=rows) + 2 * truth - 2.5)
    ids = [f"{number:03d}" for number in range(rows)]
    return pd.DataFrame({"id": ids, "z": z, "outcome": np.where(truth, "fraud", "ok")})


def probability(frame: pd.DataFrame) -> pd.Series[float]:
    return 1 / (1 + np.exp(-frame["z"]))


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def refused(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == []
    assert said.count("\n") == 1


def stored(frame: pd.DataFrame, name: str, score: str) -> Path:
    """The same score as CSV, Parquet, or NPZ with and without a second dimension."""
    values = frame["z"] if score == "logit" else probability(frame)
    table = frame[["id", "outcome"]].assign(risk=values)
    if name.endswith(".csv"):
        table.to_csv(name, index=False)
    elif name.endswith(".parquet"):
        table.to_parquet(name)
    else:
        column = values.to_numpy() if "1" in name else values.to_numpy()[:, None]
        np.savez(name, risk=column, labels=frame["outcome"].to_numpy(str), id=list(frame["id"]))
    return Path(name)


@pytest.mark.parametrize("score", ["logit", "probability"])
@pytest.mark.parametrize("name", ["one.csv", "one.parquet", "one1.npz", "one2.npz"])
def test_one_declared_score_is_the_two_columns_it_stands_for(name: str, score: Any) -> None:
    frame = drawn()
    path = stored(frame, name, score)
    npz = name.endswith(".npz")
    reading = Reading(
        label=None if npz else "outcome",
        score="risk" if npz else None,
        kind=score,
        positive="fraud",
    )
    found, _ = read_labelled_predictions(path, reading)
    assert found.class_names == ("ok", "fraud")
    assert found.labels is not None
    assert found.labels.tolist() == (frame["outcome"] == "fraud").astype(int).tolist()
    np.testing.assert_allclose(found.logits[:, 1] - found.logits[:, 0], frame["z"], atol=1e-9)
    assert f"taken as the {score} of 'fraud'" in found.notes[0]
    for text in ("risk", "id"):
        assert not npz or text != "risk" or "'risk'" in found.notes[0]
    unlabelled = read_predictions(path, reading)
    assert [str(value) for value in unlabelled.carried["id"]] == list(frame["id"])


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (["p"], [], ["column 'p'", "--score-kind probability (or logit)", "--positive fraud (or"]),
        (["prob"], [], ["column 'prob'", "--score-kind probability"]),
        (["prob_fraud"], [], ["column 'prob_fraud'", "--score-kind probability"]),
        (["logit"], [], ["column 'logit'", "--score-kind logit (or probability)"]),
        (["risk"], ["--positive", "fraud"], ["column 'risk'", "--score-kind probability (or"]),
        (["risk"], ["--score-kind", "logit"], ["say what it is: --positive fraud (or ok)"]),
        (["a", "b"], ["--positive", "fraud"], ["--score", "found a, b"]),
        (["a", "b"], ["--score", "c"], ["no score column 'c'"]),
        (["p"], ["--score-kind", "logit", "--positive", "bad"], ["'bad'", "found fraud, ok"]),
        (
            ["prob_ok", "prob_fraud"],
            ["--score-kind", "probability", "--positive", "fraud"],
            ["a score for each class", "leave out --score-kind"],
        ),
    ],
)
def test_what_is_not_declared_is_asked_for_by_its_option(
    columns: list[str], options: list[str], words: list[str], capsys: pytest.CaptureFixture
) -> None:
    frame = drawn()
    p = probability(frame)
    values = [1 - p, p] if len(columns) == 2 else [p]
    table = pd.DataFrame(dict(zip(columns, values, strict=True))).assign(outcome=frame["outcome"])
    table.to_csv("mine.csv", index=False)
    refused(["posthoc", "mine.csv", "--label", "outcome", *options], ["mine.csv", *words], capsys)


@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 1)])
def test_an_array_of_logits_is_not_told_to_be_probabilities(
    shape: tuple[int, ...], capsys: pytest.CaptureFixture
) -> None:
    frame = drawn()
    labels = (frame["outcome"] == "fraud").astype(int)
    np.savez("mine.npz", logits=frame["z"].to_numpy().reshape(shape), labels=labels)
    words = ["mine.npz: logits", "--score-kind logit (or probability)", "--positive 1 (or 0)"]
    refused(["posthoc", "mine.npz"], words, capsys)
    wrong = ["--score-kind", "probability", "--positive", "1"]
    refused(["posthoc", "mine.npz", *wrong], ["[0, 1]", "found", "--score-kind logit"], capsys)
    np.savez("three.npz", logits=frame["z"], labels=np.arange(ROWS) % 3)
    right = ["--score-kind", "logit", "--positive", "1"]
    refused(["posthoc", "three.npz", *right], ["3 classes, 0, 1, 2", "two only"], capsys)


def test_rounded_probabilities_are_scaled_and_zero_is_half_the_unit() -> None:
    rng = np.random.default_rng(0)
    rows = rng.dirichlet([0.4, 0.4, 0.4, 0.4], size=200)
    labels = [rng.choice(4, p=row) for row in rows]
    rounded = rows.round(2)
    assert (np.abs(rounded.sum(1) - 1) > 2.0**-8).any()  # refused if they were not seen as rounded
    columns = {f"prob_{k}": rounded[:, k] for k in range(4)}
    pd.DataFrame(columns | {"label": labels}).to_csv("rounded.csv", index=False)
    np.savez("rounded.npz", probs=rounded.astype(np.float32), labels=np.array(labels))
    for name in ("rounded.csv", "rounded.npz"):
        found, _ = read_labelled_predictions(Path(name))
        np.testing.assert_allclose(np.exp(found.logits), rounded.clip(0.005), rtol=1e-6)
        zeros = int((rounded == 0).sum())
        (note,) = [note for note in found.notes if "rounded to 2 decimals" in note]
        assert f"{zeros} of them read 0 and count as 0.005" in note
        assert "are scaled" in note


def test_a_single_rounded_probability_is_lifted_at_both_ends() -> None:
    p = np.tile([0.0, 0.25, 1.0, 0.03], 10)
    pd.DataFrame({"p": p, "y": np.arange(40) % 2}).to_csv("mine.csv", index=False)
    reading = Reading(kind="probability", positive="1")
    found, _ = read_labelled_predictions(Path("mine.csv"), reading)
    odds = np.exp(found.logits[:4, 1] - found.logits[:4, 0])
    np.testing.assert_allclose(odds, [0.005 / 1, 0.25 / 0.75, 1 / 0.005, 0.03 / 0.97])


@pytest.mark.parametrize("form", ["texts.csv", "numbers.csv", "numbers.parquet", "numbers.npz"])
def test_missing_labels_are_a_choice(form: str, capsys: pytest.CaptureFixture) -> None:
    frame = drawn()
    positive = frame["outcome"] == "fraud"
    labels = frame["outcome"].astype(object) if "texts" in form else positive.astype(float)
    labels = labels.mask(np.arange(ROWS) % 50 == 7)
    name = "fraud" if "texts" in form else "1"
    options = ["--score-kind", "logit", "--positive", name, "--calibrators", "temperature"]
    if form.endswith(".npz"):
        np.savez(form, logits=frame["z"], labels=labels.to_numpy(float))
    else:
        table = pd.DataFrame({"z": frame["z"], "label": labels})
        table.to_csv(form, index=False) if "csv" in form else table.to_parquet(form)
    words = [form, "label", "8 of 400", "first in row 7", "--missing-labels drop"]
    refused(["posthoc", form, *options], words, capsys)
    found, _ = read_labelled_predictions(
        Path(form), Reading(kind="logit", positive=name, drop_unlabelled=True)
    )
    assert any(
        note.endswith("8 of 400 rows have no label and are left out") for note in found.notes
    )
    assert found.labels is not None
    assert found.labels.tolist() == positive[np.arange(ROWS) % 50 != 7].astype(int).tolist()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrator fitted on one declared score, some labels of which were missing."""
    home = tmp_path_factory.mktemp("saved")
    frame = drawn()
    frame.loc[[3, 8], "outcome"] = None
    table = stored(frame, str(home / "val.csv"), "logit")
    options = [*FRAUD, "--score-kind", "logit", "--missing-labels", "drop"]
    places = ["--save", str(home / "m.json"), "--out", str(home / "posthoc")]
    assert main(["posthoc", str(table), *options, *places]) == 0
    return home / "m.json"


def test_blind_ece_is_said_in_the_terminal_and_on_the_page(capsys: pytest.CaptureFixture) -> None:
    frame = drawn(rows=1500)
    frame = frame[(frame["outcome"] == "ok") | (np.arange(1500) % 8 == 0)].reset_index()
    stored(frame, "val.csv", "logit")
    assert main(["posthoc", "val.csv", *FRAUD, "--score-kind", "logit"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    page = Path("posthoc/report.html").read_text()
    row = pd.read_csv("posthoc/leaderboard.csv").set_index("winner").loc[True]
    for text in (printed, page):
        assert "Top-label ECE is blind here: ok has 98" in text
        assert f"AUROC {row['auroc']:.3f}, average precision {row['average_precision']:.3f}" in text
    assert "probability of fraud" in page


@pytest.mark.parametrize("source", ["one.csv", "one.parquet", "one1.npz"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_ids_stay_with_the_rows_and_the_declaration_is_remembered(
    source: str, suffix: str, saved: Path, capsys: pytest.CaptureFixture
) -> None:
    shuffled = drawn(seed=1).sample(frac=1, random_state=0).reset_index(drop=True)
    path = stored(shuffled, source, "logit")
    named = ["--score", "risk"] if source.endswith(".npz") else []
    capsys.readouterr()
    assert main(["apply", str(saved), str(path), *named, "--out", f"out{suffix}"]) == 0
    assert "kept beside the results: " in capsys.readouterr().out
    if suffix == ".npz":
        with np.load("out.npz") as arrays:
            ids, fraud = list(arrays["id"]), arrays["probabilities"][:, 1]
    else:
        read = {".csv": lambda p: pd.read_csv(p, dtype={"id": str}), ".parquet": pd.read_parquet}
        table = read[suffix](f"out{suffix}")
        ids, fraud = list(table["id"]), table["prob_fraud"]
    assert ids == list(shuffled["id"])
    assert (np.argsort(fraud, kind="stable") == np.argsort(shuffled["z"], kind="stable")).all()


def test_a_prior_is_applied_by_bayes_and_changes_no_figure(capsys: pytest.CaptureFixture) -> None:
    frame = drawn()
    stored(frame, "val.csv", "logit")
    fit = ["posthoc", "val.csv", *FRAUD, "--score-kind", "logit"]
    assert main([*fit, "--save", "plain.json"]) == 0
    figures = Path("posthoc/results.csv").read_text().splitlines()
    assert main([*fit, "--save", "prior.json", "--prior", "fraud=0.3"]) == 0
    assert "not corrected" in capsys.readouterr().out
    again = Path("posthoc/results.csv").read_text().splitlines()
    times = figures[0].split(",").index("fit_seconds")
    for one, two in zip(figures, again, strict=True):
        pair = [line.split(",")[:times] + line.split(",")[times + 1 :] for line in (one, two)]
        assert pair[0] == pair[1]
    for arguments in (
        ["plain.json", "val.csv", "--out", "plain.csv"],
        ["plain.json", "val.csv", "--prior", "ok=0.7", "--out", "asked.csv"],
        ["prior.json", "val.csv", "--out", "saved.csv"],
    ):
        assert main(["apply", *arguments]) == 0
    plain, asked, saved = (
        pd.read_csv(f"{name}.csv")["prob_fraud"] for name in ("plain", "asked", "saved")
    )
    share = (frame["outcome"] == "fraud").mean()
    assert f"fraud {share:.2%} → 30.00%" in capsys.readouterr().out
    odds = plain / (1 - plain) * (0.3 / share) / (0.7 / (1 - share))
    np.testing.assert_allclose(asked, odds / (1 + odds), rtol=1e-9)
    np.testing.assert_allclose(saved, asked, rtol=1e-12)
    about = json.loads(Path("prior.json").read_text())["about"]
    assert about["prior"] == {"fraud": 0.3}
    assert about["class_shares"][1] == pytest.approx(share)


def test_priors_that_cannot_be_are_refused(saved: Path, capsys: pytest.CaptureFixture) -> None:
    stored(drawn(), "val.csv", "logit")
    fit = ["posthoc", "val.csv", *FRAUD, "--score-kind", "logit"]
    refused([*fit, "--prior", "fraud=0.3"], ["--prior", "add --save"], capsys)
    refused([*fit, "--prior", "bad=0.3", "--save", "m.json"], ["no class 'bad'"], capsys)
    assert not Path("posthoc").exists()
    apply = ["val.csv", "--out", "o.csv", "--prior"]
    for text, words in {
        "0.3": ["found '0.3'", "CLASS=SHARE"],
        "bad=0.3": ["no class 'bad'", "ok, fraud"],
        "fraud=3": ["fraud: found 3", "between 0 and 1"],
        "fraud=0.3,ok=0.3": ["sum to 0.6"],
    }.items():
        refused(["apply", str(saved), *apply, text], words, capsys)
    old = json.loads(saved.read_text())
    del old["about"]["class_shares"]
    Path("old.json").write_text(json.dumps(old))
    words = ["old.json", "does not record the classes' frequencies", "fit it again"]
    refused(["apply", "old.json", *apply, "fraud=0.3"], words, capsys)
    frame = drawn()
    pair = torch.stack([torch.zeros(ROWS), torch.from_numpy(frame["z"].to_numpy()).float()], 1)
    truth = torch.from_numpy((frame["outcome"] == "fraud").to_numpy()).long()
    top = save_calibrator(calibrators.fit("isotonic_top_label", pair, truth))
    Path("top.json").write_text(json.dumps(top | {"about": json.loads(saved.read_text())["about"]}))
    words = ["only the confidence of the predicted class"]
    refused(["apply", "top.json", *apply, "fraud=0.3"], words, capsys)
