"""A sweep in Python: its leaderboard, how a notebook shows it, report, export and diagrams."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

from calibration.metrics import METRICS, Shown
from sweeps.analysis.selection import CHOSEN_BY
from sweeps.errors import UserError
from sweeps.report.notebook import MOST_COLUMNS
from sweeps.sweep import Sweep
from tests.tiny import SPEC
from tests.trained import train_sweep

HOSTILE = "<b onclick='x'>&[red]"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    text = SPEC.replace("  focal:", f'  "{HOSTILE}":').replace(
        "lr: 0.05,", "method: focal, lr: 0.05,"
    )
    return train_sweep(tmp_path_factory.mktemp("python"), text)


def test_the_leaderboard_is_slim_and_the_full_one_is_at_hand(sweep: Sweep) -> None:
    slim = sweep.leaderboard
    assert len(slim.columns) <= MOST_COLUMNS == 12
    wanted = {"dataset", "row", "calibrator", "winner", CHOSEN_BY, "seeds", "train_seconds"}
    assert wanted | set(METRICS.names(Shown.HEADLINE)) <= set(slim.columns)
    assert slim.full is sweep.analysis.leaderboard
    assert set(slim.full.columns) > set(slim.columns)
    assert slim.equals(slim.full[list(slim.columns)])
    assert slim[slim["winner"]]["row"].count() == 1
    assert (slim.groupby("row")["seeds"].max() == 2).all()


def test_a_notebook_shows_a_table_in_which_names_are_text(sweep: Sweep) -> None:
    html = sweep._repr_html_()
    assert sweep.recommendation is sweep.analysis.recommendation
    assert str(escape(sweep.recommendation.sentence)) in html
    assert "<b onclick" not in html
    assert "&lt;b onclick=&#39;x&#39;&gt;&amp;[red] + temperature" in html
    assert html.count("★") == 1
    winner = sweep.leaderboard.query("winner").iloc[0]
    assert f"<td>{winner[CHOSEN_BY]:.3f} ±" in html
    assert repr(sweep) == f"<Sweep 'tiny' in {sweep.store.root}: 10 of 10 trials done>"


def test_an_unfinished_sweep_is_shown_too_and_has_nothing_to_report(tmp_path: Path) -> None:
    begun = train_sweep(tmp_path, SPEC, limit=1)
    assert "1 of 10 trials done; none confirmed yet" in begun._repr_html_()
    assert begun.leaderboard.empty
    for ask in (begun.report, begun.plot_reliability):
        with pytest.raises(UserError, match="no trial has been confirmed yet"):
            ask()


def test_reliability_is_drawn_of_the_winner_and_of_the_plain_network(sweep: Sweep) -> None:
    figure = sweep.plot_reliability()
    titles = [axes.get_title(loc) for axes in figure.axes for loc in ("left", "center")]
    drawn = " ".join(titles)
    row, calibrator = sweep.analysis.selection.winners["blobs-1.7"]
    assert "standard" in drawn
    assert (calibrator in drawn) or (row, calibrator) == ("standard", "identity")
    assert all(np.isfinite(axes.get_xlim()).all() for axes in figure.axes)
    with pytest.raises(UserError, match="dataset: found 'iris'; name one of blobs"):
        sweep.plot_reliability("iris")


@pytest.mark.slow
def test_report_and_export_are_written(sweep: Sweep, tmp_path: Path) -> None:
    page = Path(sweep.report())
    assert page.name == "report.html"
    assert "validation NLL" in page.read_text()
    model = sweep.export(tmp_path / "model", row="standard + temperature")
    assert (model / "MLmodel").is_file()
    assert "standard + temperature" in (model / "README.md").read_text()
    with pytest.raises(UserError, match="already exists"):
        sweep.export(model)
