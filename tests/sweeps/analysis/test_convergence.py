"""A calibrator that did not converge is marked in every table that shows it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from calibration.data.predictions import StoredPredictions
from sweeps.cli.main import main
from sweeps.posthoc.evaluation import evaluate_stored
from sweeps.posthoc.terminal import print_evaluation
from sweeps.report import exports
from sweeps.report.terminal import print_leaderboard
from sweeps.report.write import write_report
from sweeps.sweep import Sweep
from tests.trained import train_sweep

CALIBRATORS = """
from calibration.calibrators.temperature import Temperature


class Restless(Temperature):
    def _fit(self, logits, labels):
        super()._fit(logits, labels)
        self.converged = False
"""
SPEC = """\
name: unsettled
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods: {standard: {lr: 0.05, weight_decay: 0}}
training: {epochs: 12, batch_size: full, evaluate_every: 3}
confirm_seeds: 2
calibrators: ["restless:Restless"]
table:
  title: Somebody 2020
  rows: {Plain: standard, Scaled: "standard + restless:Restless"}
  metrics: [ece]
"""
NOTE = "† a fit of the calibrator did not converge"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    directory = tmp_path_factory.mktemp("unsettled")
    (directory / "restless.py").write_text(CALIBRATORS)
    sys.path.insert(0, str(directory))
    yield train_sweep(directory, SPEC)
    sys.path.remove(str(directory))
    sys.modules.pop("restless", None)


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_the_leaderboard_says_on_how_many_seeds_it_converged(swept: Sweep) -> None:
    shares = swept.leaderboard.full.set_index(["row", "calibrator"])["converged"]
    assert shares["standard", "identity"] == 1
    assert shares["standard", "restless:Restless"] == 0


def test_a_report_marks_it_everywhere(swept: Sweep) -> None:
    written: dict[str, bytes] = {}
    write_report(swept.records, swept.store, write=written.__setitem__)
    page, paper = written["report.html"].decode(), written["table.md"].decode()
    assert "calibrator did not converge on 2 of 2 seeds" in page
    for text in (page, paper):
        assert "Scaled †" in text
        assert "Plain †" not in text
        assert NOTE in text
    assert "converged" in written["leaderboard.csv"].decode().splitlines()[0].split(",")


def test_tables_for_people_have_a_mark_and_a_note(
    swept: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    print_leaderboard(swept.analysis, swept.records, Console(width=200))
    for text in (printed(capsys), exports.markdown(swept.analysis)):
        assert re.search(r"standard \\?\+ restless:Restless †", text)
        assert "standard †" not in text
        assert NOTE in text
    assert r"Restless $\dagger$" in exports.latex(swept.analysis)


def test_show_marks_it(swept: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    key = swept.plan.confirmed("blobs-1.7", "standard")[0].key
    assert main(["show", key, "--store", str(swept.store.root)]) == 0
    shown = printed(capsys)
    assert "restless:Restless †" in shown
    assert "identity †" not in shown
    assert NOTE in shown


def test_posthoc_marks_it(swept: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    draws = np.random.default_rng(0)
    logits, labels = draws.normal(size=(200, 3)), draws.integers(0, 3, 200)
    stored = StoredPredictions("mine", logits, labels, ("a", "b", "c"), "logits", ())
    found = evaluate_stored(stored, None, ["restless:Restless", "histogram_mass"], workers=1)
    print_evaluation(found, Console(width=200))
    shown = printed(capsys)
    assert "restless:Restless †" in shown
    assert "histogram_mass †" not in shown
    assert NOTE in shown


def test_a_model_card_says_it(
    swept: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = "standard + restless:Restless"
    store = str(swept.store.root)
    command = ["export", "unsettled", "--store", store, "--row", row, "--out", str(tmp_path / "m")]
    assert main(command) == 0, capsys.readouterr().err
    card = next((tmp_path / "m").glob("*.md")).read_text()
    assert "**its fit did not converge**" in card
