"""Tables beyond memory: the numbers of those in memory, from files that are written once."""

from __future__ import annotations

import bz2
import gzip
import lzma
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import zipfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from calibration.data import PROTOCOLS, Dataset, Part, frame_chunks, load_dataset, table_cache
from calibration.data.columns import Column, encode_columns, infer_columns, infer_from_chunks
from calibration.data.files import DataFileError
from calibration.data.frame_chunks import FrameChunks
from calibration.data.frames import bytes_in_memory, read_frame
from calibration.data.mapped import in_memory, is_mapped
from calibration.data.packed_text import text_bytes
from calibration.data.saving import save_transform
from calibration.data.text_inputs import decode_texts
from calibration.data.transforms import encoded
from calibration.learners import Estimator, EstimatorTraining, make_learner
from calibration.memory import TooLargeError
from calibration.methods import make_method
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig
from sweeps.spec import SpecError, load_spec

FORK = multiprocessing.get_context("fork")
HONEST = PROTOCOLS["honest"]


@pytest.fixture(autouse=True)
def few_rows_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALSWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(frame_chunks, "CHUNK_ROWS", 64)


def visits(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Numbers, categories and gaps that no single chunk shows all of, and columns with roles."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 90, rows).astype(float),
            "dose": rng.lognormal(0, 2, rows),
            "code": [str(n) if n < 250 else f"x{n % 3}" for n in np.arange(rows) % 260],
            "zip": rng.integers(0, 9, rows),
            "smoker": rng.random(rows) < 0.5,
            "late": [None] * (rows - 20) + ["yes"] * 20,
            "empty": np.nan,
            "patient": [f"p{n // 3}" for n in range(rows)],
            "counts": rng.integers(0, 4, rows),
            "day": np.arange(rows) // 2,
            "part": rng.choice(["train", "train", "validation", "test", "meta"], rows),
            "outcome": rng.choice(["ja", "nein"], rows),
        }
    )
    frame["smoker"] = frame["smoker"].astype(object).where(frame.index > 200)
    frame.loc[100:103, "age"] = np.nan
    frame.loc[::9, "dose"] = np.nan
    return frame


def write(path: Path, frame: pd.DataFrame, row_group: int = 100) -> Path:
    if path.suffix == ".parquet":
        frame.to_parquet(path, row_group_size=row_group)
    else:
        frame.to_csv(path, index=False)
    return path


def both(monkeypatch: pytest.MonkeyPatch, path: Path, **options: object) -> tuple[Dataset, Dataset]:
    """The table in memory, and from the disk."""
    whole = load_dataset("table", {"path": path, "target": "outcome", **options})
    with monkeypatch.context() as patched:
        patched.setattr("calibration.memory.available_memory", lambda: 0)
        converted = load_dataset("table", {"path": path, "target": "outcome", **options})
    assert not is_mapped(whole.test(0).inputs)
    assert is_mapped(converted.test(0).inputs)
    return whole, converted


def assert_equal_parts(one: Part, other: Part) -> None:
    for name in Part._fields:
        values, others = getattr(one, name), getattr(other, name)
        assert (values is None) == (others is None), name
        if values is not None:
            np.testing.assert_array_equal(values.numpy(), in_memory(others).numpy(), strict=True)


@pytest.mark.parametrize("file", ["t.csv", "t.csv.gz", "t.parquet"])
@pytest.mark.parametrize(
    "roles",
    [
        {"group": "patient", "weight": "counts"},
        {"time": "day"},
        {"fold": "part", "weight": "counts"},
    ],
    ids=lambda roles: "_".join(roles),
)
def test_a_converted_table_is_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, roles: dict[str, str]
) -> None:
    path = write(tmp_path / file, visits())
    whole, converted = both(monkeypatch, path, categorical=["zip"], **roles)
    assert converted.fingerprint == whole.fingerprint
    assert (converted.columns, converted.class_names) == (whole.columns, whole.class_names)
    assert {c.name for c in whole.columns if c.kind == "categorical"} == {
        *("code", "zip", "late"),
        *({"patient", "part"} - set(roles.values())),
    }
    assert_equal_parts(whole.test(0), converted.test(0))
    one, other = (data.split(HONEST, 0, held_out=True) for data in (whole, converted))
    for part in ("train", "validation", "meta_validation"):
        assert_equal_parts(getattr(one, part), getattr(other, part))
    assert is_mapped(other.train.inputs)
    for numeric in ("standard", "robust", "quantile", "piecewise"):
        first, second = (encoded(splits, numeric, 7) for splits in (one, other))
        assert save_transform(first) == save_transform(second), "fitted to the bit"
    assert torch.equal(second(other.validation.inputs), first(one.validation.inputs))


def test_a_second_file_of_test_rows_is_converted_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"test_path": write(tmp_path / "later.csv", visits(80, 1)), "drop": ["patient"]}
    whole, converted = both(monkeypatch, write(tmp_path / "t.parquet", visits()), **options)
    assert converted.fingerprint == whole.fingerprint
    assert_equal_parts(whole.test(0), converted.test(0))


def test_texts_of_a_large_table_are_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = visits()[["outcome"]].assign(words=["wörter " * (n % 40) for n in range(300)])
    path = write(tmp_path / "t.csv", frame)
    whole, converted = both(monkeypatch, path, text="words")
    assert (converted.kind, converted.fingerprint) == ("text", whole.fingerprint)
    assert decode_texts(converted.test(0).inputs.cpu()) == decode_texts(whole.test(0).inputs)


def test_training_on_a_converted_table_is_training_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "t.csv", visits())
    options = {"group": "patient", "weight": "counts"}
    runs = []
    for data in both(monkeypatch, path, **options):
        method = make_method("standard", {"lr": 0.05, "numeric_inputs": "quantile"})
        size = {"model": "mlp", "model_options": {"widths": (8,)}, "classes": 2}
        splits = data.split(HONEST, 0, held_out=False)
        config = TrainingConfig(epochs=2, batch_size=16)
        runs.append(TrainingRun(method, splits, config=config, seed=1, **size))
        runs[-1].run_epoch()
        runs[-1].run_epoch()
    assert is_mapped(runs[1].train.inputs)
    assert runs[0].curve == runs[1].curve
    assert torch.equal(runs[0].best.parameters, runs[1].best.parameters)


TOKENS = ["", "NA", "0", "1", "-2", "007", "3.5", "1e3", "12345678901234567", "x", "True", "false"]


def columns_and_inputs(path: Path, chunked: bool) -> tuple[tuple[Column, ...], Tensor]:
    if not chunked:
        frame = read_frame(path)
        columns = infer_columns(frame, frame.columns, ["b"], "t")
        return columns, encode_columns(frame, columns, "t")
    with patch.object(frame_chunks, "CHUNK_ROWS", 3):
        rows = FrameChunks(path)
    rows.decide(rows.names)
    columns = infer_from_chunks(rows.chunks(rows.names), rows.names, ["b"], "t")
    return columns, torch.cat([encode_columns(c, columns, "t") for c in rows.chunks(rows.names)])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.sampled_from(TOKENS)] * 3), min_size=1, max_size=12), st.booleans())
def test_chunks_of_a_csv_are_typed_as_the_whole(rows: list[tuple[str, ...]], index: bool) -> None:
    """What pandas makes of a column depends on all of its rows, and repeated names are changed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        pd.DataFrame(rows).to_csv(path, index=index, header=["a", "b", "a"])
        (whole, inputs), (chunked, same) = (columns_and_inputs(path, c) for c in (False, True))
    assert [column.name for column in whole] == ["a", "b", "a.1"]
    assert chunked == whole
    np.testing.assert_array_equal(same.numpy(), inputs.numpy(), strict=True)


def test_a_table_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.memory.available_memory", lambda: 0)
    path = write(tmp_path / "t.csv", visits())
    options = {"path": path, "target": "outcome", "drop": ["patient"]}
    before = load_dataset("table", options).fingerprint
    kept = list((tmp_path / "cache" / "tables").glob("*/inputs_0.bin"))
    with monkeypatch.context() as patched:
        patched.setattr(table_cache, "_written", None)
        assert load_dataset("table", {**options, "name": "other"}).fingerprint == before
    assert load_dataset("table", {**options, "drop": ["zip", "patient"]}).fingerprint != before
    kept[0].write_bytes(b"cut short")
    assert load_dataset("table", options).fingerprint == before
    os.utime(path, ns=(1, 1))
    load_dataset("table", options)
    names = [place.name for place in (tmp_path / "cache" / "tables").iterdir()]
    assert len(names) == 3
    assert not any(name.startswith(".") for name in names)


def _convert_until_killed(path: Path, begun: Connection) -> None:
    def stuck(target: Path, rows: int, pieces: Iterator[Tensor]) -> Tensor:
        target.write_bytes(next(pieces).numpy().tobytes())
        begun.send_bytes(b"!")
        time.sleep(600)
        raise AssertionError("it is killed before")

    with patch.object(table_cache, "_written", stuck):
        load_dataset("table", {"path": path, "target": "outcome"})


def test_what_a_killed_conversion_has_begun_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibration.memory.available_memory", lambda: 0)
    path = write(tmp_path / "t.csv", visits())
    here, there = FORK.Pipe()
    child = FORK.Process(target=_convert_until_killed, args=(path, there))
    child.start()
    try:
        here.recv_bytes()
        (draft,) = (tmp_path / "cache" / "tables").glob(".draft-*")
    finally:
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
    load_dataset("table", {"path": path, "target": "outcome"})
    assert not draft.exists()


def test_what_is_wrong_with_a_large_table_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibration.memory.available_memory", lambda: 0)
    infinite = visits().assign(dose=[*[1.0] * 299, np.inf])
    huge = visits().assign(zip=[*[1] * 299, 2**63])
    many = visits(1200).assign(code=[f"c{n}" for n in range(1200)])
    unlabelled = visits().assign(outcome=["ja", "nein"] * 149 + ["ja", None])
    for frame, words in (
        (infinite, r"t\.csv: column 'dose' is infinite in row 299 \(counted from 0\)"),
        (huge, r"t\.csv: column 'zip' has whole numbers of 2\*\*63 or more"),
        (many, r"t\.csv: text column 'code' has \d+ distinct values, more than 1000"),
        (unlabelled, r"t\.csv, column 'outcome': the label is missing in 1 rows, first in row 299"),
    ):
        path = write(tmp_path / "t.csv", frame)
        with pytest.raises(ValueError, match=words):
            load_dataset("table", {"path": path, "target": "outcome"})
    assert not list((tmp_path / "cache" / "tables").iterdir()), "nothing is left of them"
    monkeypatch.setenv("CALSWEEP_CACHE", str(path))
    write(path, visits())
    with pytest.raises(DataFileError, match=r"tables cannot be written: .* CALSWEEP_CACHE"):
        load_dataset("table", {"path": path, "target": "outcome"})


def test_an_estimator_takes_a_converted_table_only_if_memory_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "t.csv", visits())
    _, data = both(monkeypatch, path, drop=["patient", "part"])
    splits = data.split(HONEST, 0, held_out=False)

    def begun() -> EstimatorTraining:
        config = TrainingConfig(epochs=2)
        forest = make_learner("random_forest", {})
        assert isinstance(forest, Estimator)
        return EstimatorTraining(
            forest, splits, columns=data.columns, classes=2, config=config, seed=0
        )

    assert begun().run_epoch()["epoch"] == 1
    monkeypatch.setattr("calibration.memory.available_memory", lambda: 0)
    rows = len(splits.train.labels)
    with pytest.raises(TooLargeError, match=rf"estimators .*: {rows} take .*; train a network"):
        begun()
    spec = "name: s\ndatasets: [{name: table, path: t.csv, target: outcome}]\nmethods: {METHOD: {}}"
    for method in ("standard", "random_forest"):
        (tmp_path / f"{method}.yaml").write_text(spec.replace("METHOD", method))
    monkeypatch.chdir(tmp_path)
    load_spec(tmp_path / "standard.yaml")
    with pytest.raises(SpecError, match=r"random_forest.*estimators hold all rows in memory: 225"):
        load_spec(tmp_path / "random_forest.yaml")


def test_the_memory_of_a_csv_is_estimated_by_its_first_rows(tmp_path: Path) -> None:
    numbers = pd.DataFrame(np.random.default_rng(0).normal(size=(5000, 4)))
    path = write(tmp_path / "t.csv", numbers)
    assert bytes_in_memory(path, None) == pytest.approx(path.stat().st_size + 160_000, rel=0.01)


def packed(path: Path, text: bytes) -> Path:
    if path.suffix == ".csv":
        path.write_bytes(text)
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("t.csv", text)
    else:
        path.write_bytes({".gz": gzip, ".bz2": bz2, ".xz": lzma}[path.suffix].compress(text))
    return path


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zip"])
def test_packed_text_beyond_memory_is_unpacked_no_further_than_that(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(tmp_path / f"t.csv.{suffix}", b"label,logit_a\n" + b"a,0.25\n" * 1_000_000)
    assert path.stat().st_size < 30_000
    assert text_bytes(path) == 14 + 7_000_000
    assert bytes_in_memory(path, None) == pytest.approx(7e6 + 16e6, rel=0.01)
    monkeypatch.setattr("calibration.memory.available_memory", lambda: 10**6)
    assert text_bytes(path) < 2 * 2**20
    with pytest.raises(TooLargeError, match=rf"t\.csv\.{suffix}: its rows take .* are available"):
        read_frame(path)


@pytest.mark.parametrize(("suffix", "has"), [("csv", "has"), ("csv.gz", "unpacks to")])
def test_text_without_an_end_of_the_line_is_refused(
    tmp_path: Path, suffix: str, has: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parser would hold all of it for the first row."""
    monkeypatch.setattr("calibration.data.packed_text.LONGEST_LINE", 2 * 10**6)
    header = b"label,logit_a\n" + b"a,0.25\n" * 300_000
    for name, text in (("first", b"a" * 5_000_000), ("later", header + b"a" * 10**7)):
        path = packed(tmp_path / f"{name}.{suffix}", text)
        with pytest.raises(TooLargeError, match=rf"{name}\.{suffix}: it {has} a line of .* 2 MB; "):
            read_frame(path)
    with pytest.raises(TooLargeError, match="a line of more than 2 MB; end every row with a"):
        list(FrameChunks(path).chunks(["label"]))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 500])
def test_a_quotation_mark_that_is_not_closed_does_not_fill_the_memory(
    tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a parser all that follows is one row."""
    monkeypatch.setattr("calibration.memory.available_memory", lambda: 0)
    monkeypatch.setattr("calibration.data.packed_text.IN_MEMORY_BYTES", 3 * 10**6)
    text = b"label,x\n" + b"a,1\n" * rows + b'"b,2\n' + b"a,1\n" * 10**6
    path = packed(tmp_path / "t.csv", text)
    with pytest.raises(TooLargeError, match=r"t\.csv: a few rows take more than 3 MB, .* mark not"):
        load_dataset("table", {"path": path, "target": "label"})
    whole = packed(tmp_path / "whole.csv", b"label,x\n" + b"a,1\nb,2\n" * 10**6)
    assert len(list(FrameChunks(whole).chunks(["label"]))) == 31250


LONG = ["a" * 100_000, "b" * 90_000]


def repeated(path: Path, rows: int, **options: Any) -> Path:
    """A file of kilobytes with rows of 95 kB on average, which are really stored once."""
    places = pa.array(np.arange(rows) % 2, pa.int32())
    texts = pa.DictionaryArray.from_arrays(places, LONG)
    table = pa.table({"text": texts, "x": np.arange(rows) % 5, "label": np.arange(rows) % 2})
    pq.write_table(table, path, store_schema=False, **options)
    return path


def test_texts_that_unpack_to_more_than_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = repeated(tmp_path / "t.parquet", 20_000)
    assert path.stat().st_size < 200_000
    assert bytes_in_memory(path, None) == 20_000 * (95_000 + 3 * 8)
    monkeypatch.setattr("calibration.memory.available_memory", lambda: 10**9)
    with pytest.raises(
        TooLargeError, match=r"t\.parquet: its 20000 rows of 3 columns take 1\.9 GB"
    ):
        read_frame(path)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 70},
        {"use_dictionary": False},
        {"dictionary_pagesize_limit": 100, "data_page_size": 100},
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    ],
)
def test_the_texts_of_a_parquet_file_are_counted_however_they_are_stored(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    texts = [None if n % 7 == 0 else "ä" * int(n) for n in rng.integers(0, 50, 300)]
    table = pa.table({"text": texts, "listed": [[t, "x"] for t in texts], "n": np.arange(300)})
    pq.write_table(table, tmp_path / "t.parquet", **options)
    each = sum(2 * len(text) for text in texts if text)
    values = 8 * (300 + 600 + 300)
    beside = 4 * 2 * 600 if "column_encoding" in options else 0  # where each text begins
    found = bytes_in_memory(tmp_path / "t.parquet", None)
    assert values + 2 * each + 300 <= found <= values + 2 * each + 300 + beside


@pytest.mark.parametrize("encoding", [{}, {"column_encoding": {"text": "DELTA_BYTE_ARRAY"}}])
def test_long_texts_are_read_a_few_rows_at_a_time(
    tmp_path: Path, encoding: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibration.data.parquet.IN_MEMORY_BYTES", 10**6)
    path = repeated(tmp_path / "t.parquet", 100, **encoding, use_dictionary=not encoding)
    chunks = list(FrameChunks(path).chunks(["text", "x"]))
    assert max(len(chunk) for chunk in chunks) in {9, 10}  # where texts begin may count, too
    assert list(pd.concat(chunks)["text"]) == LONG * 50
    assert [len(chunk) for chunk in FrameChunks(path).chunks(["x"])] == [64, 36]


def test_labels_that_memory_cannot_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read whole also where the inputs stay on the disk."""
    path = repeated(tmp_path / "t.parquet", 1000)
    monkeypatch.setattr("calibration.memory.available_memory", lambda: 0)
    monkeypatch.setattr("calibration.data.frame_chunks.IN_MEMORY_BYTES", 10**7)
    with pytest.raises(TooLargeError, match=r"t\.parquet: the columns text take .* are available"):
        load_dataset("table", {"path": path, "target": "text"})
    assert not list((tmp_path / "cache").glob("*/.draft-*"))
    assert load_dataset("table", {"path": path, "target": "label"}).columns[0].categories == (
        LONG[0],
        LONG[1],
    )


MEMORY = """
    import resource, sys
    from pathlib import Path

    import torch
    from calibration import memory, training
    from calibration.data import PROTOCOLS, frame_chunks, load_dataset, mapped
    from calibration.methods import make_method
    from calibration.training import TrainingRun
    from calibration.training_config import TrainingConfig

    memory.available_memory = lambda: 0
    frame_chunks.CHUNK_BYTES = 10**6
    training.PREDICTION_BATCH = 256
    torch.set_num_threads(1)

    def trained(path):
        data = load_dataset("table", {"path": path, "target": "y"})
        splits = data.split(PROTOCOLS["honest"], 0, held_out=False)
        run = TrainingRun(
            make_method("standard", {"numeric_inputs": "robust"}), splits, model="mlp",
            model_options={"widths": (4,)}, classes=2,
            config=TrainingConfig(epochs=1, batch_size=256), seed=0,
        )
        run.run_epoch()
        assert mapped.is_mapped(run.train.inputs)
        run.predict(data.test(0))
        return len(run.train.labels), len(data.fingerprint)

    whole, few, most = sys.argv[1:]
    trained(few)  # threads and libraries take memory once
    held = int(next(l for l in Path("/proc/self/status").read_text().splitlines()
                    if l.startswith("VmData")).split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (held + int(most),) * 2)
    print(*trained(whole))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("file", "megabytes"), [("t.csv", 24), ("t.parquet", 12)])
def test_a_table_is_trained_on_that_memory_cannot_hold(
    tmp_path: Path, file: str, megabytes: int
) -> None:
    """48 MB of numbers, and much less that a process may still allocate."""
    numbers = np.random.default_rng(0).integers(0, 10, (60_000, 100)).astype(np.int16)
    frame = pd.DataFrame(numbers).add_prefix("x").assign(y=np.arange(60_000) % 2)
    few = write(tmp_path / f"few_{file}", frame[:2000], 2000)
    whole = write(tmp_path / file, frame, 2000)
    code = [sys.executable, "-c", textwrap.dedent(MEMORY), whole, few, str(megabytes * 10**6)]
    # What the allocator keeps for later is not the question here: large blocks go back at once.
    frugal = os.environ | {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "100000"}
    done = subprocess.run(code, capture_output=True, text=True, check=False, env=frugal)
    assert done.stdout.split() == ["38250", "64"], done.stderr[-2000:]
