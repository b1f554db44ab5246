"""The figures of a sweep, drawn from its records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from calibration import plots, post_hoc
from calibration.data import Part
from calibration.training import TrainingRun
from sweeps.cells import Entry
from sweeps.plan import Plan
from sweeps.report.results import headline_rows, label
from sweeps.spec import ORACLE
from sweeps.store import Store, file_name
from sweeps.trial import load_network

CURVES = (
    ("ece-curve", "val/ece", "validation ECE"),
    ("gamma-mean", "val/gamma_mean", "mean of γ on validation data"),
    ("gamma-std", "val/gamma_std", "standard deviation of γ on validation data"),
)
Shown = tuple[Tensor, Tensor]
"""Confidence and correctness of one row of the leaderboard on test data."""


def figures(plan: Plan, store: Store, table: pd.DataFrame) -> dict[str, Figure]:
    """Reliability, bin robustness, risk–coverage and curves per dataset; for plane points
    the regions of confidence; learned sample weights and γ where a method has them.

    One confirmed seed, the first, is drawn: pooling seeds would count a fixed test set
    several times and make the intervals look better than they are.
    """
    drawn: dict[str, Figure] = {}
    for dataset, loaded in plan.loaded.datasets.items():
        shown = {
            name: _shown(plan, store, dataset, method, post_hoc)
            for name, (method, post_hoc) in _rows_to_show(plan, table, dataset).items()
        }
        if not shown:
            continue
        drawn[f"{dataset}_reliability"] = plots.reliability_grid(shown, bins=plan.spec.bins)
        drawn[f"{dataset}_bins"] = plots.bin_robustness(shown)
        drawn[f"{dataset}_coverage"] = plots.risk_coverage(shown)
        drawn |= _training_curves(plan, store, dataset)
        drawn |= _weights(plan, store, dataset)
        if loaded.kind == "points":
            drawn[f"{dataset}_regions"] = _regions(plan, store, dataset)
    return drawn


def top_label(output: Tensor, logits: Tensor, labels: Tensor) -> Shown:
    """Confidence and correctness from probability rows or top-label confidences."""
    if output.ndim == 2:
        confidence, predicted = output.max(-1)
        return confidence, predicted == labels
    return output, logits.argmax(-1) == labels


def _first_confirmed(plan: Plan, store: Store, dataset: str, method: str) -> Entry | None:
    for entry in plan.confirmed(dataset, method):
        record = store.record(entry.key)
        if record is not None and record["status"] == "done":
            return entry
    return None


def _confirmed_rows(plan: Plan, store: Store, dataset: str) -> dict[str, Entry]:
    entries = {row: _first_confirmed(plan, store, dataset, row) for row in plan.spec.methods}
    return {row: entry for row, entry in entries.items() if entry is not None}


def _rows_to_show(plan: Plan, table: pd.DataFrame, dataset: str) -> dict[str, tuple[str, str]]:
    """Row and post-hoc map by name: those of the published table, or the headline's."""
    rows = table[(table["dataset"] == dataset) & (table["method"] != ORACLE)]
    there = {label(m, p): (m, p) for m, p in zip(rows["method"], rows["post_hoc"], strict=True)}
    if plan.spec.table is not None:
        wanted = plan.spec.table.rows.items()
        plain = {name: ours.removesuffix(" + identity") for name, ours in wanted}
        return {name: there[ours] for name, ours in plain.items() if ours in there}
    chosen = headline_rows(rows, dataset)
    names = [label(m, p) for m, p in zip(chosen["method"], chosen["post_hoc"], strict=True)]
    return {name: there[name] for name in names}


def _shown(plan: Plan, store: Store, dataset: str, method: str, map_name: str) -> Shown:
    entry = _first_confirmed(plan, store, dataset, method)
    assert entry is not None, "the leaderboard has rows of confirmed trials only"
    arrays = store.predictions(entry.key)
    fitted = post_hoc.fit(map_name, arrays["validation_logits"], arrays["validation_labels"])
    logits = arrays["test_logits"]
    return top_label(fitted(logits), logits, arrays["test_labels"])


def _training_curves(plan: Plan, store: Store, dataset: str) -> dict[str, Figure]:
    """Validation ECE over epochs, and γ's mean and spread, each where there is a curve."""
    records = {row: store.record(e.key) for row, e in _confirmed_rows(plan, store, dataset).items()}
    drawn = {}
    for name, column, ylabel in CURVES:
        points = {
            row: [(line["epoch"], line[column]) for line in record["curve"] if column in line]
            for row, record in records.items()
            if record is not None
        }
        there = {row: line for row, line in points.items() if len(line) > 1}
        if there:
            drawn[f"{dataset}_{name}"] = plots.curves(there, ylabel)
    return drawn


def _weights(plan: Plan, store: Store, dataset: str) -> dict[str, Figure]:
    """The history of learned sample weights, for every row that keeps one."""
    drawn = {}
    for row, entry in _confirmed_rows(plan, store, dataset).items():
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
        name = file_name(row).replace("_", "-")  # the page finds its dataset before the last one
        drawn[f"{dataset}_{name}-weights"] = plots.sample_weights(
            history["epoch"], history["weights"], wrong, inputs if is_plane else None
        )
    return drawn


def _regions(plan: Plan, store: Store, dataset: str) -> Figure:
    confirmed = _confirmed_rows(plan, store, dataset)
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
