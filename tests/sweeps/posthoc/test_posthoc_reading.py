"""How the files of ``calsweep posthoc`` are read, and what is said of them."""

from __future__ import annotations

import copy
import functools
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from calibration import calibrators
from calibration.calibrators.saving import save_calibrator
from calibration.data.predictions import read_labelled_predictions, read_predictions
from sweeps.cli.main import main
from sweeps.posthoc import StoredEvaluation, evaluate_stored
from sweeps.posthoc.page import evaluation_page

CLASSES = np.array(["ant", "bee", "cat"])


def drawn(rows: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Over-confident logits of three classes, and labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, 3, generator=generator)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
    return (2.5 * logits).double().numpy(), labels.numpy()


Z, Y = drawn(60)
P = torch.from_numpy(Z).softmax(-1).numpy()


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def write(name: str, columns: list[str], labels: Any, scores: Any = P, **more: Any) -> None:
    table = pd.DataFrame(scores, columns=columns).assign(**more, label=labels)
    table.to_csv(name, index=False)


def refused(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == []
    assert not Path("posthoc").exists()


NUMBERED = ["prob_1", "prob_2", "prob_3"]


def test_classes_called_by_numbers_take_no_positions(capsys: pytest.CaptureFixture) -> None:
    """Read file by file, these labels would be positions here and names there."""
    write("val.csv", NUMBERED, Y)
    write("test.csv", NUMBERED, Y.clip(1))
    words = ["val.csv: column 'label'", "found 0", "classes 1, 2, 3"]
    words += ["write their names as labels", "call the columns …_0 to …_2"]
    refused(["posthoc", "val.csv", "test.csv", "--calibrators", "temperature"], words, capsys)
    np.savez("val.npz", logits=Z, labels=Y, class_names=np.array(["1", "2", "3"]))
    refused(["posthoc", "val.npz"], ["found 0", "class_names 0 to 2"], capsys)


@pytest.mark.parametrize(
    ("names", "labels", "codes", "reading"),
    [
        (["1", "2", "3"], Y + 1, Y, "class names 1, 2, 3"),
        (["1", "2", "3"], Y.clip(1), Y.clip(1) - 1, "class names 1, 2, 3"),
        (["2", "0", "1"], Y, (Y + 1) % 3, "class names 2, 0, 1"),
        (["0", "1", "2"], Y, Y, "class numbers 0…2"),
        (["ant", "bee", "cat"], Y, Y, "class numbers 0…2"),
        (["ant", "bee", "cat"], CLASSES[Y], Y, "class names ant, bee, cat"),
    ],
)
def test_the_reading_of_labels_is_that_of_the_names_and_is_said(
    names: list[str], labels: NDArray[Any], codes: NDArray[Any], reading: str
) -> None:
    write("val.csv", [f"prob_{name}" for name in names], labels)
    found, _ = read_labelled_predictions(Path("val.csv"))
    assert found.labels is not None
    assert found.labels.tolist() == codes.tolist()
    assert found.notes[0].endswith(f"taken as probabilities, labels as {reading}")


@pytest.mark.parametrize(
    ("names", "labels", "found"),
    [
        (["1", "2", "x"], Y, "found 0"),
        (["1.0", "2.0", "3.0"], Y + 1, "found 1"),
        (["True", "False", "other"], Y, "found 0"),
    ],
)
def test_what_may_mean_another_class_is_refused(
    names: list[str], labels: NDArray[Any], found: str
) -> None:
    write("val.csv", [f"prob_{name}" for name in names], labels)
    with pytest.raises(ValueError, match=f"{found}, which is none of the classes"):
        read_labelled_predictions(Path("val.csv"))


def test_true_and_false_are_one_and_zero_or_names() -> None:
    two = P[:, :2] / P[:, :2].sum(1, keepdims=True)
    for columns, codes in ((["prob_0", "prob_1"], Y > 0), (["prob_True", "prob_False"], Y == 0)):
        write("val.csv", columns, Y > 0, two)
        found, _ = read_labelled_predictions(Path("val.csv"))
        assert found.labels is not None
        assert found.labels.tolist() == codes.astype(int).tolist()


def test_numbers_shifted_between_files_are_not_the_same_classes(
    capsys: pytest.CaptureFixture,
) -> None:
    write("val.csv", NUMBERED, Y + 1)
    np.savez("test.npz", logits=Z, labels=Y)
    words = ["class 0 is '1' in val.csv, but '0' in test.npz", "class_names"]
    refused(["posthoc", "val.csv", "test.npz"], words, capsys)
    write("val.csv", ["prob_ant", "prob_bee", "prob_cat"], CLASSES[Y])
    assert main(["posthoc", "val.csv", "test.npz", "--calibrators", "temperature"]) == 0


@pytest.mark.parametrize(
    ("columns", "labels", "words"),
    [
        (["ant", "bee", "age"], CLASSES[Y], ["label 'cat'", "no column", "prob_CLASS"]),
        (["ant", "bee", "cat"], CLASSES[Y.clip(1)], ["no label is 'ant'", "prob_CLASS"]),
        (["ant", "bee", "cat"], Y, ["labels are numbers", "0…2", "ant, bee, cat", "prob_CLASS"]),
        (["1", "2", "3"], Y + 1, ["labels are numbers", "0…2", "1, 2, 3", "prob_CLASS"]),
        (["prob", "age", "height"], Y % 2, ["column 'prob'", "--score-kind probability"]),
        (["prob_1", "age", "height"], Y % 2, ["column 'prob_1'", "--positive"]),
        (["p", "age", "height"], Y % 2, ["column 'p'", "--score-kind probability"]),
        (["logit", "age", "height"], Y % 2, ["column 'logit'", "--score-kind logit"]),
    ],
)
def test_columns_that_may_be_no_classes_are_refused(
    columns: list[str], labels: NDArray[Any], words: list[str], capsys: pytest.CaptureFixture
) -> None:
    write("mine.csv", columns, labels)
    refused(["posthoc", "mine.csv", "--calibrators", "temperature"], ["mine.csv: ", *words], capsys)


def test_a_further_column_of_numbers_is_no_class(capsys: pytest.CaptureFixture) -> None:
    for columns, labels in ((["ant", "bee", "cat"], CLASSES[Y]), (["0", "1", "2"], Y)):
        write("mine.csv", columns, labels, age=30)
        refused(["posthoc", "mine.csv"], ["age", "prob_CLASS"], capsys)
        write("mine.csv", columns, labels, id=range(60), note="x")
        found, _ = read_labelled_predictions(Path("mine.csv"))
        assert found.class_names == tuple(columns)
        assert found.notes[1] == "mine.csv: not used: id, note"


def test_a_class_may_be_called_p() -> None:
    two = P[:, :2] / P[:, :2].sum(1, keepdims=True)
    write("mine.csv", ["e", "p"], np.array(["e", "p"])[Y.clip(0, 1)], two)
    assert read_labelled_predictions(Path("mine.csv"))[0].class_names == ("e", "p")
    assert read_predictions(Path("mine.csv")).class_names == ("e", "p")


def test_absurd_logits_are_refused_by_row_and_value(capsys: pytest.CaptureFixture) -> None:
    high = Z.copy()
    high[7, 2] = -1e6
    np.savez("mine.npz", logits=high, labels=Y)
    assert read_labelled_predictions(Path("mine.npz"))[0].classes == 3
    high[7, 2] = -1.5e9
    np.savez("mine.npz", logits=high, labels=Y)
    words = ["mine.npz: logits", "±1,000,000", "found -1.5e+09 in row 7, class 2", "±100"]
    refused(["posthoc", "mine.npz"], words, capsys)
    write("mine.csv", ["0", "1", "2"], Y, high)
    refused(["posthoc", "mine.csv"], ["mine.csv: columns", "row 7, class 2"], capsys)


def evaluated(logits: NDArray[Any], labels: NDArray[Any], *, cut: int = 0) -> StoredEvaluation:
    np.savez("a.npz", logits=logits[cut:], labels=labels[cut:], class_names=CLASSES)
    validation, test = read_labelled_predictions(Path("a.npz"))[0], None
    if cut:
        np.savez("b.npz", logits=logits[:cut], labels=labels[:cut], class_names=CLASSES)
        test = read_labelled_predictions(Path("b.npz"))[0]
    return evaluate_stored(validation, test, ["temperature"])


def test_classes_without_validation_rows_are_named(capsys: pytest.CaptureFixture) -> None:
    said = (
        "no validation row is of the class cat; calibrators with a parameter per class learn "
        "never to predict it"
    )
    assert said in evaluation_page(evaluated(Z, Y.clip(0, 1)))
    assert main(["posthoc", "a.npz", "--calibrators", "temperature"]) == 0
    assert f"a: {said}" in capsys.readouterr().out
    assert "no validation row" not in evaluation_page(evaluated(Z, Y))


def test_an_infinite_loss_that_a_map_ends_is_better_in_the_terminal_and_on_the_page(
    capsys: pytest.CaptureFixture,
) -> None:
    """A temperature brings the probability of the one surprising class above zero."""
    z, y = drawn(400)
    z[3] = (-1e3, 0, 0)
    y[3] = 0
    np.savez("val.npz", logits=z[200:], labels=y[200:])
    np.savez("test.npz", logits=z[:200], labels=y[:200])
    assert main(["posthoc", "val.npz", "test.npz", "--calibrators", "temperature"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (plain,) = (line for line in lines if line.lstrip().startswith("as is"))
    (mapped,) = (line for line in lines if line.lstrip().startswith("temperature"))
    assert "∞" in plain
    assert "∞" not in mapped
    assert mapped.count("✓") == 2  # ECE and NLL
    assert "better in NLL" in Path("posthoc/report.html").read_text()


def test_how_results_were_judged_is_said_in_the_terminal_and_on_the_page(
    capsys: pytest.CaptureFixture,
) -> None:
    flattered = "he best is chosen on the same rows, so its figures are slightly optimistic."
    judged = "5 folds for validation NLL, 1000 bootstrap resamples"
    z, y = drawn(120)
    page = evaluation_page(evaluated(z, y))
    assert flattered in page
    assert judged in page
    assert main(["posthoc", "a.npz", "--calibrators", "temperature"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert flattered in printed
    assert judged in printed
    assert flattered not in evaluation_page(evaluated(z, y, cut=50))


def test_fewer_folds_for_many_rows_are_said() -> None:
    found = evaluated(*drawn(20_001))
    assert (found.folds, found.resamples) == (2, 999)
    assert "2 folds (more than 20,000 rows) for validation NLL, 999" in evaluation_page(found)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in values of JSON."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        yield (*at, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*at, key))


def huge(name: str) -> dict[str, Any]:
    return {name: {"type": "<f8", "shape": [10**9, 10**9], "zlib": ""}}


JUNK: list[Any] = [None, True, -1, 10**9, 10**30, 1e308, "", "x", [], {}, [[]], huge("tensor")]
JUNK += [{"object": "os:system"}, {"pairs": [[{"tuple": [[1]]}, 1]]}, huge("array")]


def damaged(saved: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A saved calibrator with one thing replaced, removed or cut."""
    copied = copy.deepcopy(saved)
    *way, last = chance.choice(list(places(copied)))
    holder = functools.reduce(lambda value, key: value[key], way, copied)
    if isinstance(holder[last], str) and chance.random() < 0.4:
        holder[last] = holder[last][: chance.randrange(len(holder[last]) + 1)]
    elif isinstance(holder, dict) and chance.random() < 0.3:
        del holder[last]
    else:
        holder[last] = chance.choice(JUNK)
    return copied


def test_damaged_maps_are_applied_or_refused_in_one_line(capsys: pytest.CaptureFixture) -> None:
    np.savez("val.npz", logits=Z)
    chance = random.Random(5)
    codes = Counter[int]()
    for name in ("temperature", "vector", "isotonic", "beta"):
        fitted = calibrators.fit(name, torch.from_numpy(Z), torch.from_numpy(Y))
        for _ in range(25):
            saved = json.dumps(damaged(save_calibrator(fitted), chance))
            Path("calibrator.json").write_text(saved)
            codes[main(["apply", "calibrator.json", "val.npz", "--out", "out.npz"])] += 1
            said = capsys.readouterr().err
            assert said == "" or (
                said.startswith("calsweep: calibrator.json: ") and said.count("\n") == 1
            )
    assert set(codes) <= {0, 2}
    assert codes[2] > 50


def test_damaged_files_are_refused_in_one_line(capsys: pytest.CaptureFixture) -> None:
    """By the command, whatever the format: bytes flipped or cut off."""
    fitted = calibrators.fit("temperature", torch.from_numpy(Z), torch.from_numpy(Y))
    Path("calibrator.json").write_text(json.dumps(save_calibrator(fitted)))
    table = pd.DataFrame(Z, columns=["logit_a", "logit_b", "logit_c"])
    np.savez_compressed("good.npz", logits=Z)
    for suffix in ("csv", "csv.gz", "csv.zip", "csv.bz2", "csv.xz", "csv.tar"):
        table.to_csv(f"good.{suffix}", index=False)
    table.to_parquet("good.parquet")
    Path("good.csv.zst").write_bytes(b"\x28\xb5\x2f\xfd nonsense")
    chance = random.Random(6)
    codes = Counter[int]()
    for good in sorted(Path().glob("good.*")):
        for _ in range(15):
            content = bytearray(good.read_bytes())
            for _ in range(chance.randrange(1, 4)):
                content[chance.randrange(len(content))] = chance.randrange(256)
            bad = good.name.replace("good", "bad")
            Path(bad).write_bytes(content[: chance.choice([None, chance.randrange(len(content))])])
            codes[main(["apply", "calibrator.json", bad, "--out", "out.npz"])] += 1
            said = capsys.readouterr().err
            assert said == "" or (said.startswith(f"calsweep: {bad}: ") and said.count("\n") == 1)
    assert set(codes) <= {0, 2}
    assert codes[2] > 60
