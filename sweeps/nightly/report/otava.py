"""The nights' history for Apache Otava: a CSV file of means over seeds, and its configuration.

https://otava.apache.org: ``OTAVA_CONFIG=otava.yaml otava analyze SUITE``
"""

from __future__ import annotations

import io

import pandas as pd
import yaml

from sweeps.nightly.archive.results import CELL
from sweeps.nightly.judge.rules import COST
from sweeps.nightly.judge.wording import cell_name

CSV_FILE, OTAVA_FILE = "history.csv", "otava.yaml"


def otava_files(suite: str, history: pd.DataFrame) -> dict[str, bytes]:
    """Both files, by name: a row per night, a column per cell and metric; lower is better.

    ``history`` is the result of ``comparable``. Otava needs a number in every row: cells that
    are missing or not finite in some night are left out.
    """
    nights = history.groupby("night", sort=True)
    columns: dict[str, pd.Series] = {"commit": nights["git"].first()}
    metrics = [name for name in history.columns if name not in ("night", "git", *CELL, "seed")]
    for found, rows in history.groupby(CELL):
        assert isinstance(found, tuple)
        cell = [str(name) for name in found]
        for metric in metrics:
            if metric == COST and cell[-1] != "identity":
                continue  # the cost of the training, which all calibrators share
            means = rows.groupby("night")[metric].mean().reindex(list(nights.groups))
            if means.notna().all() and means.abs().max() < float("inf"):
                columns[f"{cell_name(cell)}, {metric}"] = means
    table = pd.DataFrame(columns)
    table.index.name = "time"
    buffer = io.StringIO()
    table.to_csv(buffer, lineterminator="\n")
    test = {
        "type": "csv",
        "file": CSV_FILE,
        "time_column": "time",
        "attributes": ["commit"],
        "metrics": {
            name: {"column": name, "direction": -1} for name in columns if name != "commit"
        },
    }
    configuration = yaml.safe_dump({"tests": {suite: test}}, sort_keys=False, allow_unicode=True)
    return {CSV_FILE: buffer.getvalue().encode(), OTAVA_FILE: configuration.encode()}
