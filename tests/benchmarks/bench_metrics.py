"""The metric panel beside torchmetrics' single ECE: time and memory, in one run.

    python -m tests.benchmarks.bench_metrics

The probabilities are 1,000,000 × 10 in float32, like a trained network's softmax. Both sides
use the same threads; their calls alternate, so that a busy machine slows both.
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import psutil
import torch
from torch import Tensor
from torchmetrics.functional.classification import multiclass_calibration_error

from calibration import metrics

ROWS, CLASSES, BINS = 1_000_000, 10, 15
SCALARS = ("ece", "mce", "ace", "classwise_ece", "nll", "brier", "ks", "smooth_ece")
MOST_TIME, MOST_MEMORY = 4.0, 3.0
ROUNDS = 9


class Line(NamedTuple):
    """One line of the table; no target means for information only."""

    what: str
    ours: str
    peer: str
    ratio: float
    target: float | None = None

    @property
    def passed(self) -> bool:
        return self.target is None or self.ratio <= self.target


def network_output(rows: int) -> tuple[Tensor, Tensor]:
    """Confident softmax rows, about 95 % correct and somewhat over-confident.

    Written block by block, so that making them leaves no high-water mark of its own.
    """
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (rows,), generator=generator)
    probabilities = torch.empty(rows, CLASSES)
    for start in range(0, rows, 10_000):
        block = slice(start, start + 10_000)
        logits = torch.randn(len(labels[block]), CLASSES, generator=generator) * 2
        logits[torch.arange(len(logits)), labels[block]] += 7
        probabilities[block] = (logits * 1.3).softmax(-1)
    return probabilities, labels


def alternating_times(*calls: Callable[[], object]) -> list[float]:
    """Least seconds of each call, the least disturbed; the calls take turns."""
    seconds: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(ROUNDS):
        for call, times in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return [min(times) for times in seconds]


def time_lines(threads: int) -> list[Line]:
    torch.set_num_threads(threads)
    probabilities, labels = network_output(ROWS)
    peer, eight, everything = alternating_times(
        lambda: multiclass_calibration_error(probabilities, labels, CLASSES, n_bins=BINS),
        lambda: metrics.panel(probabilities, labels, bins=BINS, metrics=SCALARS),
        lambda: metrics.panel(probabilities, labels, bins=BINS),
    )
    where = f"{threads} thread{'s' if threads > 1 else ''}"
    theirs = f"{peer * 1e3:.0f} ms"
    return [
        Line(f"panel of {len(SCALARS)}, {where}", f"{eight * 1e3:.0f} ms", theirs, eight / peer,
             MOST_TIME),
        Line(f"all {len(metrics.METRICS)} metrics, {where}", f"{everything * 1e3:.0f} ms", theirs,
             everything / peer),
    ]  # fmt: skip


def bootstrap_line() -> Line:
    torch.set_num_threads(1)
    probabilities, labels = network_output(10_000)
    (seconds,) = alternating_times(lambda: metrics.bootstrap_intervals(probabilities, labels))
    what = f"{len(metrics.INTERVALS)} intervals, 10,000 rows, 1 thread"
    return Line(what, f"{seconds:.2f} s", "1 s wished", seconds)


def measure_memory() -> None:
    """Print the bytes by which the panel raises this process's high-water mark."""
    torch.set_num_threads(1)
    probabilities, labels = network_output(ROWS)
    metrics.panel(probabilities[:1000], labels[:1000])
    gc.collect()
    before = psutil.Process().memory_info().rss
    metrics.panel(probabilities, labels, bins=BINS, metrics=SCALARS)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(peak - before)


def memory_line() -> Line:
    command = [sys.executable, "-c", f"from {__spec__.name} import measure_memory as m; m()"]
    extra = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    given = ROWS * CLASSES * 4
    return Line("peak extra memory, panel of 8", f"{extra / 1e6:.0f} MB",
                f"{given / 1e6:.0f} MB input", extra / given, MOST_MEMORY)  # fmt: skip


def main() -> int:
    """Print the table; return 1 if a target is missed."""
    threads = torch.get_num_threads()
    lines = [memory_line()]
    for number in sorted({1, threads}):
        lines += time_lines(number)
    lines.append(bootstrap_line())
    print(f"metrics of {ROWS:,} × {CLASSES} float32 probabilities beside torchmetrics' ECE")
    print(f"{'':36} {'ours':>10} {'peer':>14} {'ratio':>7} {'target':>8}")
    for line in lines:
        target = "" if line.target is None else f"≤ {line.target:g}"
        verdict = "" if line.target is None else ("pass" if line.passed else "FAIL")
        measured = f"{line.ours:>10} {line.peer:>14} {line.ratio:7.2f}"
        print(f"{line.what:36} {measured} {target:>8} {verdict}")
    torch.set_num_threads(threads)
    return int(not all(line.passed for line in lines))


if __name__ == "__main__":
    sys.exit(main())
