"""The figures of a sweep, drawn from its records."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from calibration import plots, post_hoc
from calibration.data import Part
from sweeps.plan import Entry, Plan
from sweeps.report.results import ORACLE, headline_rows, label
from sweeps.store import Store
from sweeps.trial import load_network

Shown = tuple[Tensor, Tensor]
"""Confidence and correctness of one row of the leaderboard on test data."""


def figures(plan: Plan, store: Store, table: pd.DataFrame) -> dict[str, Figure]:
    """Reliability, bin robustness and risk–coverage per dataset; regions for plane points.

    One confirmed seed, the first, is drawn: pooling seeds would count a fixed test set
    several times and make the intervals look better than they are.
    """
    drawn: dict[str, Figure] = {}
    for dataset, loaded in plan.loaded.datasets.items():
        rows = headline_rows(table, dataset)
        shown = {
            label(row["method"], row["post_hoc"]): _shown(plan, store, dataset, row)
            for _, row in rows[rows["method"] != ORACLE].iterrows()
        }
        if not shown:
            continue
        drawn[f"{dataset}_reliability"] = plots.reliability_grid(shown, bins=plan.spec.bins)
        drawn[f"{dataset}_bins"] = plots.bin_robustness(shown)
        drawn[f"{dataset}_risk_coverage"] = plots.risk_coverage(shown)
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


def _shown(plan: Plan, store: Store, dataset: str, row: pd.Series) -> Shown:
    entry = _first_confirmed(plan, store, dataset, row["method"])
    assert entry is not None, "the leaderboard has rows of confirmed trials only"
    arrays = store.predictions(entry.key)
    fitted = post_hoc.fit(row["post_hoc"], arrays["validation_logits"], arrays["validation_labels"])
    logits = arrays["test_logits"]
    return top_label(fitted(logits), logits, arrays["test_labels"])


def _regions(plan: Plan, store: Store, dataset: str) -> Figure:
    named = {}
    points = labels = None
    for method in plan.spec.methods:
        entry = _first_confirmed(plan, store, dataset, method)
        if entry is None:
            continue
        run = load_network(entry.config, store)

        def confidence(where: np.ndarray, run: object = run) -> np.ndarray:
            inputs = torch.as_tensor(where)
            part = Part(inputs, torch.zeros(len(inputs), dtype=torch.long))
            return np.asarray(run.predict(part).softmax(-1).max(-1).values)  # type: ignore[attr-defined]

        named[method] = confidence
        if points is None:
            splits = plan.loaded.datasets[dataset].split(
                plan.spec.protocol, entry.config.seed, held_out=False
            )
            points, labels = splits.train.inputs.numpy(), splits.train.labels.numpy()
    return plots.confidence_regions_grid(named, points, labels)
