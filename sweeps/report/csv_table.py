"""Tables as CSV for people, who open them in spreadsheets.

A spreadsheet computes a cell that begins with ``=``, ``+``, ``-`` or ``@``. Names and reasons
are text that others wrote, so a text that begins so gets an apostrophe before it, the sign of a
text in every spreadsheet; numbers are left alone. Parquet has the names as they are.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from calibration.text import visible

# Some spreadsheets split at a semicolon as well, and take signs of full width for the others.
_FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@＝＋－＠])")


def csv(table: pd.DataFrame) -> bytes:
    """Seven digits: more than any of these numbers is known to, and half the size."""
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
    """Whether it is a number or several: a list such as ``-0.1 0.2`` computes nothing."""
    try:
        return bool([float(each) for each in text.split()])
    except ValueError:
        return False
