"""A first spec for a user's own data, as ``calsweep init`` writes it."""

from __future__ import annotations

import json
import re
import textwrap
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api import types

from calibration.data import PROTOCOLS, Dataset, load_dataset
from calibration.data.columns import MOST_CATEGORIES, holds_texts, infer_columns
from calibration.data.fixed import TEST_SHARE
from calibration.data.frames import check_names, read_frame, repeated_names
from calibration.data.splitting import FEWEST_ROWS
from calibration.learners import learner_names
from calibration.methods import METHODS
from sweeps.errors import UserError
from sweeps.search import SAMPLERS
from sweeps.spec.data_warnings import class_warnings, holds_dates, table_warnings
from sweeps.store import RESERVED_NAMES

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
FOR_TABLES = ("logistic_regression", "hist_gradient_boosting")
"""Estimators that are always installed, and hard to beat on a table."""
SMALLEST_CLASS = 20
_FEW_ROWS, _MANY_ROWS = 2_000, 50_000
_LONGEST_NAME = 60
"""Of a column or class in a remark, in characters."""
IDENTIFIER_SHARE, IDENTIFIER_ROWS = 0.9, 50
"""Texts of which more than this share differ, in more than this many rows, are identifiers."""
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"


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
    """The name and text of a commented spec for the data; ``directory`` is where it will be.

    Raises ``UserError`` if the data cannot be used, naming the file and what is wrong.
    """
    try:
        found = _arrays(data, target) if data.suffix.lower() == ".npz" else _table(data, target)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from None
    name = _name(data)
    options = {**found.options, "path": _relative(data, directory)}
    return name, _text(name, options, found, methods)


def one_line(name: str) -> str:
    """A name, in quotes if it could be misread or break the line, and shortened."""
    unclear = not name.isprintable() or name != name.strip() or not name or set(name) & set("\"',")
    return _short(repr(name) if unclear else name)


def _quoted(name: str) -> str:
    return _short(repr(name))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def _some(names: Iterable[str], most: int = 10) -> str:
    shown = [one_line(name) for name in names]
    return ", ".join(shown[:most]) + (", …" if len(shown) > most else "")


def _name(data: Path) -> str:
    """A sweep's name like the file's: letters lose their accents, all else becomes dashes."""
    letters = unicodedata.normalize("NFKD", data.name.partition(".")[0].replace("ß", "ss"))
    letters = "".join(c for c in letters if not unicodedata.combining(c))
    letters = re.sub(r"[^\w.+-]", "_", letters)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", letters)[:100].strip("-._")
    return f"{name}-sweep" if name in RESERVED_NAMES else name or "my-sweep"


def _arrays(data: Path, target: str | None) -> Findings:
    if target is not None:
        raise UserError(
            f"{data}: --target names a column of a CSV or Parquet file; the classes of an NPZ file "
            "are its array labels (or y): leave --target out"
        )
    dataset = load_dataset("arrays", {"path": str(data)})
    counts = _class_counts(dataset, str(data))
    remarks = _class_warnings(dataset.class_names, counts)
    remarks += _class_remarks(dataset.class_names, counts)
    return Findings({"name": "arrays"}, dataset, sum(counts), remarks)


def _table(data: Path, target: str | None) -> Findings:
    frame = read_frame(data)
    columns = [str(name) for name in frame.columns]
    hint = _no_header(columns)
    if target is None:
        raise UserError(
            f"{data}: which column holds the classes? Name it with --target COLUMN; columns: "
            f"{_some(columns, 20)}" + (f"; {hint}" if hint else "")
        )
    try:
        check_names([target], frame, str(data), "target")
    except ValueError as error:
        raise UserError(f"{error}; {hint}" if hint else str(error)) from None
    origin = f"{data}, column {_quoted(target)}"
    _check_target(frame[target], origin)
    dropped = _unusable(frame, target)
    remarks = [f"{_quoted(column)} is dropped: {why}" for column, why in dropped.items()]
    if len(dropped) == len(columns) - 1:
        raise UserError(
            f"{data}: no column is left to learn from beside {_quoted(target)}"
            + "".join(f"; {remark}" for remark in remarks[:5])
        )
    options: dict[str, Any] = {"name": "table", "target": target}
    if dropped:
        options["drop"] = list(dropped)
    loading = {k: v for k, v in options.items() if k != "name"} | {"path": str(data)}
    dataset = load_dataset("table", loading)
    if hint:
        remarks.insert(0, hint)
    for name, count in repeated_names(data).items():
        remarks.append(f"{count} columns are called {_quoted(name)}: the later ones get numbers")
    inputs = dataset.columns
    texts = [column.name for column in inputs if column.kind == "categorical"]
    gaps = [column.name for column in inputs if frame[column.name].isna().any()]
    remarks.append(f"{len(inputs)} inputs, {len(inputs) - len(texts)} of them numbers")
    if texts:
        remarks.append(f"categories: {_some(texts)}")
    if gaps:
        remarks.append(f"values are missing in: {_some(gaps)}")
    counts = _class_counts(dataset, origin)
    remarks += _class_remarks(dataset.class_names, counts)
    warnings = table_warnings(frame, target, {name: _quoted(name) for name in columns})
    warnings += _class_warnings(dataset.class_names, counts)
    return Findings(options, dataset, len(frame), [*warnings, *remarks])


def _no_header(columns: list[str]) -> str | None:
    """A hint if the columns' names look like a row: numbers, except perhaps one."""
    # The columns of a matrix are often called 0, 1, 2, …, and pandas adds .1 to a second 5.1.
    numbers = [name for name in columns if re.fullmatch(rf"{NUMBER}(\.\d+)?", name)]
    counted = {str(place) for place in range(len(columns) + 1)}
    if len(numbers) < max(2, len(columns) - 1) or counted.issuperset(numbers):
        return None
    return "the column names are numbers: does the file have a header? Its first line must be one"


def _check_target(column: pd.Series[Any], origin: str) -> None:
    if types.is_float_dtype(column.dtype):
        fractions = column[column.notna() & (column % 1 != 0)]
        if len(fractions):
            raise UserError(
                f"{origin}: a class label cannot be the fraction {fractions.iloc[0]}; round the "
                f"{column.nunique()} different values or group them in bins, or choose another "
                "column"
            )


def _unusable(frame: pd.DataFrame, target: str) -> dict[str, str]:
    """The columns that cannot or should not be inputs, each with the reason."""
    reasons = {str(name): _reason(frame, str(name), target) for name in frame.columns}
    return {name: why for name, why in reasons.items() if why and name != target}


def _reason(frame: pd.DataFrame, name: str, target: str) -> str | None:
    column = frame[name]
    present = column.dropna()
    if present.empty:
        return "it is empty"
    if holds_texts(present):
        reason = _text_reason(present.astype(str))
    else:
        try:
            infer_columns(frame, [name], (), name)
        except ValueError:
            return f"it holds {type(present.iloc[0]).__name__} values, not numbers or texts"
        reason = "it looks like a row number" if _is_row_number(column) else None
    if column.nunique(dropna=False) == 1:
        return "it has one value only"
    return "it repeats the target" if column.equals(frame[target]) else reason


def _text_reason(present: pd.Series[Any]) -> str | None:
    values = pd.Series(present.unique())
    if values.str.fullmatch(r"[+-]?[\d,]+").all() and values.str.contains(",").any():
        return "its numbers have commas; write 1.5 for 1,5 and 1000 for 1,000 to use them"
    if holds_dates(present):
        return "it holds dates; turn them into numbers (days, years) to use them"
    if len(present) > IDENTIFIER_ROWS and len(values) > IDENTIFIER_SHARE * len(present):
        return "nearly every row has its own text, like an identifier"
    if len(values) > MOST_CATEGORIES:
        return f"it has {len(values)} different texts, more than {MOST_CATEGORIES}"
    return None


def _is_row_number(column: pd.Series[Any]) -> bool:
    """Whole numbers that rise by one, or a different one in every row under such a name."""
    if not types.is_integer_dtype(column.dtype) or column.isna().any() or not column.is_unique:
        return False
    named = re.fullmatch(r"(.*[ _-])?(id|index|nr|key)", str(column.name).lower()) is not None
    return named or bool((np.diff(column.to_numpy()) == 1).all())


def _class_counts(dataset: Dataset, origin: str) -> list[int]:
    """The rows of every class. Raises ``UserError`` if they cannot be divided."""
    try:
        parts = dataset.split(PROTOCOLS["honest"], 0, held_out=False)
    except ValueError as error:
        raise UserError(f"{origin}: {str(error).removeprefix(f'{dataset.name}: ')}") from None
    counts = np.zeros(dataset.classes, dtype=int)
    for part in (parts.train, parts.validation, dataset.test(0)):
        counts += np.bincount(part.labels.numpy(), minlength=dataset.classes)
    return [int(count) for count in counts]


def _class_warnings(names: tuple[str, ...], counts: list[int]) -> list[str]:
    return class_warnings(names, counts, {name: one_line(name) for name in names})


def _class_remarks(names: tuple[str, ...], counts: list[int]) -> list[str]:
    sizes = list(zip(names, counts, strict=True))
    shown = ", ".join(f"{one_line(name)} ({count})" for name, count in sizes[:10])
    remarks = [f"{len(names)} classes: {shown}{', …' if len(names) > 10 else ''}"]
    single = [name for name, count in sizes if count < FEWEST_ROWS]
    if single:
        remarks.append(
            f"only trained on, never judged by (fewer than {FEWEST_ROWS} rows): {_some(single)}"
        )
    rare = [name for name, count in sizes if FEWEST_ROWS <= count < SMALLEST_CLASS]
    if rare:
        remarks.append(
            f"few rows to learn and judge by (fewer than {SMALLEST_CLASS}) of: {_some(rare)}"
        )
    return remarks


def _relative(data: Path, directory: Path) -> str:
    try:
        return str(data.resolve().relative_to(directory.resolve()))
    except ValueError:
        return str(data.resolve())


def _text(name: str, options: dict[str, Any], found: Findings, methods: str) -> str:
    image = found.dataset.kind == "image"
    count = len(learner_names())
    large = found.rows > _MANY_ROWS
    epochs, batch = (30, 256) if image or large else (100, 64 if found.rows < _FEW_ROWS else 128)
    model = "small_cnn" if image else "{name: mlp, widths: [64, 64]}"
    dataset = ", ".join(f"{key}: {_scalar(value)}" for key, value in options.items())
    remarks = "\n".join(f"# - {remark}" for remark in found.remarks)
    chosen = _methods(image, methods)
    return f"""\
# A sweep over {name}. Check it: calsweep check THIS_FILE; run it: calsweep run THIS_FILE.
# What was seen in the data ({found.rows} rows):
{remarks}
name: {_scalar(name)}  # results go to runs/{name}/

# A share of the rows is set aside as test data (test_share: {TEST_SHARE:g}), or name a second
# file with test_path. Paths start at this file's directory.
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
  patience: {max(10, epochs // 5)}          # … and stop after that many epochs without any better

search:
  sampler: tpe          # {" | ".join(SAMPLERS)}
  trials: 12            # for every method: equal budgets make a fair comparison
  objective: nll        # on validation data; test data is out of reach

confirm_seeds: 5        # the best setting of each method, trained again
calibrators: fast          # every quick calibrator on every network; 'all' for the rest
seed: 0
"""


def _methods(image: bool, wanted: str) -> str:
    """The rows; for a table, estimators beside the networks."""
    if image and wanted == "all":
        return "methods: all"
    names = list(METHODS) if wanted == "all" else FAST
    lines = f"methods: [{', '.join(names if image else (*FOR_TABLES, *names))}]"
    return textwrap.fill(lines, 98, subsequent_indent="  ", break_long_words=False)


def _scalar(value: Any) -> str:
    """A value in YAML's flow style, which is nearly JSON; a plain word needs no quotes."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_/][\w./-]*", value):
        plain = value.lower() not in ("yes", "no", "on", "off", "true", "false", "null", "y", "n")
        if plain:
            return value
    # YAML breaks lines where JSON does not, and takes JSON's pairs of surrogates for two letters.
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
