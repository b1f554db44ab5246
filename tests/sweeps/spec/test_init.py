"""The first spec that ``calsweep init`` writes, whatever the data file is called and holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from calibration.data.fixed import TEST_SHARE
from calibration.methods import METHODS
from sweeps.cli.main import main
from sweeps.errors import UserError
from sweeps.spec import LoadedSpec, load_spec
from sweeps.spec.data_warnings import warnings_in
from sweeps.spec.loading import read_spec
from sweeps.spec.template import new_spec

ROWS = 120
HOSTILE = [
    "c\nretries: 99\n# ",
    "c\r\nretries: 99\r\n# ",
    "c\x85retries: 99\x85# ",
    "c\u2028retries: 99\u2028# ",
    "tab\there",
    "\x7f\x1b[31m",
    "'\" # : {x}, [y]",
    "x" * 3000,
    "😀\u202e",
    ".5",
    "no",
]


def frame(**columns: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    size = rng.normal(size=ROWS)
    return pd.DataFrame({"size": size, "label": np.where(size > 0, "big", "small")} | columns)


def written(
    folder: Path, data: pd.DataFrame, file: str = "my.csv", target: str = "label"
) -> tuple[str, LoadedSpec]:
    """The text of the spec, and the spec itself once it was read."""
    data.to_csv(folder / file, index=False)
    name, text = new_spec(folder / file, target, "fast", folder)
    return text, read_spec(text, folder / f"{name}.yaml", folder)


def remarks(text: str) -> list[str]:
    return [line.removeprefix("# - ") for line in text.splitlines() if line.startswith("# - ")]


def refusal(data: Path, target: str | None = "label") -> str:
    with pytest.raises(UserError) as raised:
        new_spec(data, target, "fast", data.parent)
    return str(raised.value)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("place", ["input", "gap", "dropped", "class", "target"])
def test_names_stay_in_their_remarks(tmp_path: Path, name: str, place: str) -> None:
    plain = frame(other=["a", "b"] * (ROWS // 2))
    holes = np.where(np.arange(ROWS) % 7 == 0, np.nan, np.arange(ROWS) % 5)
    changed = {
        "input": lambda: plain.rename(columns={"other": name}),
        "gap": lambda: plain.assign(**{name: holes}),
        "dropped": lambda: plain.assign(**{name: 1.0}),
        "class": lambda: plain.replace({"label": {"big": name}}),
        "target": lambda: plain.rename(columns={"label": name}),
    }[place]()
    changed.to_parquet(tmp_path / "my.parquet")
    target = name if place == "target" else "label"
    _, text = new_spec(tmp_path / "my.parquet", target, "fast", tmp_path)
    expected = {"name": "table", "target": target, "path": "my.parquet"}
    if place == "dropped":
        expected["drop"] = [name]
    plain.to_parquet(tmp_path / "my.parquet")
    harmless = yaml.safe_load(new_spec(tmp_path / "my.parquet", "label", "fast", tmp_path)[1])
    assert yaml.safe_load(text) == harmless | {"datasets": [expected]}
    changed.to_parquet(tmp_path / "my.parquet")
    loaded = read_spec(text, tmp_path / "my.yaml", tmp_path)
    assert loaded.spec.retries == 3
    (dataset,) = loaded.datasets.values()
    assert (name in dataset.class_names) == (place == "class")
    assert (name in [c.name for c in dataset.columns]) == (place in ("input", "gap"))
    lines = [line for line in text.split("\n") if line.startswith("#")]
    assert all(line.isprintable() and len(line) < 200 for line in lines)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a\nretries: 99\n# .csv", "a_retries__99"),
        ("Größe café.csv", "Grosse_cafe"),
        ("東京.csv", "my-sweep"),
        ("records.csv", "records-sweep"),
        ("2024.csv", "2024"),
        ("x" * 150 + ".csv", "x" * 100),
    ],
)
def test_any_file_name_makes_a_spec(tmp_path: Path, file: str, name: str) -> None:
    text, loaded = written(tmp_path, frame(), file)
    assert loaded.spec.name == name
    assert loaded.spec.retries == 3
    assert yaml.safe_load(text)["datasets"][0]["path"] == file


def test_the_share_that_is_set_aside_is_the_one_in_the_comment(tmp_path: Path) -> None:
    text, loaded = written(tmp_path, frame())
    assert f"(test_share: {TEST_SHARE:g})" in text
    assert len(loaded.datasets["my"].test(0).labels) == round(TEST_SHARE * ROWS)


@pytest.mark.parametrize("separator", [";", "\t", ","])
def test_separators_need_not_be_named(
    tmp_path: Path, separator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame().to_csv("my.csv", index=False, sep=separator)
    assert main(["init", "--data", "my.csv", "--target", "label"]) == 0
    assert [c.name for c in load_spec(Path("my.yaml")).datasets["my"].columns] == ["size"]


def test_a_file_without_a_header_is_suspected(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "bare.csv", index=False, header=False)
    rows = pd.DataFrame([[5.1, 3.5, 5.1, 0], [4.9, 3.0, 1.4, 1]] * 20)
    rows.to_csv(tmp_path / "numbers.csv", index=False, header=False)
    for target in ("label", None):
        assert "does the file have a header?" in refusal(tmp_path / "numbers.csv", target)
    rows.to_csv(tmp_path / "counted.csv", index=False)
    assert "header?" not in refusal(tmp_path / "counted.csv", None)
    text, _ = written(tmp_path, rows.set_axis(["5.1", "3.5", "1.4", "y"], axis=1), target="y")
    assert "header?" in remarks(text)[0]
    assert "header?" not in refusal(tmp_path / "bare.csv", None)  # one number is no sign


DAYS = pd.date_range("2019-01-01", periods=6, freq="7h").repeat(ROWS // 6)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([f"person {place}" for place in range(ROWS)], "nearly every row has its own text"),
        ([f"p{place}" if place < 110 else None for place in range(ROWS)], "nearly every row"),
        ([f"p{place % 100}" for place in range(ROWS)], None),
        (DAYS.strftime("%Y-%m-%d"), "it holds dates"),
        (DAYS.strftime("%Y-%m-%dT%H:%M:%SZ"), "it holds dates"),
        (DAYS.strftime("%d.%m.%Y"), "it holds dates"),
        (DAYS.strftime("%m/%d/%y %H:%M"), "it holds dates"),
        (DAYS.strftime("%d %b %Y"), "it holds dates"),
        (DAYS.strftime("%B %d, %Y"), "it holds dates"),
        (["May", "Mon"] * (ROWS // 2), None),
        (["1.2.3", "1.10.3"] * (ROWS // 2), None),
        (["2020-21", "2021-22"] * (ROWS // 2), None),
        ([f"{place},5" for place in range(ROWS)], "its numbers have commas"),
        ([None] * ROWS, "it is empty"),
        (["a"] * ROWS, "it has one value only"),
        ([3.5] * ROWS, "it has one value only"),
        (["a", None] * (ROWS // 2), None),
        (frame()["label"], "it repeats the target"),
    ],
)
def test_columns_that_teach_nothing_are_dropped_with_the_reason(
    tmp_path: Path, values: Any, why: str | None
) -> None:
    text, loaded = written(tmp_path, frame(column=values))
    found = [remark for remark in remarks(text) if remark.startswith("'column' is dropped: ")]
    assert len(found) == (why is not None)
    assert (why or "") in "".join(found)
    kept = [column.name for column in loaded.datasets["my"].columns]
    assert kept == (["size"] if why else ["size", "column"])


def test_few_rows_may_all_differ(tmp_path: Path) -> None:
    few = frame(column=[f"p{place}" for place in range(ROWS)])[:40]
    assert not any("dropped" in remark for remark in remarks(written(tmp_path, few)[0]))


def test_types_that_only_parquet_has_are_dropped(tmp_path: Path) -> None:
    frame(day=DAYS, many=[[1, 2]] * ROWS).to_parquet(tmp_path / "my.parquet")
    _, text = new_spec(tmp_path / "my.parquet", "label", "fast", tmp_path)
    found = [remark.partition(" values")[0] for remark in remarks(text)[1:3]]
    assert found == [
        "'day' is dropped: it holds Timestamp",
        "'many' is dropped: it holds ndarray",
    ]


def test_a_table_of_nothing_but_such_columns_is_refused_with_the_reasons(tmp_path: Path) -> None:
    frame()[["label"]].assign(one=1, none=None).to_csv(tmp_path / "my.csv", index=False)
    message = refusal(tmp_path / "my.csv")
    assert "my.csv: no column is left to learn from beside 'label'" in message
    assert "'one' is dropped: it has one value only" in message
    assert "'none' is dropped: it is empty" in message


def test_columns_of_one_name_are_spoken_of(tmp_path: Path) -> None:
    doubled = pd.concat([frame(), frame()[["size"]] ** 2], axis=1)
    text, _ = written(tmp_path, doubled)
    assert "2 columns are called 'size': the later ones get numbers" in remarks(text)
    text, _ = written(tmp_path, doubled.set_axis(["size", "label", "size.1"], axis=1))
    assert "later ones" not in text


def test_targets_that_are_no_classes_are_refused_with_a_way_out(tmp_path: Path) -> None:
    data = tmp_path / "my.csv"
    frame(price=np.arange(ROWS) / 8).to_csv(data, index=False)
    message = refusal(data, "price")
    assert message.startswith(f"{data}, column 'price': a class label cannot be the fraction 0.125")
    assert "round the 120 different values or group them in bins, or choose another" in message
    frame(row=np.arange(ROWS)).to_csv(data, index=False)
    message = refusal(data, "row")
    assert message.startswith(f"{data}, column 'row': the test part would be empty")
    # Enough for a test part, but too few are left for a validation part.
    frame(row=np.arange(ROWS) // 3)[:12].to_csv(data, index=False)
    message = refusal(data, "row")
    assert message.startswith(f"{data}, column 'row': the validation part")


def test_a_class_of_one_row_is_trained_on_and_pointed_out(tmp_path: Path) -> None:
    data = frame()
    data.loc[3, "label"] = "single"
    data.loc[4:8, "label"] = "rare"
    text, loaded = written(tmp_path, data)
    assert "only trained on, never judged by (fewer than 3 rows): single" in remarks(text)
    assert "few rows to learn and judge by (fewer than 20) of: rare" in remarks(text)
    assert loaded.datasets["my"].class_names == ("big", "rare", "single", "small")


def test_a_target_says_nothing_about_arrays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("my.npz", X=np.random.default_rng(0).normal(size=(90, 2)), y=np.arange(90) % 3)
    assert main(["init", "--data", "my.npz", "--target", "y"]) == 2
    assert "leave --target out" in capsys.readouterr().err
    assert main(["init", "--data", "my.npz"]) == 0
    assert remarks(Path("my.yaml").read_text()) == ["3 classes: 0 (30), 1 (30), 2 (30)"]


def test_nobody_is_advised_to_load_pickles(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"nonsense")
    objects = np.array([{}] * 9, dtype=object)
    np.savez(tmp_path / "objects.npz", X=objects, y=np.arange(9) % 3)
    for file in ("bad.npz", "objects.npz"):
        message = refusal(tmp_path / file, None)
        assert message.startswith(f"{tmp_path / file}: not a readable NPZ file of plain arrays")
        assert "pickle" not in message


@pytest.mark.parametrize(
    ("column", "values", "warning"),
    [
        ("customer_id", np.arange(ROWS) // 4, "group: 'customer_id' keeps them together"),
        ("patientId", np.arange(ROWS) // 4, "an identifier that repeats (30 different values"),
        ("who", [f"c{row // 4}" for row in range(ROWS)], "an identifier that repeats"),
        ("seen", [f"2024-03-{1 + row // 5:02}" for row in range(ROWS)], "looks like a time"),
        ("year", 1990 + np.arange(ROWS) % 30, "looks like a time"),
        ("sampleWeight", np.linspace(0, 2, ROWS), "weight: 'sampleWeight' training"),
        ("weight", np.linspace(40, 90, ROWS), "If it says how much each row counts"),
        ("weight_loss", np.linspace(-1, 1, ROWS), None),
        ("age", 20 + np.arange(ROWS) % 50, None),
        ("row", np.arange(ROWS), None),
        ("city", ["Rome", "Oslo", "Bern", "Riga"] * (ROWS // 4), None),
        ("user_score", np.linspace(0, 1, ROWS), None),
    ],
)
def test_rows_that_belong_together_are_warned_of(
    tmp_path: Path, column: str, values: Any, warning: str | None
) -> None:
    text, _ = written(tmp_path, frame(**{column: values}))
    found = warnings_in(text)
    assert (warning is None) == (not found)
    assert warning is None or (len(found) == 1 and repr(column) in found[0] and warning in found[0])


def test_amounts_and_rare_classes_are_warned_of(tmp_path: Path) -> None:
    amounts = frame().loc[np.arange(ROWS).repeat(12)].assign(label=np.arange(12 * ROWS) % 300)
    (warning,) = warnings_in(written(tmp_path, amounts, "amounts.csv")[0])
    assert "the target has 300 different values" in warning
    labels = ["no"] * (3 * ROWS - 4) + ["yes"] * 4
    rare = frame().loc[np.arange(ROWS).repeat(3)].assign(label=labels)
    (warning,) = warnings_in(written(tmp_path, rare, "rare.csv")[0])
    assert f"class yes has {400 / (3 * ROWS):.2g} % of the rows" in warning


def test_warnings_are_printed_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame(customer_id=np.arange(ROWS) // 4).to_csv("my.csv", index=False)
    assert main(["init", "--data", "my.csv", "--target", "label"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Warning: 'customer_id' looks like an identifier that repeats" in printed


def test_estimators_stand_beside_the_networks_of_a_table(tmp_path: Path) -> None:
    _, spec = written(tmp_path, frame())
    names = list(spec.spec.methods)
    assert names[:3] == ["logistic_regression", "hist_gradient_boosting", "standard"]
    _, text = new_spec(tmp_path / "my.csv", "label", "all", tmp_path)
    every = read_spec(text, tmp_path / "my.yaml", tmp_path).spec.methods
    assert set(every) == {*names[:2], *METHODS}
