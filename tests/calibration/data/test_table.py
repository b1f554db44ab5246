from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from calibration.data import PROTOCOLS, Dataset, load_dataset
from calibration.data.columns import MISSING_CODE, UNKNOWN_CODE, encode_columns, infer_columns
from calibration.data.frames import read_frame, repeated_names
from calibration.memory import TooLargeError

HONEST = PROTOCOLS["honest"]


def people(rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": np.arange(rows),
            "größe": rng.normal(170, 10, rows).round(2),
            "städte": rng.choice(["Köln", "東京", 'O\'Hare, "x"'], rows),
            "smoker": rng.random(rows) < 0.5,
            "constant": 1.5,
            "empty": np.nan,
            "outcome": rng.choice(["ja", "nein", "vielleicht"], rows),
        }
    )
    frame.loc[::5, "größe"] = np.nan
    frame.loc[::7, "städte"] = None
    return frame


def write(folder: Path, frame: pd.DataFrame, file: str = "people.csv") -> Path:
    path = folder / file
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return path


def load(path: Path, **options: object) -> Dataset:
    return load_dataset("table", {"path": str(path), "target": "outcome", **options})


def test_csv_and_parquet_hold_the_same_dataset(tmp_path: Path) -> None:
    frame = people()
    frame["smoker"] = frame["smoker"].astype("boolean").where(frame.index % 4 > 0)
    csv = load(write(tmp_path, frame), drop=["id"])
    packed = load(write(tmp_path, frame, "p.parquet"), drop=["id"])
    compressed = load(write(tmp_path, frame, "q.csv.gz"), drop=["id"])
    assert csv.fingerprint == packed.fingerprint == compressed.fingerprint
    assert (csv.name, packed.name, compressed.name) == ("people", "p", "q")
    assert csv.kind == "table"
    assert csv.class_names == ("ja", "nein", "vielleicht")
    kinds = {column.name: column.kind for column in csv.columns}
    assert kinds == {
        "größe": "numeric",
        "städte": "categorical",
        "smoker": "numeric",
        "constant": "numeric",
        "empty": "numeric",
    }
    assert csv.columns[1].categories == ("Köln", 'O\'Hare, "x"', "東京")
    splits = csv.split(HONEST, 0, held_out=True)
    inputs = splits.transform(splits.train.inputs)
    # four numbers, three of them with an indicator, four levels (missing is one)
    assert inputs.shape == (len(splits.train.labels), 4 + 3 + 4)
    assert inputs.isfinite().all()


def test_rows_survive_the_way_through_file_and_split(tmp_path: Path) -> None:
    frame = people().assign(empty=0.0)
    dataset = load(write(tmp_path, frame), categorical=["id"])
    splits = dataset.split(HONEST, 3, held_out=True)
    assert splits.meta_validation is not None
    parts = [splits.train, splits.validation, splits.meta_validation, dataset.test(3)]
    seen: list[int] = []
    for part in parts:
        for values, label in zip(part.inputs, part.labels, strict=True):
            row = frame.iloc[int(dataset.columns[0].categories[int(values[0])])]
            seen.append(row["id"])
            assert dataset.class_names[int(label)] == row["outcome"]
            assert np.isclose(values[1], row["größe"], equal_nan=True)
            town = dataset.columns[2].categories[int(values[2])] if values[2] >= 0 else None
            assert town == (row["städte"] if isinstance(row["städte"], str) else None)
            assert values[3] == row["smoker"]
    assert sorted(seen) == list(range(60))


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([3, 1, 2], ("1", "2", "3")),
        ([10, 9, -1], ("-1", "9", "10")),
        ([True, False, True], ("False", "True")),
        (["b", "ä", "a"], ("a", "b", "ä")),
        ([1.0, 0.0, 2.0], ("0", "1", "2")),
    ],
)
@pytest.mark.parametrize("file", ["t.csv", "t.parquet"])
def test_labels_of_any_type(
    tmp_path: Path, values: list[object], names: tuple[str, ...], file: str
) -> None:
    frame = people().assign(outcome=values * 20)
    dataset = load(write(tmp_path, frame, file))
    assert dataset.class_names == names
    test = dataset.test(0)
    row = frame.iloc[int(test.inputs[0, 0])]
    assert dataset.class_names[int(test.labels[0])] == str(row["outcome"]).removesuffix(".0")


def test_a_test_file_is_the_test_part(tmp_path: Path) -> None:
    frame = people(80)
    later = frame[60:].assign(extra="ignored")
    later.loc[60, "städte"] = "Oz"
    path, test_path = write(tmp_path, frame[:60]), write(tmp_path, later, "later.csv")
    dataset = load(path, test_path=str(test_path))
    test = dataset.test(0)
    assert test.inputs[:, 0].tolist() == list(range(60, 80))
    splits = dataset.split(HONEST, 0, held_out=False)
    assert len(splits.train.labels) + len(splits.validation.labels) == 60
    assert test.inputs[0, 2] == UNKNOWN_CODE
    with pytest.raises(ValueError, match=r"later\.csv: no input column 'größe'"):
        load(path, test_path=str(write(tmp_path, later.drop(columns="größe"), "later.csv")))
    strange = later.assign(outcome="niemals")
    with pytest.raises(ValueError, match=r"later\.csv, column 'outcome': class 'niemals' does not"):
        load(path, test_path=str(write(tmp_path, strange, "later.csv")))


def test_a_users_new_frame_is_encoded_like_the_file(tmp_path: Path) -> None:
    frame = people()
    dataset = load(write(tmp_path, frame), drop=["id"])
    raw = dataset.encode(frame[::-1])
    fitted = dataset.split(HONEST, 0, held_out=False).transform
    test = dataset.test(0)
    expected = {tuple(row) for row in fitted(test.inputs).tolist()}
    assert expected <= {tuple(row) for row in fitted(raw).tolist()}
    odd = frame[["städte", "smoker", "constant", "empty", "größe"]][:2].assign(städte=["Oz", None])
    assert dataset.encode(odd)[:, 1].tolist() == [UNKNOWN_CODE, MISSING_CODE]
    with pytest.raises(ValueError, match="no input column 'größe'"):
        dataset.encode(frame.drop(columns="größe"))
    with pytest.raises(ValueError, match="'größe' should hold numbers, found 'tall'"):
        dataset.encode(frame.assign(größe="tall"))
    with pytest.raises(ValueError, match="'digits' has no named columns"):
        load_dataset("digits", {}).encode(frame)


def test_a_foreign_category_outside_training_changes_nothing(tmp_path: Path) -> None:
    """Also through the file: a name that sorts first must not shift the inputs."""
    frame = people()
    dataset = load(write(tmp_path, frame))
    splits = dataset.split(HONEST, 0, held_out=False)
    held = splits.validation.inputs[0, 0].item()
    frame.loc[frame["id"] == held, ["städte", "größe"]] = ["AAA", 9e9]
    again = load(write(tmp_path, frame)).split(HONEST, 0, held_out=False)
    assert not again.validation.inputs.equal(splits.validation.inputs)
    before = splits.transform(splits.train.inputs)
    assert again.transform(again.train.inputs).equal(before)


def test_numbers_can_be_declared_categories(tmp_path: Path) -> None:
    frame = people().assign(zip=[50667, 10115, None] * 20)
    dataset = load(write(tmp_path, frame), categorical=["zip"])
    assert dataset.columns[-1].categories == ("10115", "50667")
    assert dataset.encode(frame)[:3, -1].tolist() == [1, 0, MISSING_CODE]
    assert dataset.encode(frame.assign(zip="10115"))[:, -1].unique().tolist() == [0]


def test_a_written_index_is_no_input(tmp_path: Path) -> None:
    people().to_csv(tmp_path / "p.csv")
    assert load(tmp_path / "p.csv").columns[0].name == "id"


def test_separators_and_byte_order_marks(tmp_path: Path) -> None:
    frame = people()
    expected = load(write(tmp_path, frame)).fingerprint
    frame.to_csv(tmp_path / "s.csv", index=False, sep=";", encoding="utf-8-sig")
    frame.to_csv(tmp_path / "s.tsv", index=False, sep="\t")
    frame.to_csv(tmp_path / "t.txt.gz", index=False, sep="\t", encoding="utf-8-sig")
    assert load(tmp_path / "s.csv", separator=";").fingerprint == expected
    for file in ("s.csv", "s.tsv", "t.txt.gz"):
        assert load(tmp_path / file).fingerprint == expected
    (tmp_path / "ragged.csv").write_text("a,outcome\n1,ja\n1,2,3,nein\n")
    with pytest.raises(ValueError, match=r"ragged\.csv: .* is the option separator right"):
        load(tmp_path / "ragged.csv")
    with pytest.raises(ValueError, match="no target column 'outcome'; columns: id;größe"):
        load(tmp_path / "s.csv", separator="|")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a;b\n1;2\n", ["a", "b"]),
        ("a\tb\n1\t2\n", ["a", "b"]),
        ('"x, y";b\n1;2\n', ["x, y", "b"]),
        ('"x;y",b\n1,2\n', ["x;y", "b"]),
        ('"x;y"\n1\n', ["x;y"]),
        ("a;b,c\n1,2\n", ["a;b", "c"]),
        ("a;b;c\td\n1;2;3\n", ["a", "b", "c\td"]),
        ('"say ""x;y""",b\n1,2\n', ['say "x;y"', "b"]),
        ("a\n1\n", ["a"]),
    ],
)
def test_the_separator_is_that_of_the_header(tmp_path: Path, text: str, names: list[str]) -> None:
    (tmp_path / "h.csv").write_text(text)
    assert list(read_frame(tmp_path / "h.csv")) == names


def test_repeated_names_are_those_of_the_header(tmp_path: Path) -> None:
    path = tmp_path / "h.csv"
    path.write_text('a;b;a;"c;d";a;b;a.1\n1;2;3;4;5;6;7\n')
    assert repeated_names(path) == {"a": 3, "b": 2}
    path.write_text("a,a.1,b\n1,2,3\n")
    assert repeated_names(path) == {}
    assert repeated_names(write(tmp_path, people(), "p.parquet")) == {}


def test_too_many_classes_are_those_of_a_column(tmp_path: Path) -> None:
    path = write(tmp_path, people().assign(outcome=range(60)))
    with pytest.raises(ValueError, match=r"people\.csv, column 'outcome': the test part would be"):
        load(path)


def test_fingerprints_follow_the_content(tmp_path: Path) -> None:
    frame = people()
    path = write(tmp_path, frame)
    first = load(path).fingerprint
    assert load(path, name="other").fingerprint == first
    assert load(path, test_share=0.3).fingerprint != first
    assert load(path, drop=["id"]).fingerprint != first
    frame.loc[0, "constant"] = 1.6
    assert load(write(tmp_path, frame)).fingerprint != first
    renamed = people().replace({"outcome": {"ja": "jo"}})
    assert load(write(tmp_path, renamed)).fingerprint != first


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outcome": "ja"}, "people.csv, column 'outcome': a classifier needs two classes, .*'ja'"),
        ({"outcome": [None, "a", "b"] * 20}, "column 'outcome': the label is missing in 20 rows"),
        ({"outcome": [0.5, 1.5] * 30}, "column 'outcome': a class label cannot be the fraction"),
        ({"größe": [np.inf, 1.0] * 30}, "people.csv: column 'größe' is infinite in row 0"),
    ],
)
def test_bad_columns_are_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path, people().assign(**change)))


def test_dates_lists_and_identifiers_are_refused() -> None:
    frame = people().assign(day=pd.Timestamp("2024-01-01"), many=[[1, 2]] * 60)
    for column, kind in (("day", "Timestamp"), ("many", "list")):
        with pytest.raises(ValueError, match=f"f: column '{column}' holds {kind} values; drop it"):
            infer_columns(frame, [column], (), "f")
    names = pd.DataFrame({"id": [f"person {i}" for i in range(1001)]})
    with pytest.raises(ValueError, match="f: text column 'id' has 1001 distinct values"):
        infer_columns(names, ["id"], (), "f")


def test_wrong_options_and_files_are_explained(tmp_path: Path) -> None:
    path = write(tmp_path, people())
    with pytest.raises(ValueError, match="no target column 'outcom'; did you mean 'outcome'"):
        load(path, target="outcom")
    with pytest.raises(ValueError, match="no input column 'idd'; did you mean 'id'"):
        load(path, drop=["idd"])
    with pytest.raises(ValueError, match=r"absent\.csv: no such file"):
        load(tmp_path / "absent.csv")
    with pytest.raises(ValueError, match="no column is left beside the target"):
        load(path, drop=[name for name in people() if name != "outcome"])
    with pytest.raises(ValueError, match="'table': unknown option 'dropp'; did you mean 'drop'"):
        load(path, dropp=["id"])
    contents = {
        "empty.csv": (b"", "cannot be read"),
        "header.csv": (b"a,outcome\n", "there are no rows"),
        "latin.csv": ("größe,outcome\n1,ja\n".encode("latin1"), "not UTF-8"),
        "broken.parquet": (b"PAR1 nonsense", "cannot be read"),
        "sheet.xlsx": (b"PK", "not a .csv"),
    }
    for file, (content, message) in contents.items():
        (tmp_path / file).write_bytes(content)
        with pytest.raises(ValueError, match=f"{file}.*{message}"):
            load(tmp_path / file)


def test_rare_classes_do_not_break_a_table(tmp_path: Path) -> None:
    frame = people()
    frame.loc[[3, 4], "outcome"] = "doppelt"
    frame.loc[7, "outcome"] = "einmalig"
    dataset = load(write(tmp_path, frame))
    train = dataset.split(HONEST, 0, held_out=True).train
    rare = [dataset.class_names.index(name) for name in ("doppelt", "einmalig")]
    assert [int((train.labels == label).sum()) for label in rare] == [2, 1]


def test_encoding_matches_pandas_dtypes() -> None:
    frame = pd.DataFrame(
        {
            "nullable": pd.array([1, None, 3], dtype="Int64"),
            "truth": pd.array([True, None, False], dtype="boolean"),
            "level": pd.Categorical(["lo", None, "hi"]),
            "number_level": pd.Categorical([5, 7, 5]),
            "small": np.array([1, 2, 3], dtype=np.int8),
        }
    )
    columns = infer_columns(frame, frame.columns, (), "f")
    found = encode_columns(frame, columns, "f")
    nan = float("nan")
    expected = [[1, 1, 1, 0, 1], [nan, nan, MISSING_CODE, 1, 2], [3, 0, 0, 0, 3]]
    np.testing.assert_array_equal(found, torch.tensor(expected))


def test_a_parquet_file_that_cannot_fit_into_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, people(), "people.parquet")
    texts = [*people()["städte"].dropna(), *people()["outcome"]]
    needed = 2 * (8 * 60 * 7 + sum(len(text.encode()) for text in texts))
    monkeypatch.setattr("calibration.memory.available_memory", lambda: needed)
    assert len(read_frame(path)) == 60
    monkeypatch.setattr("calibration.memory.available_memory", lambda: needed - 1)
    with pytest.raises(TooLargeError, match=r"its 60 rows of 7 columns take 4.076 kB.*an NPY file"):
        read_frame(path)
