"""Trainings on cached images: what reading costs beside the network, and what memory it takes.

    python -m tests.benchmarks.bench_images [--images 100000]

Images of 64×64 pixels lie in a file, as the image cache writes it (1.2 GB for 100,000).

Time: a small convolutional network takes batches of random rows, read ahead from the file and
resident in memory, the same rows for both; one thread each for the network and for reading, wall
clock. The two alternate in slices of an epoch, so that a busy machine slows both alike, and the
ratio is the median over the slices. Reading alone is timed, too: it must be the smaller part, or
it could not be hidden. The file has just been written: as much of it as the operating system
keeps in memory is read from there, and the rest from the disk.

Memory: a process of its own trains an epoch on a tenth of the images, another one on all of them.
Memory that is theirs alone counts, not pages of the file, which the operating system takes back
when it likes; and the allocator returns large blocks at once instead of keeping some for later.
What it grows by is compared with the pixels that are added: labels and numbers of rows remain.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibration.data import Part, Splits
from calibration.data.mapped import MappedFile, MappedRows, in_memory, read_ahead
from calibration.data.transforms import Standardise
from calibration.methods import make_method
from calibration.threads import threads
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig
from tests.benchmarks.isolated import isolated

ME = "tests.benchmarks.bench_images"
IMAGES, SIDE, CLASSES, BATCH = 100_000, 64, 10, 128
PIXELS = 3 * SIDE * SIDE
SLICE, ROUNDS = 8 * BATCH, 5
LIMIT, READING_LIMIT, GROWTH_LIMIT = 1.15, 0.5, 0.01
FRUGAL = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "100000"}
SMALL_CNN: dict[str, Any] = {"model": "small_cnn", "model_options": {}}
MLP: dict[str, Any] = {"model": "mlp", "model_options": {"widths": (8,)}}
"""Cheap: an epoch over all images takes the time of reading them."""


def images(folder: Path, count: int) -> MappedRows:
    """Noise, written a piece at a time."""
    path = folder / "pixels.bin"
    piece = np.random.default_rng(0).integers(0, 256, (1000, PIXELS), dtype=np.uint8)
    with path.open("wb") as file:
        for start in range(0, count, len(piece)):
            file.write(piece[: count - start].data)
    return MappedRows(MappedFile(path, 0, (count, 3, SIDE, SIDE), "|u1"), torch.uint8)


def run_of(inputs: Tensor, network: dict[str, Any]) -> TrainingRun:
    """A training that looks at these rows in every epoch."""
    labels = torch.arange(len(inputs)) % CLASSES
    transform = Standardise(torch.full((3, 1, 1), 127.5), torch.full((3, 1, 1), 73.9))
    few = torch.arange(10)
    splits = Splits(
        Part(inputs, labels), Part(in_memory(inputs[few]), labels[few]), None, transform
    )
    return TrainingRun(
        make_method("standard", {"lr": 0.01}),
        splits,
        **network,
        classes=CLASSES,
        config=TrainingConfig(epochs=1000, batch_size=BATCH, evaluate_every=1000, stop_on="none"),
        seed=0,
    )


def seconds(run: TrainingRun) -> float:
    """The time of one epoch."""
    began = time.perf_counter()
    run.run_epoch()
    return time.perf_counter() - began


def times(count: int) -> tuple[float, float, float]:
    """An epoch from the file, and reading alone, over one from memory; seconds of the latter."""
    with threads(1), tempfile.TemporaryDirectory() as place:
        mapped = images(Path(place), count)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
        ratios, reading, steps = [], [], []
        for rows in order[: SLICE * ROUNDS].split(SLICE):
            file = mapped[rows]
            one, other = run_of(file, SMALL_CNN), run_of(in_memory(file).clone(), SMALL_CNN)
            if not steps:
                seconds(other)  # what the first steps of a process pay for
            held, from_file = seconds(other), seconds(one)
            began = time.perf_counter()
            for _ in read_ahead(file, torch.arange(len(rows)).split(BATCH)):
                pass
            reading.append((time.perf_counter() - began) / held)
            ratios.append(from_file / held)
            steps.append(held / len(rows))
    return statistics.median(ratios), statistics.median(reading), count * statistics.median(steps)


def peak(count: int) -> dict[str, float]:
    """The most memory of its own that an epoch over ``count`` images takes, beyond the start's."""
    rows = images(Path(os.environ["BENCH_DIRECTORY"]), count)
    with threads(1), _watched() as found:
        run_of(rows, MLP).run_epoch()
    return {"bytes": max(found) - found[0]}


@contextmanager
def _watched() -> Iterator[list[int]]:
    """The process's anonymous memory, looked at every few milliseconds."""
    status, found, over = Path("/proc/self/status"), list[int](), threading.Event()

    def look() -> None:
        line = next(x for x in status.read_text().splitlines() if x.startswith("RssAnon"))
        found.append(1024 * int(line.split()[1]))

    def watch() -> None:
        while not over.wait(0.005):
            look()

    run_of(torch.zeros(2 * BATCH, 3, SIDE, SIDE, dtype=torch.uint8), MLP).run_epoch()
    look()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()


def main(arguments: Sequence[str] = ()) -> int:
    """Print the table; 1 if reading binds the epoch, or memory grows with the images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=IMAGES)
    count = max(20 * BATCH, parser.parse_args(arguments).images)
    ratio, share, whole = times(count)
    print(f"{count:,} images of {SIDE}×{SIDE} in a file, batches of {BATCH}, small_cnn")
    print(f"an epoch from the file / from memory     {ratio:5.2f}   (at most {LIMIT})")
    print(f"reading alone / an epoch from memory     {share:5.3f}   (at most {READING_LIMIT})")
    print(f"a whole epoch from memory takes about {whole:.0f} s here")
    few, all_of_them = (
        isolated(ME, "peak", n, environment=FRUGAL)["bytes"] for n in (count // 10, count)
    )
    growth = (all_of_them - few) / (PIXELS * (count - count // 10))
    print(f"memory of a training on {count // 10:,} images  {few / 1e6:8.1f} MB")
    print(f"memory of a training on {count:,} images  {all_of_them / 1e6:8.1f} MB")
    print(f"growth / pixels that were added          {growth:5.3f}   (at most {GROWTH_LIMIT})")
    return int(ratio > LIMIT or share > READING_LIMIT or growth > GROWTH_LIMIT)


if __name__ == "__main__":
    if sys.argv[1:2] == ["peak"]:
        print(json.dumps(peak(int(sys.argv[2]))))
    else:
        sys.exit(main(sys.argv[1:]))
