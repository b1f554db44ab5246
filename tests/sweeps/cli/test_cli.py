"""The listings and the plan."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from calibration.calibrators import CALIBRATORS
from calibration.data import DATASETS
from calibration.learners import LEARNERS
from calibration.methods import METHODS
from calibration.metrics import METRICS
from calibration.models import MODELS
from sweeps.cli.main import main
from sweeps.errors import UserError
from sweeps.ray_backend.connection import _reach
from sweeps.search import SAMPLERS


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("methods", [*METHODS, *LEARNERS, "gamma = 2"]),
        ("datasets", [*DATASETS]),
        ("models", [*MODELS, "widths"]),
        ("calibrators", [*CALIBRATORS]),
        ("metrics", [*METRICS]),
        ("samplers", [*SAMPLERS]),
    ],
)
def test_listings_name_everything(
    command: str, names: list[str], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([command]) == 0
    printed = capsys.readouterr().out
    assert [name for name in names if name not in printed] == []


def test_check_prints_the_plan_and_writes_nothing(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["check", "quickstart"]) == 0
    printed = capsys.readouterr().out
    assert "quickstart: 55 trials" in printed  # 5 rows × (6 + 5)
    assert "epsilon [0, 0.3]" in printed
    assert "tau [0.01, 1] log" in printed
    assert list(tmp_path.iterdir()) == []


def test_check_fits_a_narrow_terminal_and_cuts_no_name(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["check", "quickstart"]) == 0
    plan, _, rest = capsys.readouterr().out.partition("\nabout ")
    *_, settings = rest.split("\n\n")
    assert max(map(len, [*plan.splitlines(), *settings.splitlines()])) <= 80
    names = [line.split()[0] for line in settings.splitlines() if not line.startswith(" ")]
    assert {"name", "training.reliability_snapshots", "protocol.same_training_rows"} <= set(names)


@pytest.mark.slow
def test_a_trial_that_fits_no_machine_is_one_message(tmp_path) -> None:
    text = "name: big\ndatasets: [iris]\nmethods: [standard]\nresources: {cpu: 4000}\n"
    (tmp_path / "big.yaml").write_text(text)
    command = [sys.executable, "-m", "sweeps.cli", "run", "big.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "a trial needs 4000 CPU" in done.stderr
    assert "Traceback" not in done.stderr


def test_ui_without_a_sweep_says_so(tmp_path, capsys: pytest.CaptureFixture) -> None:
    assert main(["ui", "--store", str(tmp_path)]) == 2
    assert "run a sweep first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "quickstart", "--tracking", "htp://bob:s3cret@host"], ["--tracking", "http://"]),
        (["sync", "quickstart", "--tracking", "mlflow.db"], ["--tracking", "mlflow.db"]),
        (["sync", "quickstart"], ["no sweep 'quickstart'", "run it first"]),
        (
            ["run", "quickstart", "--store", "ftp://bob:s3cret@host/runs"],
            ["--store: found 'ftp://***@host/runs'", "FSSPEC_FTP_PASSWORD in the environment"],
        ),
        (["status", "mine", "--store", "sftp://bob:s3/cret@host:22/runs"], ["--store", "found"]),
        (["compare", "a", "b", "--store-b", "ftp://bob:s3cret@host/a"], ["--store-b: found"]),
    ],
)
def test_a_wrong_place_is_said_at_once_and_nothing_is_created(
    arguments: list[str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == []
    assert "cret" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("schema", "Print the JSON Schema of specs, for editors."),
        ("nightly", "Run a suite, compare it with the baseline, judge and report it. Exit code 0:"),
        ("baseline accept", "Make a complete night the baseline."),
        ("submit", "Run, resume or repeat a sweep as a job of a Ray or Slurm cluster."),
    ],
)
def test_the_help_of_a_command_says_what_it_does(
    command: str, words: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    assert words in capsys.readouterr().out


def test_a_store_may_hold_directories_that_no_sweep_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("old [2025]", "what?", "\x1b[31m", "my sweep"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert main(["status", "mine"]) == 2
    assert "there is no sweep 'mine'; nor any other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("local", "leave --address out"),
        ("é..é:6379", "nothing answers there"),
        (f"{'a' * 300}:6379", "nothing answers there"),
    ],
)
def test_an_address_that_is_no_cluster_s_is_refused(address: str, words: str) -> None:
    with pytest.raises(UserError, match=rf"^--address {address}: .*{words}"):
        _reach(address)


def test_nor_is_one_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(UserError, match=r"^--address auto: found 'local'"):
        _reach("auto")
