"""``calsweep compare``."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calibration.text import count
from sweeps.cli.arguments import Subparsers, add_store, add_sweep
from sweeps.host.console import print_whole, say

if TYPE_CHECKING:
    import pandas as pd


def add(commands: Subparsers) -> None:
    """Add the command."""
    compare = commands.add_parser(
        "compare", help="compare two sweeps: what changed, significantly or not"
    )
    add_sweep(compare, "sweep_a")
    add_sweep(compare, "sweep_b")
    compare.add_argument("--csv", action="store_true", help="print the comparison as CSV")
    add_store(compare)
    compare.add_argument("--store-b", metavar="STORE", help="where SWEEP_B is (default: --store)")
    compare.set_defaults(command=_compare)


def _compare(options: argparse.Namespace, console: Console) -> int:
    from sweeps.analysis.two_sweeps import compare_sweeps, only_in_one, other_circumstances
    from sweeps.report.csv_table import csv
    from sweeps.sweep import open_sweep

    a = open_sweep(options.sweep_a, options.store)
    b = open_sweep(options.sweep_b, options.store_b or options.store)
    table = compare_sweeps(a.analysis, b.analysis)
    if options.csv:
        print(csv(table).decode(), end="")
        return 0
    for dataset, lines in table.groupby("dataset", sort=False):
        print_whole(console, _table(f"{dataset}: {a.name} → {b.name}", lines))
    if table.empty:
        say(console, "the two sweeps have no confirmed method on a common dataset")
    say(console, *only_in_one(a.analysis, b.analysis))
    changed = other_circumstances(a.analysis, b.analysis)
    say(console, *(["other differences:", *changed] if changed else []))
    if not table.empty:
        say(
            console,
            "Every row with its own calibrator, chosen on validation data. Difference with its "
            "95 % interval, for new test rows and new seeds; p one-sided against the edge of the "
            "region of practical equivalence, by the t-test named, Holm-corrected over the claims "
            "about a dataset; significant below 0.05.",
        )
    return 0


def _table(title: str, lines: pd.DataFrame) -> Table:
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=None)
    headings = ("metric", "row", "before", "after", "difference", "", "p", "test", "verdict")
    for heading in headings:
        right = heading in ("before", "after", "difference", "p")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for _, line in lines.iterrows():
        calibrators = line["calibrator_a"]
        if line["calibrator_a"] != line["calibrator_b"]:
            calibrators = f"{line['calibrator_a']} → {line['calibrator_b']}"
        table.add_row(
            line["metric"],
            Text(line["row"] if calibrators == "identity" else f"{line['row']} + {calibrators}"),
            _number(line["mean_a"]),
            _number(line["mean_b"]),
            _number(line["difference"], sign=True),
            f"[{_number(line['low'], sign=True)}, {_number(line['high'], sign=True)}]",
            _number(line["p_holm"]),
            f"{line['test']}, {line['seeds_a']} and {count(line['seeds_b'], 'seed')}",
            Text(
                line["verdict"], style={"better": "green", "worse": "red"}.get(line["verdict"], "")
            ),
        )
    return table


def _number(value: float, *, sign: bool = False) -> str:
    return "–" if math.isnan(value) else f"{value:{'+' if sign else ''}.4f}"
