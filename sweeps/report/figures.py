"""The figures of a sweep as files, drawn from its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from calibration import plots
from calibration.data import Part
from calibration.learners import Training
from calibration.training import TrainingRun
from sweeps.analysis.records import ConfirmedTrial, SweepRecords
from sweeps.engine.networks import load_network
from sweeps.report.gather import CURVES, Gathered, first_confirmed
from sweeps.store import Store, file_name

_FILES = {
    "validation/ece": "ece-curve",
    "validation/gamma_mean": "gamma-mean",
    "validation/gamma_std": "gamma-std",
}


class Drawing(NamedTuple):
    """A figure to be written as ``name``; ``title`` and ``about`` if the page shows it directly.

    ``draw`` may raise anything; it returns None if there is nothing to draw.
    """

    name: str
    dataset: str
    draw: Callable[[], Figure | None]
    title: str = ""
    about: str = ""


def figures(sweep: SweepRecords, store: Store, gathered: Gathered) -> Iterator[Drawing]:
    """Reliability, bin robustness, risk–coverage and curves per dataset; for points in the
    plane the regions of confidence; learned sample weights if a method has them. Drawn lazily.
    """
    for dataset, loaded in sweep.loaded.datasets.items():
        shown = {name: row.pair for name, row in gathered.shown[dataset].items()}
        groups = {name: row.groups for name, row in gathered.shown[dataset].items()}
        if not shown:
            continue
        start = file_name(dataset)
        grid = partial(plots.reliability_grid, shown, bins=sweep.spec.bins, groups=groups)
        yield Drawing(f"{start}_reliability", dataset, grid)
        yield Drawing(f"{start}_bins", dataset, partial(plots.bin_robustness, shown))
        if sweep.spec.table is not None:  # a figure of papers; few need it on every page
            by_bins = partial(plots.reliability_by_bins, shown, groups=groups)
            yield Drawing(f"{start}_reliability-by-bins", dataset, by_bins)
        yield Drawing(f"{start}_coverage", dataset, partial(plots.risk_coverage, shown))
        for column, name in _FILES.items():
            if column in gathered.curves[dataset]:
                points = gathered.curves[dataset][column]
                curves = partial(plots.curves, points, CURVES[column])
                yield Drawing(f"{start}_{name}", dataset, curves)
        for row, trial in first_confirmed(sweep, dataset).items():
            yield Drawing(
                f"{start}_{file_name(row)}-weights",
                dataset,
                partial(_weights, sweep, store, dataset, trial),
                f"Sample weights learned by {row}",
                "The weights of training points over epochs. First seed.",
            )
            yield Drawing(
                f"{start}_{file_name(row)}-along-training",
                dataset,
                partial(_along_training, sweep, store, trial),
                f"{row} during training",
                "Reliability diagrams on validation data over the epochs. First seed, "
                "no calibrator.",
            )
        if loaded.kind == "points":
            yield Drawing(
                f"{start}_regions",
                dataset,
                partial(_regions, sweep, store, dataset),
                "Confidence over the plane",
                "Light is confident; the dots are training points. First seed, no calibrator.",
            )


def _weights(
    sweep: SweepRecords, store: Store, dataset: str, trial: ConfirmedTrial
) -> Figure | None:
    """The history of learned sample weights, if the row keeps one."""
    record = trial.record
    history = None if record is None else store.arrays(record, "history.npz")
    if history is None or history.get("weights", torch.empty(0)).ndim != 2:
        return None
    run = _network(trial, store)
    assert isinstance(run, TrainingRun), "an estimator learns no weights"
    step = -(-len(run.train.labels) // history["weights"].shape[1])
    raw = sweep.loaded.datasets[dataset].split(
        sweep.spec.protocol, trial.config.seed, held_out=run.method.needs_held_out
    )
    inputs, labels = raw.train.inputs[::step], raw.train.labels[::step]
    wrong = run.predict(Part(inputs, labels)).argmax(-1) != labels
    is_plane = sweep.loaded.datasets[dataset].kind == "points"
    return plots.sample_weights(
        history["epoch"], history["weights"], wrong, inputs if is_plane else None
    )


def _along_training(sweep: SweepRecords, store: Store, trial: ConfirmedTrial) -> Figure | None:
    """The reliability diagrams that the training kept, if any."""
    record = trial.record
    kept = None if record is None else store.arrays(record, "reliability.npz")
    if not kept:
        return None
    looks = zip(*(kept[name] for name in ("epoch", "confidence", "correct")), strict=True)
    named = {f"epoch {int(epoch)}": (conf, correct.bool()) for epoch, conf, correct in looks}
    return plots.reliability_grid(named, bins=sweep.spec.bins)


def _regions(sweep: SweepRecords, store: Store, dataset: str) -> Figure:
    confirmed = first_confirmed(sweep, dataset)
    named = {row: _confidence(_network(trial, store)) for row, trial in confirmed.items()}
    seed = next(iter(confirmed.values())).config.seed
    data = sweep.loaded.datasets[dataset].split(sweep.spec.protocol, seed, held_out=False).train
    return plots.confidence_regions_grid(named, data.inputs.numpy(), data.labels.numpy())


def _network(trial: ConfirmedTrial, store: Store) -> Training:
    assert trial.record is not None, "only confirmed trials are drawn"
    return load_network(trial.config, trial.record, store)


def _confidence(run: Training) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    def confidence(points: NDArray[np.float64]) -> NDArray[np.float64]:
        inputs = torch.as_tensor(points)
        part = Part(inputs, torch.zeros(len(inputs), dtype=torch.long))
        return run.predict(part).double().softmax(-1).max(-1).values.numpy()

    return confidence
