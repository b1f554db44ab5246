"""How a sweep stands, and one trial in full."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.cli.main import main
from sweeps.cli.status_view import trials
from sweeps.cli.trial_view import sparkline
from sweeps.engine.progress import Progress
from sweeps.host.console import Terminal
from sweeps.store import Store
from sweeps.sweep import Sweep, open_sweep
from tests.outcomes import outcome
from tests.trained import train_sweep

SPEC = """\
name: stands
datasets: [blobs-1.7]
model: {name: mlp, widths: [4]}
methods: {standard: {weight_decay: 0}, focal: {lr: 0.05, weight_decay: 0, gamma: 2}}
training: {epochs: 4, batch_size: full}
search: {trials: 2}
confirm_seeds: 2
calibrators: [temperature, isotonic_top_label]
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("status")


@pytest.fixture(scope="module")
def whole(directory: Path) -> Sweep:
    return train_sweep(directory, SPEC)


@pytest.fixture
def said(
    whole: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> object:
    """Runs a command in the sweep's directory; exit code, output and complaints."""
    monkeypatch.chdir(Path(whole.store.root).parent)

    def say(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return say


@pytest.mark.parametrize("width", [60, 80, 120])
def test_progress_takes_one_line_for_every_row(whole: Sweep, width: int) -> None:
    console = Terminal(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with Progress(whole.plan, console):
        pass
    lines = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", console.file.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    table = lines[
        : next(place for place, line in enumerate(lines) if line.startswith("6/6 trials"))
    ]
    assert [line.split()[:2] for line in table] == [
        ["dataset", "row"],
        ["blobs-1.7", "standard"],
        ["blobs-1.7", "focal"],
    ]


def test_a_finished_sweep_says_so(said) -> None:
    code, printed, _ = said("status", "stands")
    assert code == 0
    assert "stands: finished" in printed
    assert "6 of 6 trials done" in printed
    assert re.search(r"blobs-1.7 +standard +2/2 +2/2", printed)
    assert re.search(r"blobs-1.7 +focal +0/0 +2/2", printed)
    assert "stands: finished; 6 of 6" in said("status")[1]


@pytest.mark.slow
def test_an_interrupted_sweep_says_what_is_left(directory: Path) -> None:
    part = train_sweep(directory, SPEC, store="part", limit=3)
    states = [trial.state for trial in trials(part)]
    assert states.count("done") == 3
    assert set(states) <= {"done", "waiting"}
    command = [sys.executable, "-m", "sweeps.cli", "status", "stands", "--store", "part"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert "interrupted, 3 trials left" in done.stdout


def test_a_sweep_that_only_lacks_evaluations_says_so(tmp_path: Path, capsys) -> None:
    """As after a calibrator has been installed that ``calibrators: fast`` takes in."""
    train_sweep(tmp_path, SPEC)
    next(tmp_path.glob("runs/records/*/*/evaluations/*/temperature.json")).unlink()
    assert main(["status", "stands", "--store", str(tmp_path / "runs")]) == 0
    assert "trained, 1 trial not evaluated with every calibrator" in capsys.readouterr().out


@pytest.mark.slow
def test_a_running_sweep_names_its_driver_and_its_epochs(directory: Path) -> None:
    part = train_sweep(directory, SPEC, store="live", limit=1)
    key = next(t.planned.key for t in trials(part) if t.state == "waiting")
    curve = [{"epoch": 1.0, "validation/nll": 0.9}, {"epoch": 2.0, "validation/nll": 0.8}]
    part.store.write_live(key, {"curve": curve, "times": [10.0, 12.0], "lineage": "a"})
    with part.store.lock("stands"):
        found = open_sweep("stands", part.store)
        (running,) = (trial for trial in trials(found) if trial.state == "running")
        assert (running.epoch, running.nll, running.seconds) == (2, 0.8, 2.0)
        command = [sys.executable, "-m", "sweeps.cli", "status", "stands", "--store", "live"]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert re.search(r"stands: running: process \d+ on \S+ since 20\d\d-", done.stdout)
    assert "epoch 2" in done.stdout
    assert part.store.lock("stands").holder() is None, "and nobody once it is left"


def test_a_trial_is_shown_by_the_first_digits_of_its_key(said, whole: Sweep) -> None:
    listed = said("status", "stands", "--trials")[1]
    trial = whole.plan.confirmed("blobs-1.7", "focal")[0]
    assert f"{trial.key[:12]}  blobs-1.7  focal" in listed
    code, printed, _ = said("show", trial.key[:8])
    record = whole.store.record(trial.key)
    assert record is not None
    assert code == 0
    assert f"trial      {trial.key}\n" in printed
    assert "focal on blobs-1.7, confirm phase, seed 1" in printed
    assert "gamma=2" in printed
    assert "trained    4 epochs" in printed
    calibrators = whole.store.evaluations(record, whole.spec.evaluation.tag)
    for name, evaluation in calibrators.items():
        assert re.search(rf"{re.escape(name)} +{evaluation.test['ece']:.4f} \[", printed), name


def test_a_failed_trial_is_shown_with_its_reason(tmp_path: Path, capsys) -> None:
    sweep = train_sweep(tmp_path, SPEC, limit=0)
    trial = next(iter(sweep.plan.trials.values()))
    config = trial.config.model_dump(mode="json")
    failure = {"reason": "LookupError: gone", "traceback": "where it was"}
    sweep.store.file_record(trial.key, outcome("failed", config=config, **failure))
    assert main(["show", trial.key, "--store", sweep.store.root]) == 0
    printed = capsys.readouterr().out
    assert "status     failed: LookupError: gone" in printed
    assert "where it was" in printed
    assert main(["status", "stands", "--store", sweep.store.root]) == 0
    assert "1 failed: LookupError: gone" in capsys.readouterr().out


def test_what_is_no_trial_is_one_message(said, whole: Sweep) -> None:
    for wrong, message in {
        "blobs": "a trial is named by its key",
        "ab": "at least 4 of its first digits",
        "0" * 32: "no trial ",
    }.items():
        code, _, complaint = said("show", wrong)
        assert code == 2
        assert message in complaint
        assert "Traceback" not in complaint
    code, _, complaint = said("status", "stand")
    assert code == 2
    assert "there is no sweep 'stand'; there are: stands" in complaint


def test_a_sweep_that_cannot_be_read_hides_no_other(tmp_path: Path, capsys) -> None:
    sweep = train_sweep(tmp_path, SPEC, limit=1)
    sweep.store.write_file("broken", "spec.yaml", b"\xff\xfe")
    assert main(["status", "--store", sweep.store.root]) == 0
    printed = capsys.readouterr().out
    assert "not UTF-8 text" in printed
    assert "stands: interrupted" in printed
    file = tmp_path / "spec.yaml"
    assert main(["status", "--store", str(file)]) == 1
    assert f"{file}: not a directory" in capsys.readouterr().err


def test_a_sweep_moves_with_its_directory(tmp_path: Path, capsys) -> None:
    (tmp_path / "here").mkdir()
    rows = "\n".join(f"{i % 7},{'ab'[i % 2]}" for i in range(100))
    (tmp_path / "here" / "rows.csv").write_text(f"x,label\n{rows}\n")
    text = SPEC.replace("[blobs-1.7]", "[{name: table, path: rows.csv, target: label}]")
    train_sweep(tmp_path / "here", text, limit=3)
    (tmp_path / "here").rename(tmp_path / "there")
    store = tmp_path / "there" / "runs"
    assert main(["status", str(store / "stands")]) == 0
    assert "3 of 6 trials done" in capsys.readouterr().out


def test_a_trial_that_was_stopped_early_is_found(tmp_path: Path, capsys) -> None:
    store = Store(tmp_path)
    key = "abcdef0123456789"
    config = json.loads((_a_record(tmp_path)).read_text())["config"]
    stopped = outcome("pruned", config=config, reason="stopped by asha after epoch 3")
    store.file_stopped("s", "data/row/0123", key, stopped)
    assert main(["show", "abcdef", "--store", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "sweep s: stopped by asha after epoch 3" in printed
    assert "status     pruned" in printed


def _a_record(directory: Path) -> Path:
    train_sweep(directory, SPEC, limit=1)
    return next(directory.glob("runs/records/*/record.json"))


def test_a_sparkline_goes_from_least_to_most() -> None:
    assert sparkline([0.0, 7.0, 3.0]) == "▁█▄"
    assert sparkline([1.0, 1.0]) == "▁▁"
    assert len(sparkline([float(i) for i in range(1000)])) <= 48
