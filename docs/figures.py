"""The figures of the concept pages, drawn by calsweep's own functions.

python docs/figures.py        # writes docs/pages/concepts/*.png
"""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure

from calibration import metrics
from calibration.data import PROTOCOLS, load_dataset
from calibration.methods import make_method
from calibration.plots import png, reliability_grid, style
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig

PLACE = Path(__file__).parent / "pages" / "concepts"
RESULTS = Path(__file__).parent.parent / "sweeps" / "specs" / "results" / "survey.csv"
ROWS = (250, 500, 1000, 2000, 4000, 8000, 16000)
CLASSES = 5
REGION = 0.01
EPOCHS, STOPPED = 60, 25
SEARCHED = 40
INTERVALS = {
    "better": (-0.052, -0.020),
    "worse": (0.016, 0.048),
    "equivalent": (-0.007, 0.005),
    "undecided: better or equivalent": (-0.035, 0.004),
    "undecided: anything": (-0.030, 0.034),
}


def calibrated(rows: int, sharpness: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities, and labels drawn with exactly these: calibrated by construction."""
    generator = torch.Generator().manual_seed(rows)
    logits = sharpness * torch.randn(rows, CLASSES, generator=generator, dtype=torch.float64)
    probabilities = logits.softmax(-1)
    return probabilities, torch.multinomial(probabilities, 1, generator=generator).squeeze(1)


@style.styled
def blind() -> Figure:
    """Three classifiers that ECE calls equally good."""
    drawn = {"base rates": 0.0, "some skill": 1.0, "much skill": 6.0}
    shown = {}
    for name, sharpness in drawn.items():
        probabilities, labels = calibrated(20_000, sharpness)
        correct = probabilities.argmax(-1) == labels
        error = 1 - float(correct.double().mean())
        shown[f"{name}: error {error:.2f}"] = (probabilities.amax(-1), correct)
    return reliability_grid(shown)


@style.styled
def floor() -> Figure:
    """The ECE that a calibrated classifier reads, by the number of test rows."""
    figure = style.new_figure(6.4, 3.6, None)
    axes = figure.subplots()
    for sharpness in (1.0, 4.0, 20.0):
        drawn = [calibrated(rows, sharpness)[0] for rows in ROWS]
        floors = [metrics.noise_floor(each) for each in drawn]
        words = f"mean confidence {float(drawn[-1].amax(-1).mean()):.2f}"
        (line,) = axes.plot(ROWS, [each.mean for each in floors], marker="o", label=words)
        axes.plot(ROWS, [each.q95 for each in floors], ls=":", color=line.get_color())
    axes.set(xscale="log", xlabel="test rows", ylabel="ECE of a calibrated classifier")
    axes.set_xticks(ROWS, [f"{rows:,}" for rows in ROWS], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_ylim(0)
    axes.legend(title="mean (dotted: 95 % quantile)")
    return figure


@style.styled
def optimism() -> Figure:
    """What validation data promised the winner of each row, and what test data found."""
    table = pd.read_csv(RESULTS)
    best = table.loc[table.groupby(["dataset", "row"])["validation/nll"].idxmin()]
    figure = style.new_figure(6.4, 4, None)
    axes = figure.subplots()
    for marker, (dataset, rows) in zip("os^Dv", best.groupby("dataset"), strict=False):
        axes.plot(rows["validation/nll"], rows["nll"], marker, label=dataset, alpha=0.7)
    ends = [
        best[["validation/nll", "nll"]].min().min(),
        best[["validation/nll", "nll"]].max().max(),
    ]
    axes.plot(ends, ends, color=style.MUTED, lw=1)
    axes.set(xlabel="validation NLL, which chose", ylabel="test NLL")
    axes.legend()
    return figure


@style.styled
def verdicts() -> Figure:
    """Intervals of a difference in NLL, and what is said of each."""
    figure = style.new_figure(6.4, 2.8, None)
    axes = figure.subplots()
    axes.axvspan(-REGION, REGION, color=style.PALE, label="region of equivalence")
    axes.axvline(0, color=style.MUTED, lw=1)
    for place, (low, high) in enumerate(reversed(INTERVALS.values())):
        axes.plot([low, high], [place, place], color=style.INK, lw=2)
        axes.plot([(low + high) / 2], [place], "o", color=style.INK)
    axes.set_yticks(range(len(INTERVALS)), list(reversed(INTERVALS)))
    axes.set_xlabel("NLL of the row minus that of the baseline")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1))  # above the axes, beside no interval
    return figure


def training(method: str, **hyperparameters: float) -> TrainingRun:
    """A small network on blobs 1.7, before its first epoch."""
    return TrainingRun(
        make_method(method, {"weight_decay": 0.0} | hyperparameters),
        load_dataset("blobs-1.7", {}).split(PROTOCOLS["honest"], 0, held_out=False),
        model="mlp",
        model_options={"widths": (32,)},
        classes=CLASSES,
        config=TrainingConfig(epochs=EPOCHS, batch_size="full", stop_on="none"),
        seed=0,
    )


def losses(run: TrainingRun, epochs: int = EPOCHS) -> list[float]:
    """The validation NLL after each of the next epochs."""
    return [run.run_epoch()["validation/nll"] for _ in range(epochs)]


def expected_best(values: list[float], trials: int) -> float:
    """The mean of the lowest of so many values, over all ways to draw them."""
    ordered, ways = sorted(values), math.comb(len(values), trials)
    behind = range(len(values) - 1, -1, -1)
    return sum(v * math.comb(n, trials - 1) / ways for v, n in zip(ordered, behind, strict=True))


@style.styled
def search() -> Figure:
    """What searching alone gains: the best validation NLL by the number of random trials."""
    generator = torch.Generator().manual_seed(0)
    figure = style.new_figure(6.4, 3.6, None)
    axes = figure.subplots()
    for name in ("standard", "focal"):
        found = []
        for _ in range(SEARCHED):
            lr, gamma = torch.rand(2, generator=generator).tolist()
            own = {"gamma": 5 * gamma} if name == "focal" else {}
            found.append(losses(training(name, lr=0.001 * 100**lr, **own))[-1])
        trials = range(1, SEARCHED // 2 + 1)
        axes.plot(trials, [expected_best(found, k) for k in trials], label=name)
    axes.set(xlabel="search trials", ylabel="validation NLL of the best, expected")
    axes.set_xticks([1, *range(5, SEARCHED // 2 + 1, 5)])
    axes.legend()
    return figure


@style.styled
def resumed() -> Figure:
    """A training that was stopped and continued, and the same without a stop."""
    whole, first, second = (training("standard", lr=0.02) for _ in range(3))
    curve = losses(whole)
    before = losses(first, STOPPED)
    second.load_state_dict(first.state_dict())
    after = losses(second, EPOCHS - STOPPED)
    if before + after != curve:
        raise AssertionError("a continued training must be the same to the bit")
    figure = style.new_figure(6.4, 3.2, None)
    axes = figure.subplots()
    axes.plot(range(1, EPOCHS + 1), curve, color=style.PALE, lw=8, label="never stopped")
    axes.plot(range(1, STOPPED + 1), before, label="until it was stopped")
    axes.plot(range(STOPPED + 1, EPOCHS + 1), after, label="continued from its checkpoint")
    axes.axvline(STOPPED, color=style.MUTED, lw=1, ls=":")
    axes.set(xlabel="epoch", ylabel="validation NLL")
    axes.legend()
    return figure


FIGURES = (blind, floor, optimism, verdicts, search, resumed)


def main() -> None:
    """Draw them all."""
    for draw in FIGURES:
        (PLACE / f"{draw.__name__}.png").write_bytes(png(draw()))


if __name__ == "__main__":
    main()
