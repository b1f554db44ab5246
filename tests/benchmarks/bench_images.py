"""An epoch over cached images beside the same epoch over images in memory, in one run.

    python -m tests.benchmarks.bench_images

100,000 images of 64×64 pixels lie in a file, as the image cache writes it (1.2 GB). A small
convolutional network takes batches of them, read ahead from the file and from memory, over the
same rows; one thread each for the network and for reading, wall clock. The two alternate in
slices of an epoch, so that a busy machine slows both alike, and the ratio is the median over the
slices. Reading alone is timed, too: it must be the smaller part, or it could not be hidden.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

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

ROWS, SIDE, CLASSES, BATCH = 100_000, 64, 10, 128
SLICE, ROUNDS = 384, 5
LIMIT, READING_LIMIT = 1.15, 0.5


def images(folder: Path) -> MappedRows:
    """Noise, written a piece at a time."""
    rng = np.random.default_rng(0)
    path = folder / "pixels.bin"
    piece = rng.integers(0, 256, (1000, 3, SIDE, SIDE), dtype=np.uint8)
    with path.open("wb") as file:
        for _ in range(ROWS // len(piece)):
            file.write(piece.data)
    return MappedRows(MappedFile(path, 0, (ROWS, 3, SIDE, SIDE), "|u1"), torch.uint8)


def run_of(inputs: Tensor) -> TrainingRun:
    """A training that looks at one slice of the rows in every epoch."""
    labels = torch.arange(len(inputs)) % CLASSES
    transform = Standardise(torch.full((3, 1, 1), 127.5), torch.full((3, 1, 1), 73.9))
    few = torch.arange(10)
    splits = Splits(
        Part(inputs, labels), Part(in_memory(inputs[few]), labels[few]), None, transform
    )
    return TrainingRun(
        make_method("standard", {"lr": 0.01}),
        splits,
        model="small_cnn",
        model_options={},
        classes=CLASSES,
        config=TrainingConfig(epochs=1000, batch_size=BATCH, evaluate_every=1000, stop_on="none"),
        seed=0,
    )


def seconds(run: TrainingRun) -> float:
    """The time of one epoch."""
    began = time.perf_counter()
    run.run_epoch()
    return time.perf_counter() - began


def main() -> int:
    """Print the table; 1 if reading binds the epoch."""
    with threads(1), tempfile.TemporaryDirectory() as place:
        mapped = images(Path(place))
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(0))
        slices = order[: SLICE * ROUNDS].split(SLICE)
        ratios, reading, steps = [], [], []
        for rows in slices:
            file = mapped[rows]
            one, other = run_of(file), run_of(in_memory(file).clone())
            if not steps:
                seconds(other)  # what the first steps of a process pay for
            held, from_file = seconds(other), seconds(one)
            began = time.perf_counter()
            for _ in read_ahead(file, torch.arange(SLICE).split(BATCH)):
                pass
            reading.append(time.perf_counter() - began)
            ratios.append(from_file / held)
            steps.append(held)
    ratio, share = statistics.median(ratios), statistics.median(reading) / statistics.median(steps)
    print(f"{ROWS:,} images of {SIDE}×{SIDE}, batches of {BATCH}, small_cnn")
    print(f"an epoch from the file / from memory     {ratio:5.2f}   (at most {LIMIT})")
    print(f"reading alone / an epoch from memory     {share:5.2f}   (at most {READING_LIMIT})")
    whole = statistics.median(steps) * ROWS / SLICE
    print(f"a whole epoch from memory takes about {whole:.0f} s here")
    return int(ratio > LIMIT or share > READING_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
