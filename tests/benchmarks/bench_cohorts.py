"""Cohorts beside the same networks one by one and beside a plain torch loop, in one run.

    python -m tests.benchmarks.bench_cohorts

Every line trains the same K networks, with K learning rates, for the same number of epochs in
three ways: by hand (``nn.Sequential``, ``torch.optim.Adam``), one ``TrainingRun`` after the
other, and as a ``Cohort``; float32, one thread, CPU time, evaluated after the last epoch only.
The three alternate, so that a busy machine slows all alike; ratios are medians over the rounds.
A cohort's time includes the steps that it also takes one by one to compare their bits. The
first line compares our step alone with a step written by hand on one flat vector, with Adam
in place.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibration.cohort import Cohort
from calibration.data import Part, Protocol, Splits
from calibration.data.fixed import FixedDataset
from calibration.methods import make_method
from calibration.threads import threads
from calibration.training import TrainingConfig, TrainingRun

ROUNDS, CLASSES = 5, 5
STEP_LIMIT = 1.25


class Line(NamedTuple):
    """K networks of one shape; ``limit``: what a cohort may take of the time one by one."""

    name: str
    members: int
    inputs: int
    widths: tuple[int, ...]
    rows: int
    batch: int | None
    epochs: int
    limit: float


LINES = (
    Line("2-64-64-5, 700 rows, full batch", 16, 2, (64, 64), 700, None, 60, 1.0),
    Line("2-32-5, 700 rows, full batch", 24, 2, (32,), 700, None, 60, 0.5),
    Line("2-64-64-5, 700 rows, batch 64", 16, 2, (64, 64), 700, 64, 8, 0.35),
    Line("512-5, 2048 rows, batch 256", 16, 512, (), 2048, 256, 8, 0.6),
    Line("2-256-256-5, 700 rows, batch 128", 8, 2, (256, 256), 700, 128, 6, 1.0),
)


def problem(line: Line) -> Splits:
    generator = torch.Generator().manual_seed(0)
    total = line.rows + 100
    labels = torch.arange(total) % CLASSES
    centres = 2 * torch.randn(CLASSES, line.inputs, generator=generator)
    inputs = centres[labels] + torch.randn(total, line.inputs, generator=generator)
    rows = Part(inputs.double(), labels)
    names = tuple(map(str, range(CLASSES)))
    dataset = FixedDataset("drawn", "table", rows, names, test=rows)
    return dataset.split(
        Protocol(name="bench", validation=100, meta_validation=1), 0, held_out=False
    )


def run_of(line: Line, splits: Splits, place: int) -> TrainingRun:
    size: int | str = line.batch or "full"
    settings = {"epochs": line.epochs, "batch_size": size, "evaluate_every": line.epochs}
    return TrainingRun(
        make_method("standard", {"lr": 0.001 * (1 + place)}),
        splits,
        model="mlp",
        model_options={"widths": line.widths},
        classes=CLASSES,
        config=TrainingConfig.model_validate(settings | {"stop_on": "none"}),
        seed=place,
    )


def by_hand(line: Line, splits: Splits) -> None:
    inputs, labels = splits.transform(splits.train.inputs), splits.train.labels
    for place in range(line.members):
        layers: list[nn.Module] = []
        width = line.inputs
        for units in line.widths:
            layers += [nn.Linear(width, units), nn.ReLU()]
            width = units
        network = nn.Sequential(*layers, nn.Linear(width, CLASSES))
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
    """Print the table, with what is wanted beside each ratio; not all of it is reached yet."""
    with threads(1):
        step = step_ratio()
        print(f"our step, 2-64-64-5, 700 rows: {step:.2f} × by hand (wanted: {STEP_LIMIT})")
        print(f"{'K networks':36s}{'K':>4s}{'by hand':>10s}{'alone':>8s}{'cohort':>8s}   ratio")
        for line in LINES:
            splits = problem(line)
            tasks = (by_hand, one_by_one, together)
            times = [
                [seconds(partial(task, line, splits)) for task in tasks] for _ in range(ROUNDS)
            ]
            hand, alone, cohort = (statistics.median(column) for column in zip(*times, strict=True))
            ratio = statistics.median(row[2] / row[1] for row in times)
            print(
                f"{line.name:36s}{line.members:4d}{hand:9.2f}s{alone:7.2f}s{cohort:7.2f}s"
                f"   {ratio:.2f} × alone (wanted: {line.limit:g})"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
