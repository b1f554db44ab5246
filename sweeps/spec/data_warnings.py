"""The warnings of ``calsweep init``: data for which a random split would mislead."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
from pandas.api import types

from calibration.data.columns import holds_texts

WARNING = "Warning: "
MANY_CLASSES = 100
RARE_SHARE = 0.02
_FEWEST_GROUPS = 10
_OWNERS = frozenset(
    {
        *("account", "batch", "client", "customer", "device", "donor", "employee", "family"),
        *("hospital", "household", "individual", "machine", "member", "participant", "patient"),
        *("person", "player", "school", "sensor", "session", "site", "speaker", "store"),
        *("student", "subject", "user", "vehicle"),
    }
)
_DATE = (
    r"(\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}/\d{1,2}/\d{2}"
    r"|\d{1,2}\W+[^\W\d]{3,9}\W+\d{4}|[^\W\d]{3,9}\W+\d{1,2}\W+\d{4})(\D.*)?"
)
_WEIGHTS = frozenset(
    f"{of_what}{word}"
    for of_what in ("", "case_", "instance_", "row_", "sample_", "sampling_", "survey_")
    for word in ("weight", "weights")
)
_MOMENTS = ("date", "datetime", "timestamp", "year")


def warnings_in(text: str) -> list[str]:
    """The warnings among the comments of a written spec."""
    mark = f"# - {WARNING}"
    return [line.removeprefix("# - ") for line in text.splitlines() if line.startswith(mark)]


def table_warnings(frame: pd.DataFrame, target: str, named: dict[str, str]) -> list[str]:
    """Warnings about columns that should not be inputs: times, weights, repeated identifiers.

    ``named`` is how each column is written in a remark.
    """
    found = []
    for column in map(str, frame.columns):
        if column == target:
            continue
        values, name = frame[column].dropna(), named[column]
        if holds_dates(values) or _is_moment(column, values):
            found.append(
                f"{WARNING}{name} looks like a time. Rows that are split at random let a model "
                f"look into the future; with time: {name} it is tested on what came after (write "
                "dates like 2024-03-31)"
            )
        elif _weighs(column, values):
            found.append(
                f"{WARNING}{name} looks like a weight. If it says how much each row counts, it is "
                f"not an input; with weight: {name} training, metrics and calibrators use it"
            )
        elif repeats := _repeats(column, values):
            found.append(
                f"{WARNING}{name} looks like an identifier that repeats ({repeats} different "
                f"values in {len(frame)} rows). Rows of one split over training and test make "
                f"results look better than they are; group: {name} keeps them together"
            )
    return found


def class_warnings(names: tuple[str, ...], counts: list[int], named: dict[str, str]) -> list[str]:
    """Warnings about hundreds of classes, and about rare ones."""
    found = []
    if len(names) >= MANY_CLASSES:
        found.append(
            f"{WARNING}the target has {len(names)} different values. If they are amounts, this is "
            "a regression, but calsweep trains classifiers: group the values into a few classes"
        )
        return found
    total = sum(counts)
    for name, count in zip(names, counts, strict=True):
        if 0 < count < RARE_SHARE * total:
            found.append(
                f"{WARNING}class {named[name]} has {100 * count / total:.2g} % of the rows. Errors "
                "and calibration over all rows hardly show it: look at its own"
            )
    return found


def holds_dates(present: pd.Series[Any]) -> bool:
    """Whether most of these values, none missing, are dates, by their type or as text."""
    if types.is_datetime64_any_dtype(present.dtype):
        return True
    if present.empty or not holds_texts(present):
        return False
    values = pd.Series(present.astype(str).unique())
    dates = values[values.str.strip().str.fullmatch(_DATE)]
    parsed = pd.to_datetime(dates, format="mixed", dayfirst=True, utc=True, errors="coerce")
    return bool(parsed.notna().sum() > 0.9 * len(values))


def _words(column: str) -> list[str]:
    """The words of a column's name: customerId, CUSTOMER_ID and customer-id have the same."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", column).lower().replace("_", " ").split()


def _is_moment(column: str, values: pd.Series[Any]) -> bool:
    words = re.split(r"\W+", " ".join(_words(column)))
    numbers = types.is_numeric_dtype(values.dtype) and not types.is_bool_dtype(values.dtype)
    return numbers and values.nunique() > 2 and words[-1] in _MOMENTS


def _weighs(column: str, values: pd.Series[Any]) -> bool:
    """Whether a column has the name and the values of row weights."""
    numbers = types.is_numeric_dtype(values.dtype) and not types.is_bool_dtype(values.dtype)
    name = "_".join(re.split(r"\W+", " ".join(_words(column))))
    return numbers and bool((values >= 0).all()) and name in _WEIGHTS


def _repeats(column: str, values: pd.Series[Any]) -> int:
    """The number of different values of a repeating identifier; 0 if it is not one."""
    whole = types.is_integer_dtype(values.dtype) and not types.is_bool_dtype(values.dtype)
    texts = not whole and len(values) > 0 and holds_texts(values)
    if not (whole or texts):
        return 0
    distinct = int(values.nunique())
    if distinct < _FEWEST_GROUPS or distinct > 0.9 * len(values):
        return 0
    words = re.split(r"\W+", " ".join(_words(column)))
    named = words[-1] in ("id", "ids", "key", "uuid", "guid") or bool(_OWNERS.intersection(words))
    if whole:
        return distinct if named else 0
    coded = values.astype(str).str.fullmatch(r"[A-Za-z]*[-_:# ]?\d[\w:-]*")
    return distinct if named or bool(coded.mean() > 0.9) else 0
