"""Cohorts beside the same networks one by one and beside a plain torch loop, in one run.

    python -m tests.benchmarks.bench_cohorts

Every line trains the same K networks, with K learning rates and one seed (as the trials of a
search have it), for the same number of epochs in three ways: by hand (``nn.Sequential``,
``torch.optim.Adam``), one ``TrainingRun`` after the other, and as a ``Cohort``; float32, one
thread, CPU time, evaluated after the last epoch only, but for the last line. The three alternate,
so that a busy machine slows all alike; ratios are medians over the rounds. A cohort's time
includes the steps that it also takes one by one to compare their bits; ``estimated`` is what
``gain`` expects beside alone. The
first line compares our step alone with a step written by hand on one flat vector, with Adam
in place.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibration.cohort import PASSED, Cohort
from calibration.cohort_times import gain
from calibration.data import Part, Protocol, Splits
from calibration.data.fixed import FixedDataset
from calibration.methods import make_method
from calibration.threads import threads
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig

ROUNDS = 3
STEP_LIMIT = 1.25


class Line(NamedTuple):
    """K networks of one shape, and what a cohort of them may take of another way's time."""

    name: str
    members: int
    widths: tuple[int, ...]
    rows: int
    batch: int | None
    epochs: int
    limit: float
    beside: Literal["by hand", "alone"] = "alone"
    every: int | None = None  # epochs between two looks at validation rows; None: at the end
    method: str = "standard"
    held_out: int = 0  # rows of the outer problem


LINES = (
    Line("2-64-64-5, 700 rows, full batch", 16, (2, 64, 64, 5), 700, None, 40, 0.85, "by hand"),
    Line("2-32-5, 700 rows, full batch", 24, (2, 32, 5), 700, None, 40, 0.5, "by hand"),
    Line("2-64-64-5, 700 rows, batch 64", 16, (2, 64, 64, 5), 700, 64, 8, 0.35, "by hand"),
    Line("64-32-10, 1400 rows, batch 64", 16, (64, 32, 10), 1400, 64, 4, 0.45),
    Line("512-10, 20,000 rows, batch 256", 64, (512, 10), 20_000, 256, 1, 0.6),
    Line("512-128-10, 20,000 rows, batch 256", 64, (512, 128, 10), 20_000, 256, 1, 0.6),
    Line("2-256-256-5, 700 rows, batch 128", 8, (2, 256, 256, 5), 700, 128, 6, 1.0),
    Line("2-32-5, full batch, every epoch seen", 24, (2, 32, 5), 700, None, 20, 0.5, every=1),
    Line(
        "BO4SC, T = 5, 2-64-64-5, 700 rows",
        *(32, (2, 64, 64, 5), 700, None, 40, 0.8),
        method="bo4sc",
        held_out=300,
    ),
)


def problem(line: Line) -> Splits:
    generator = torch.Generator().manual_seed(0)
    total, classes = line.rows + line.held_out + 100, line.widths[-1]
    labels = torch.arange(total) % classes
    centres = 2 * torch.randn(classes, line.widths[0], generator=generator)
    inputs = centres[labels] + torch.randn(total, line.widths[0], generator=generator)
    rows = Part(inputs.double(), labels)
    names = tuple(map(str, range(classes)))
    dataset = FixedDataset("drawn", "table", rows, names, test=rows)
    protocol = Protocol(name="bench", validation=100, meta_validation=line.held_out or 1)
    return dataset.split(protocol, 0, held_out=line.held_out > 0)


def run_of(line: Line, splits: Splits, place: int) -> TrainingRun:
    size: int | str = line.batch or "full"
    every = line.every or line.epochs
    settings = {"epochs": line.epochs, "batch_size": size, "evaluate_every": every}
    return TrainingRun(
        make_method(line.method, {"lr": 0.001 * (1 + place)}),
        splits,
        model="mlp",
        model_options={"widths": line.widths[1:-1]},
        classes=line.widths[-1],
        config=TrainingConfig.model_validate(settings | {"stop_on": "none"}),
        seed=0,
    )


def by_hand(line: Line, splits: Splits) -> None:
    inputs, labels = splits.transform(splits.train.inputs), splits.train.labels
    for place in range(line.members):
        layers: list[nn.Module] = []
        for width, units in pairwise(line.widths):
            layers += [nn.Linear(width, units), nn.ReLU()]
        network = nn.Sequential(*layers[:-1])
        optimiser = torch.optim.Adam(network.parameters(), lr=0.001 * (1 + place))
        for _ in range(line.epochs):
            for rows in torch.randperm(len(labels)).split(line.batch or len(labels)):
                optimiser.zero_grad()
                F.cross_entropy(network(inputs[rows]), labels[rows]).backward()
                optimiser.step()


def one_by_one(line: Line, splits: Splits) -> None:
    for place in range(line.members):
        run = run_of(line, splits, place)
        while not run.done:
            run.run_epoch()


def together(line: Line, splits: Splits) -> None:
    PASSED.clear()  # each round pays for its comparisons
    cohort = Cohort(run_of(line, splits, place) for place in range(line.members))
    while cohort.active:
        cohort.run_epoch()


class FlatStep:
    """Full-batch Adam by hand: flat parameters, views as leaves, everything in place."""

    def __init__(self, run: TrainingRun) -> None:
        self.inputs, self.labels = run.train.inputs, run.train.labels
        self.flat = run.state.parameters.clone()
        self.leaves = [
            view.requires_grad_() for view in run.learner.model.unflatten(self.flat).values()
        ]
        self.mean, self.square = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.steps = 0

    def __call__(self) -> None:
        values: Tensor = self.inputs
        for weight, bias in zip(self.leaves[:-2:2], self.leaves[1:-2:2], strict=True):
            values = F.relu(F.linear(values, weight, bias))
        loss = F.cross_entropy(F.linear(values, *self.leaves[-2:]), self.labels)
        slopes = torch.autograd.grad(loss, self.leaves)
        self.steps += 1
        with torch.no_grad():
            slope = torch.cat([part.flatten() for part in slopes])
            self.mean.lerp_(slope, 0.1)
            self.square.mul_(0.999).addcmul_(slope, slope, value=0.001)
            root = (self.square / (1 - 0.999**self.steps)).sqrt_().add_(1e-8)
            self.flat.addcdiv_(self.mean, root, value=-0.01 / (1 - 0.9**self.steps))


def seconds(task: Callable[[], object]) -> float:
    began = time.process_time()
    task()
    return time.process_time() - began


def step_ratio() -> float:
    """Our full-batch step to the one by hand."""
    line = LINES[0]._replace(epochs=10**6)
    run = run_of(line, problem(line), 0)
    by_hand = FlatStep(run)
    for task in (run.run_epoch, by_hand):
        for _ in range(20):
            task()
    ratios = []
    for _ in range(10 * ROUNDS):
        ours = seconds(lambda: [run.run_epoch() for _ in range(10)])
        ratios.append(ours / seconds(lambda: [by_hand() for _ in range(10)]))
    return statistics.median(ratios)


def main() -> int:
    """Print what is wanted and what is measured."""
    with threads(1):
        step = step_ratio()
        print(f"our step, 2-64-64-5, 700 rows: {step:.2f} × by hand (wanted: {STEP_LIMIT})")
        print(
            f"{'K networks':38s}{'K':>3s}{'by hand':>9s}{'alone':>8s}{'cohort':>8s}"
            "  ÷ by hand  ÷ alone  estimated  wanted"
        )
        for line in LINES:
            print(measured(line), flush=True)
    return 0


def measured(line: Line) -> str:
    """One line of the table: medians of CPU seconds and of the rounds' ratios."""
    splits = problem(line)
    tasks = (by_hand, one_by_one, together)
    times = [[seconds(partial(task, line, splits)) for task in tasks] for _ in range(ROUNDS)]
    hand, alone, cohort = (statistics.median(column) for column in zip(*times, strict=True))
    to_hand, to_alone = (statistics.median(row[2] / row[way] for row in times) for way in (0, 1))
    rows = line.batch or line.rows
    products = rows * sum(a * b for a, b in pairwise(line.widths))
    estimate = gain(line.members, multiplications=products, rows=rows, by_hand=True)
    # By hand nothing is evaluated, and no weights are learned: no ratio to it where that is work.
    beside = "" if line.every or line.held_out else f"{to_hand:.2f}"
    return (
        f"{line.name:38s}{line.members:3d}{hand:8.2f}s{alone:7.2f}s{cohort:7.2f}s"
        f"{beside:>11s}{to_alone:9.2f}{estimate:11.2f}"
        f"  {line.limit:g} × {line.beside}"
    )


if __name__ == "__main__":
    sys.exit(main())
