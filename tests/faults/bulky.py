"""Data far larger than usual: real commands on it, with their time and memory.

Each drill makes its data in a directory, runs commands and returns a line about what it
found. It raises ``AssertionError`` where a command failed without a clear message.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from calibration.memory import room

LIMIT = 7200.0
"""Seconds after which a command has hung."""
SMALL = 2 * 10**9
"""Bytes that a command takes at most which refuses its data by what it has read of them."""
SPEC = """
name: bulky
datasets: [{dataset}]
model: {{name: mlp, widths: [16]}}
methods: {{standard: {{lr: {{loguniform: [0.001, 0.1]}}, weight_decay: 0}}}}
training: {{epochs: 1, batch_size: 4096}}
search: {{trials: 1}}
confirm_seeds: 1
calibrators: [temperature]
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, what it said, its time and its largest process."""

    code: int
    said: str
    seconds: float
    peak: int

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s, {self.peak / 1e9:.2f} GB in the largest process"


def csv_of_five_million_rows(directory: Path, rows: int = 5_000_000) -> str:
    """A table of eight numbers, a category and a label: checked and swept."""
    _write_table(directory / "table.csv", rows)
    spec = directory / "bulky.yaml"
    spec.write_text(SPEC.format(dataset="{name: table, path: table.csv, target: label}"))
    checked = _calsweep(directory, "check", str(spec))
    assert checked.code == 0, checked.said
    swept = _calsweep(directory, "run", str(spec))
    assert swept.code == 0, swept.said
    assert "2 of 2 done" in swept.said, swept.said
    megabytes = (directory / "table.csv").stat().st_size / 1e6
    return f"CSV of {rows} × 10 ({megabytes:.0f} MB): check {checked}; run {swept}"


def npz_bomb(directory: Path) -> str:
    """Archives that unpack, or say that they unpack, to far more than there is memory."""
    huge = 50 * psutil.virtual_memory().total
    (directory / "honest.npz").write_bytes(npz_announcing(huge, stored=64 * 2**20))
    (directory / "lying.npz").write_bytes(npz_announcing(2**30, stored=2**20))
    ends = [
        _refused(directory, words, "posthoc", f"{file}.npz")
        for file, words in (("honest", "of memory are available"), ("lying", "not a readable NPZ"))
    ]
    return f"NPZ announcing {huge / 1e9:.0f} GB: {ends[0]}; NPZ with a lie: {ends[1]}"


def csv_bomb(directory: Path) -> str:
    """Packed text of twice the memory: rows, and rows that end in a line without an end.

    And a file of 5 GB with such a line, of which the disk holds nothing.
    """
    rows = gzip.compress(b"label,logit_a,logit_b\n" + b"a,0.5,0.25\nb,0.25,0.5\n" * 3_000_000)
    line = gzip.compress(bytes(2**26))
    times = 2 * psutil.virtual_memory().total // 2**26
    (directory / "rows.csv.gz").write_bytes(rows * times)  # members of one file, as gzip allows
    (directory / "line.csv.gz").write_bytes(rows + line * times)
    with (directory / "plain.csv").open("wb") as file:
        file.truncate(5 * 2**30)
    packed = f"CSV unpacking to {times * 2**26 / 1e9:.0f} GB"
    return "; ".join(
        [
            f"{packed}: {_refused(directory, 'of memory are available', 'posthoc', 'rows.csv.gz')}",
            f"one line: {_refused(directory, 'unpacks to a line of', 'posthoc', 'line.csv.gz')}",
            f"not packed: {_refused_everywhere(directory, 'plain.csv', 'it has a line of')}",
        ]
    )


def parquet_bomb(directory: Path) -> str:
    """A file of kilobytes with texts of five times the memory: each is stored once."""
    texts = ["a" * 200_000, "b" * 200_000]
    rows = 5 * psutil.virtual_memory().total // len(texts[0])
    label = pa.DictionaryArray.from_arrays(pa.array(np.arange(rows) % 2, pa.int32()), texts)
    table = pa.table({"label": label, "logit_a": np.arange(rows) % 5, "logit_b": np.zeros(rows)})
    pq.write_table(table, directory / "texts.parquet", store_schema=False)
    size = (directory / "texts.parquet").stat().st_size / 1e6
    ends = _refused_everywhere(directory, "texts.parquet", "of memory are available")
    return f"Parquet file of {size:.1f} MB with {rows * len(texts[0]) / 1e9:.0f} GB: {ends}"


def _refused_everywhere(directory: Path, file: str, words: str) -> str:
    """By every command that reads tables."""
    dataset = f"{{name: table, path: {file}, target: label}}"
    (directory / "bulky.yaml").write_text(SPEC.format(dataset=dataset))
    commands = (
        *(("posthoc", file), ("init", "--data", file, "--target", "label")),
        *(("check", "bulky.yaml"), ("run", "bulky.yaml")),
    )
    # A sweep's classes are read until they are more than may be loaded.
    most = {"check": max(SMALL, room()), "run": max(SMALL, room())}
    return "; ".join(
        f"{c[0]} {_refused(directory, words, *c, most=most.get(c[0], SMALL))}" for c in commands
    )


def _refused(directory: Path, words: str, *command: str, most: int = SMALL) -> Ended:
    ended = _calsweep(directory, *command)
    assert ended.code == 2, ended.said
    assert words in ended.said, ended.said
    assert ended.said.count("\n") == 1, ended.said
    assert ended.peak < most, f"{command[0]}: {ended}"
    return ended


def npz_announcing(size: int, *, stored: int) -> bytes:
    """An NPZ whose headers and directory agree that ``logits`` has ``size`` bytes of zeros.

    ``stored`` bytes of them are really there.
    """
    header = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (size // 80, 10)}
    np.lib.format.write_array_header_1_0(header, shape)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("logits.npy", "w", force_zip64=True) as member:
            member.write(header.getvalue())
            for _ in range(stored // 2**20):
                member.write(bytes(2**20))
        labels = io.BytesIO()
        np.save(labels, np.arange(100) % 10)
        archive.writestr("labels.npy", labels.getvalue())
        archive.getinfo("logits.npy").file_size = len(header.getvalue()) + size // 80 * 80
    return buffer.getvalue()


def ten_thousand_classes(directory: Path, classes: int = 10_000, rows: int = 300) -> str:
    """Stored predictions of very many classes, and a table and arrays to be learned."""
    generator = np.random.default_rng(0)
    labels = generator.integers(classes, size=rows)
    logits = generator.normal(size=(rows, classes)).astype(np.float32)
    logits[np.arange(rows), labels] += 8
    np.savez(directory / "stored.npz", logits=logits, labels=labels)
    compared = _calsweep(directory, "posthoc", "stored.npz")
    assert compared.code == 0, compared.said
    assert "left out, because each class is fitted separately" in compared.said
    every = np.repeat(np.arange(classes), 10)
    inputs = generator.normal(size=(len(every), 5)).astype(np.float32)
    np.savez(directory / "arrays.npz", X=inputs, y=every)
    np.savetxt(
        directory / "table.csv",
        np.column_stack([inputs, every]),
        fmt=[*["%.4f"] * 5, "%d"],
        delimiter=",",
        header="a,b,c,d,e,y",
        comments="",
    )
    datasets = {
        "arrays": "{name: arrays, path: arrays.npz}",
        "table": "{name: table, path: table.csv, target: y}",
    }
    ends = {"posthoc": str(compared)}
    for name, dataset in datasets.items():
        (directory / f"{name}.yaml").write_text(SPEC.format(dataset=dataset))
        ended = _calsweep(directory, "check", f"{name}.yaml")
        assert ended.code == 0, ended.said
        ends[f"check {name}"] = str(ended)
    return f"{classes} classes: " + "; ".join(f"{what} {how}" for what, how in ends.items())


def _write_table(path: Path, rows: int) -> None:
    """Streamed: the table is never in memory."""
    generator = np.random.default_rng(0)
    colours = np.array(["red", "green", "blue"])
    with path.open("w") as file:
        file.write("a,b,c,d,e,f,g,h,colour,label\n")
        for start in range(0, rows, 100_000):
            count = min(100_000, rows - start)
            numbers = generator.normal(size=(count, 8))
            colour = colours[generator.integers(3, size=count)]
            label = np.where(numbers[:, 0] + generator.normal(size=count) > 0, "yes", "no")
            texts = (",".join(f"{value:.6g}" for value in row) for row in numbers)
            lines = zip(texts, colour, label, strict=True)
            file.writelines(f"{text},{c},{y}\n" for text, c, y in lines)


def _calsweep(directory: Path, *words: str) -> Ended:
    """Run a command there; the memory is sampled, in it and in all that it starts."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = psutil.Popen(
            [sys.executable, "-m", "sweeps.cli", *words],
            cwd=directory,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "200"},
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        peak = 0
        while process.poll() is None:
            peak = max(peak, _largest(process))
            assert time.monotonic() - began < LIMIT, f"{words} has hung"
            time.sleep(0.2)
        said.seek(0)
        return Ended(process.returncode, said.read(), time.monotonic() - began, peak)


def _largest(process: psutil.Process) -> int:
    sizes = [0]
    try:
        for each in (process, *process.children(recursive=True)):
            sizes.append(each.memory_info().rss)
    except psutil.Error:  # it has just ended
        pass
    return max(sizes)
