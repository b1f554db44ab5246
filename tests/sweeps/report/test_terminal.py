"""The leaderboard in terminals of every width: no line too long, no name cut."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from sweeps.analysis import Analysis, analyse
from sweeps.analysis.records import SweepRecords
from sweeps.analysis.results import headline_rows, label
from sweeps.host.console import Terminal
from sweeps.host.text_table import TextColumn, TextTable
from sweeps.report.terminal import print_leaderboard
from tests.analysed import SMALL, read, swept

LONG = "early stopping, searched [细胞]"
"""With its calibrator it takes 45 columns: too many beside the numbers of a narrow terminal."""
Swept = tuple[Analysis, SweepRecords]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """A sweep, one row of which has a long name."""
    directory = tmp_path_factory.mktemp("terminal")
    records = read(swept(directory, SMALL.replace("confirm_seeds: 4", "confirm_seeds: 2")))
    analysis = analyse(records)
    renamed = analysis.leaderboard.replace({"row": {"focal": LONG}})
    compared = analysis.comparisons.replace({"row": {"focal": LONG}})
    return replace(analysis, leaderboard=renamed, comparisons=compared), records


def printed(found: Swept, width: int) -> list[str]:
    console = Terminal(width=width, file=io.StringIO())
    print_leaderboard(*found, console)
    return lines(console)


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_lines_fit_and_names_are_whole(found: Swept, width: int) -> None:
    shown = printed(found, width)
    assert max(map(cell_len, shown)) <= width
    rows = headline_rows(found[0].leaderboard, "iris")
    for row, calibrator in zip(rows["row"], rows["calibrator"], strict=True):
        name = label(row, calibrator)
        assert any(re.match(rf"{re.escape(name)}(  | ★|$)", line) for line in shown), name


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_what_decides_is_always_beside_its_test_value(found: Swept, width: int) -> None:
    shown = printed(found, width)
    heads = next(line for line in shown if "val. NLL" in line)
    assert heads.split()[:3] == ["val.", "NLL", "NLL"]
    winner = next(place for place, line in enumerate(shown) if "★" in line)
    beside = shown[winner] + shown[winner + 1]
    row = found[0].leaderboard.query("winner").iloc[0]
    numbers = re.findall(r"\d\.\d{3}", beside)
    assert numbers[:2] == [f"{row['validation/nll']:.3f}", f"{row['nll']:.3f}"]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_floor_is_beside_the_ece(found: Swept, width: int) -> None:
    heads = next(line for line in printed(found, width) if "val. NLL" in line)
    assert heads.split()[3:5] == ["ECE", "floor"]


def test_wider_terminals_show_more_and_the_rest_is_named(found: Swept) -> None:
    shown = {width: "\n".join(printed(found, width)) for width in (60, 80, 120, 200)}
    heads = {width: text.splitlines() for width, text in shown.items()}
    counts = [
        max(len(line.split()) for line in heads[width] if "val. NLL" in line) for width in heads
    ]
    assert counts == sorted(counts)
    assert "Not shown" not in shown[200]
    assert "NLL vs standard" in shown[200]
    assert "Not shown for lack of space: " in shown[60].replace("\n", " ")


def test_columns_go_by_rank_and_narrow_ones_fill_what_is_left() -> None:
    columns = [
        TextColumn("a", ["1" * 6]),
        TextColumn("b", ["2" * 9], rank=2),
        TextColumn("c", ["3" * 9], rank=1),
        TextColumn("d", ["4"], rank=3),
    ]
    table = TextTable(["title", "more of it"], ["name"], columns, [""])
    # The name takes 4, a column 2 more than its text: 12, 23 with c, 34 with b, 37 with d.
    assert table.left_out(37) == []
    assert table.left_out(36) == ["d"]
    assert table.left_out(33) == ["b"]
    assert table.left_out(25) == ["b", "d"]
    assert table.left_out(22) == ["b", "c"]
    assert table.left_out(12) == ["b", "c", "d"]
    console = Terminal(width=11, file=io.StringIO())
    console.print(table, crop=False)
    assert lines(console)[-2:] == ["name", "  111111  4"], "the name has a line of its own"
    assert lines(console)[:2] == ["title", "more of it"]


def test_one_is_singular(tmp_path: Path) -> None:
    records = read(swept(tmp_path, SMALL.replace("confirm_seeds: 4", "confirm_seeds: 1")))
    text = "\n".join(printed((analyse(records), records), 120))
    assert "iris · 1 seed · " in text
    assert "1 seeds" not in text
