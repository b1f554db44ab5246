"""What is not exported: one message, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.cli.main import main
from sweeps.store import Store
from tests.exported import Swept, described
from tests.trained import finish

pytestmark = pytest.mark.slow


def test_the_wanted_accuracy_is_promised_or_refused(
    swept: Swept, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    assert swept.export("table", out, "--accuracy", "0.999") == 2
    said = capsys.readouterr().err
    assert "0.999 cannot be guaranteed with 95 % confidence from 75 validation rows" in said
    highest = said.split()[-1]
    assert list(tmp_path.iterdir()) == []
    assert swept.export("table", out, "--accuracy", highest) == 0
    assert described(out)["threshold"] > 0
    assert described(out)["about"]["threshold_for"] == {"accuracy": float(highest)}
    assert (
        f"at least {100 * float(highest):.1f} % of the accepted rows are right"
        in (out / "README.md").read_text()
    )


@pytest.mark.parametrize(
    ("sweep", "options", "words"),
    [
        ("several", [], ["--dataset", "blobs-1.7, digits"]),
        ("several", ["--dataset", "digit"], ["no 'digit'", "blobs-1.7, digits"]),
        ("table", ["--row", "joint + temperatur"], ["did you mean 'joint + temperature'"]),
        ("table", ["--seed", "7"], ["--seed: found 7", "1, 2"]),
        ("table", ["--register", "a/b"], ["--register", "'a/b'"]),
        ("table", ["--register", "a", "--alias", "v2"], ["--alias", "'v2'"]),
        ("table", ["--tracking", "nowhere"], ["--tracking", "nowhere"]),
        ("table", ["--prior", "0.5"], ["--prior: found '0.5'", "CLASS=SHARE"]),
        ("table", ["--prior", "tall=0.5"], ["no class 'tall'", "mid, old, young"]),
        ("table", ["--prior", "old=0.5", "--coverage", "0.9"], ["--prior", "leave one of them"]),
        (
            "table",
            ["--prior", "old=1", "--row", "joint + isotonic_top_label"],
            ["--prior", "--row"],
        ),
        ("nothing", [], ["no sweep 'nothing'", "several, table"]),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(
    swept: Swept,
    sweep: str,
    options: list[str],
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert swept.export(sweep, tmp_path / "model", *options) == 2
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_overwritten(
    swept: Swept, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert swept.export("table", tmp_path) == 2
    assert swept.export("table", tmp_path / "mine.txt") == 2
    assert capsys.readouterr().err.count("already exists") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_failed_export_leaves_nothing(
    swept: Swept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise OSError("the disk is full")

    monkeypatch.setattr("sweeps.export.writing.card", fail)
    assert swept.export("table", tmp_path / "model") == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("trials", "words"), [(1, "is not finished (1 of 2 trials)"), (0, "(0")])
def test_an_unfinished_sweep_has_no_winner(
    trials: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "half.yaml"
    spec.write_text(
        "name: half\ndatasets: [iris]\nmodel: {name: mlp, widths: [4]}\ntraining: {epochs: 1}\n"
        "methods: {standard: {lr: 0.1, weight_decay: 0}}\nconfirm_seeds: 2\ncalibrators: []\n"
    )
    store = tmp_path / "runs"
    finish(spec, Store(store), trials)
    out = tmp_path / "model"
    assert main(["export", "half", "--out", str(out), "--store", str(store)]) == 2
    assert words in capsys.readouterr().err
    assert not out.exists()


def test_a_sweep_in_which_all_failed_has_no_winner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "bad.yaml"
    spec.write_text(
        "name: bad\ndatasets: [iris]\nmodel: {name: mlp, widths: [4]}\ntraining: {epochs: 1}\n"
        "methods: {m: {method: 'tests.sweeps.report.test_tables:Broken', lr: 0.1,"
        " weight_decay: 0}}\n"
        "confirm_seeds: 1\ncalibrators: []\n"
    )
    finish(spec, Store(tmp_path / "runs"))
    out = tmp_path / "model"
    assert main(["export", "bad", "--out", str(out), "--store", str(tmp_path / "runs")]) == 2
    assert "no confirmed network on iris: all failed" in capsys.readouterr().err
    assert not out.exists()
