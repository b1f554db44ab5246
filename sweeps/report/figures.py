"""The figures of a sweep as files, drawn from its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from calibration import plots
from calibration.data import Part
from calibration.training import TrainingRun
from sweeps.plan import Plan
from sweeps.report.gather import CURVES, Gathered, first_confirmed
from sweeps.store import Store, file_name
from sweeps.trial import load_network

FILES = {
    "val/ece": "ece-curve",
    "val/gamma_mean": "gamma-mean",
    "val/gamma_std": "gamma-std",
}


class Drawn(NamedTuple):
    """A figure to be filed as ``name``; ``title`` and ``about`` if the page shows it as it is."""

    name: str
    dataset: str
    figure: Figure
    title: str = ""
    about: str = ""


def figures(plan: Plan, store: Store, gathered: Gathered) -> Iterator[Drawn]:
    """Reliability, bin robustness, risk–coverage and curves per dataset; for plane points
    the regions of confidence; learned sample weights where a method has them.
    """
    for dataset, loaded in plan.loaded.datasets.items():
        shown = {name: row.pair for name, row in gathered.shown[dataset].items()}
        if not shown:
            continue
        start = file_name(dataset)
        grid = plots.reliability_grid(shown, bins=plan.spec.bins)
        yield Drawn(f"{start}_reliability", dataset, grid)
        yield Drawn(f"{start}_bins", dataset, plots.bin_robustness(shown))
        yield Drawn(f"{start}_coverage", dataset, plots.risk_coverage(shown))
        for column, name in FILES.items():
            if column in gathered.curves[dataset]:
                curves = plots.curves(gathered.curves[dataset][column], CURVES[column])
                yield Drawn(f"{start}_{name}", dataset, curves)
        yield from _weights(plan, store, dataset)
        if loaded.kind == "points":
            yield Drawn(
                f"{start}_regions",
                dataset,
                _regions(plan, store, dataset),
                "Confidence over the plane",
                "Light is confident; the training points on top. First seed, no post-hoc map.",
            )


def _weights(plan: Plan, store: Store, dataset: str) -> Iterator[Drawn]:
    """The history of learned sample weights, for every row that keeps one."""
    for row, entry in first_confirmed(plan, store, dataset).items():
        history = store.arrays(entry.key, "history.npz")
        if history is None or history.get("weights", torch.empty(0)).ndim != 2:
            continue
        run = load_network(entry.config, store)
        step = -(-len(run.train.labels) // history["weights"].shape[1])
        raw = plan.loaded.datasets[dataset].split(
            plan.spec.protocol, entry.config.seed, held_out=run.method.needs_held_out
        )
        inputs, labels = raw.train.inputs[::step], raw.train.labels[::step]
        wrong = run.predict(Part(inputs, labels)).argmax(-1) != labels
        is_plane = plan.loaded.datasets[dataset].kind == "points"
        yield Drawn(
            f"{file_name(dataset)}_{file_name(row)}-weights",
            dataset,
            plots.sample_weights(
                history["epoch"], history["weights"], wrong, inputs if is_plane else None
            ),
            f"Sample weights learned by {row}",
            "How the weights of training points went over epochs. First seed.",
        )


def _regions(plan: Plan, store: Store, dataset: str) -> Figure:
    confirmed = first_confirmed(plan, store, dataset)
    named = {m: _confidence(load_network(e.config, store)) for m, e in confirmed.items()}
    seed = next(iter(confirmed.values())).config.seed
    data = plan.loaded.datasets[dataset].split(plan.spec.protocol, seed, held_out=False).train
    return plots.confidence_regions_grid(named, data.inputs.numpy(), data.labels.numpy())


def _confidence(run: TrainingRun) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    def confidence(points: NDArray[np.float64]) -> NDArray[np.float64]:
        inputs = torch.as_tensor(points)
        part = Part(inputs, torch.zeros(len(inputs), dtype=torch.long))
        return run.predict(part).double().softmax(-1).max(-1).values.numpy()

    return confidence
