"""Tables as CSV that is safe to open in spreadsheets.

A spreadsheet evaluates a cell that starts with ``=``, ``+``, ``-`` or ``@``. Names and reasons
are untrusted text, so a text that starts like this is prefixed with an apostrophe, which marks
text in every spreadsheet; numbers are left alone. Parquet has the names unchanged.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from calibration.text import visible

# Some spreadsheets also split at semicolons, and treat full-width signs like the others.
_FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@＝＋－＠])")


def csv(table: pd.DataFrame) -> bytes:
    """The table with seven digits: more than these numbers are accurate to, and half the size."""
    shown = table.copy()
    for name in table.select_dtypes(exclude=["number", "bool"]):
        shown[name] = table[name].map(_cell)
    shown.columns = table.columns.map(_cell)
    return shown.to_csv(index=False, float_format="%.7g").encode()


def _cell(value: Any) -> Any:
    if not isinstance(value, str) or _is_number(value):
        return value
    return _FORMULA.sub(r"\1'", visible(value, keep=""))


def _is_number(text: str) -> bool:
    """Whether it is one or more numbers: a list such as ``-0.1 0.2`` is not evaluated."""
    try:
        return bool([float(each) for each in text.split()])
    except ValueError:
        return False
