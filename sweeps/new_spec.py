"""A first spec for a user's own data: what ``calsweep init`` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api import types

from calibration.data import Dataset, load_dataset
from calibration.data.columns import check_names, infer_columns
from calibration.data.table import read_frame
from calibration.methods import METHODS
from sweeps.spec import SpecError
from sweeps.store import file_name

FAST = (
    "standard",
    "label_smoothing",
    "margin_label_smoothing",
    "focal",
    "focal_label_smoothing",
    "brier",
    "mixup",
)
"""Methods that train about as fast as cross-entropy alone."""
SMALLEST_CLASS = 20
FEW_ROWS, MANY_ROWS = 2_000, 50_000


@dataclass
class Findings:
    """What was seen in a data file: its dataset's options, and remarks for the spec."""

    options: dict[str, Any]
    dataset: Dataset
    rows: int
    remarks: list[str] = field(default_factory=list)


def new_spec(
    data: Path, target: str | None, methods: Literal["all", "fast"], directory: Path
) -> tuple[str, str]:
    """A commented spec for the data and the name it has; ``directory``: where it will lie.

    Raises ``SpecError`` if the data cannot be used, naming the file and what is wrong.
    """
    try:
        found = _arrays(data) if data.suffix.lower() == ".npz" else _table(data, target)
    except ValueError as error:
        raise SpecError(str(error)) from None
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file_name(data.name.partition(".")[0])).strip("-._")
    name = name or "my-sweep"
    options = {**found.options, "path": _relative(data, directory)}
    return name, _text(name, options, found, methods)


def _arrays(data: Path) -> Findings:
    dataset = load_dataset("arrays", {"path": str(data)})
    rows = sum(map(len, _pool_labels(dataset)))
    return Findings({"name": "arrays"}, dataset, rows, _class_remarks(dataset))


def _table(data: Path, target: str | None) -> Findings:
    frame = read_frame(data)
    columns = [str(name) for name in frame.columns]
    if target is None:
        raise SpecError(
            f"{data}: which column holds the classes? Say --target COLUMN; columns: "
            f"{', '.join(columns[:20])}{', …' if len(columns) > 20 else ''}"
        )
    check_names([target], frame, str(data), "target")
    dropped = _unusable(frame, [name for name in columns if name != target], str(data))
    options: dict[str, Any] = {"name": "table", "target": target}
    if dropped:
        options["drop"] = list(dropped)
    loading = {k: v for k, v in options.items() if k != "name"} | {"path": str(data)}
    dataset = load_dataset("table", loading)
    remarks = [f"{column!r} is dropped: {why}" for column, why in dropped.items()]
    inputs = dataset.columns
    texts = [column.name for column in inputs if column.kind == "categorical"]
    gaps = [column.name for column in inputs if frame[column.name].isna().any()]
    remarks.append(f"{len(inputs)} inputs, {len(inputs) - len(texts)} of them numbers")
    if texts:
        remarks.append(f"categories: {', '.join(texts[:10])}")
    if gaps:
        remarks.append(f"values are missing in: {', '.join(gaps[:10])}")
    return Findings(options, dataset, len(frame), remarks + _class_remarks(dataset))


def _unusable(frame: pd.DataFrame, names: Sequence[str], origin: str) -> dict[str, str]:
    """The columns that cannot or should not be inputs, each with the reason."""
    dropped = {}
    for name in names:
        column = frame[name]
        try:
            infer_columns(frame, [name], (), origin)
        except ValueError as error:
            dropped[name] = str(error).removeprefix(f"{origin}: ").partition(";")[0]
            continue
        if column.nunique(dropna=False) == 1:
            dropped[name] = "it has one value only"
        elif _is_row_number(column):
            dropped[name] = "it looks like a row number"
    return dropped


def _is_row_number(column: pd.Series[Any]) -> bool:
    """Whole numbers that rise by one, or a different one in every row under such a name."""
    if not types.is_integer_dtype(column.dtype) or column.isna().any() or not column.is_unique:
        return False
    named = re.fullmatch(r"(.*[ _-])?(id|index|nr|key)", str(column.name).lower()) is not None
    return named or bool((np.diff(column.to_numpy()) == 1).all())


def _class_remarks(dataset: Dataset) -> list[str]:
    counts = np.zeros(dataset.classes, dtype=int)
    for labels in _pool_labels(dataset):
        counts += np.bincount(labels, minlength=dataset.classes)
    names = dataset.class_names
    shown = ", ".join(f"{n} ({c})" for n, c in list(zip(names, counts, strict=True))[:10])
    remarks = [f"{dataset.classes} classes: {shown}{', …' if dataset.classes > 10 else ''}"]
    rare = [names[place] for place in np.flatnonzero(counts < SMALLEST_CLASS)]
    if rare:
        remarks.append(
            f"few rows to learn and judge by (fewer than {SMALLEST_CLASS}) of: "
            f"{', '.join(rare[:10])}"
        )
    return remarks


def _pool_labels(dataset: Dataset) -> list[Any]:
    from calibration.data import PROTOCOLS

    parts = dataset.split(PROTOCOLS["honest"], 0, held_out=False)
    return [part.labels.numpy() for part in (parts.train, parts.validation, dataset.test(0))]


def _relative(data: Path, directory: Path) -> str:
    try:
        return str(data.resolve().relative_to(directory.resolve()))
    except ValueError:
        return str(data.resolve())


def _text(name: str, options: dict[str, Any], found: Findings, methods: str) -> str:
    image = found.dataset.kind == "image"
    count = len(list(METHODS))
    large = found.rows > MANY_ROWS
    epochs, batch = (30, 256) if image or large else (100, 64 if found.rows < FEW_ROWS else 128)
    model = "small_cnn" if image else "{name: mlp, widths: [64, 64]}"
    dataset = ", ".join(f"{key}: {_scalar(value)}" for key, value in options.items())
    remarks = "\n".join(f"# - {remark}" for remark in found.remarks)
    chosen = "methods: all" if methods == "all" else f"methods: [{', '.join(FAST)}]"
    return f"""\
# A sweep over {name}. Check it: calsweep check THIS_FILE; run it: calsweep run THIS_FILE.
# What was seen in the data ({found.rows} rows):
{remarks}
name: {_scalar(name)}  # results go to runs/{name}/

# A share of the rows is set aside as test data (test_share: 0.2), or name a second file with
# test_path. Paths start at this file's directory.
datasets:
  - {{{dataset}}}

model: {model}  # calsweep models; or your own: {{name: "my_module:MyNetwork"}}

# calsweep methods lists all {count} with their settings. A setting that is not named here is
# searched over its default range.
{chosen}

training:
  epochs: {epochs}
  batch_size: {batch}
  optimiser: adam
  stop_on: nll          # keep the weights with the best validation NLL …
  patience: {max(10, epochs // 5)}          # … and stop when so many epochs brought none better

search:
  sampler: tpe          # grid | random | tpe | gp | cmaes | nsga2
  trials: 12            # for every method: equal budgets make a fair comparison
  objective: nll        # on validation data; test data is out of reach

confirm_seeds: 5        # the best setting of each method, trained again
post_hoc: fast          # every quick post-hoc map on every network; 'all' for the rest
seed: 0
"""


def _scalar(value: Any) -> str:
    """A value in YAML's flow style: JSON is, and a plain word needs no quotes."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_./][\w./-]*", value):
        plain = value.lower() not in ("yes", "no", "on", "off", "true", "false", "null", "y", "n")
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)
