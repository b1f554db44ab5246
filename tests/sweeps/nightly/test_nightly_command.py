"""The real command on a real Ray: killed, resumed, judged; and the baseline's own command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import NoReturn

import pandas as pd
import psutil
import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from sweeps.cli.main import main
from sweeps.nightly.run import night as night_module
from sweeps.nightly.run.night import Night
from sweeps.nightly.run.unattended import one_at_a_time
from tests.faults.kit import kill
from tests.ports import free_port
from tests.sweeps.nightly.kit import SEARCHED, Scene, reference_takes
from tests.sweeps.nightly.report.test_webhook import SECRET, server
from tests.waiting import output_of, wait_for

FIRST, SECOND = "2026-01-05", "2026-01-06"
# Long enough to be killed in, whoever trains it.
LONGER = SEARCHED.replace("epochs: 20", "epochs: 800")


def start(scene: Scene, *options: str, webhook: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sweeps.cli", "nightly", "small.yaml", *options],
        cwd=scene.directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | ({"CALSWEEP_WEBHOOK": webhook} if webhook else {}),
    )


def attempts(scene: Scene) -> dict[str, str]:
    """Which attempt each record of the second night is of."""
    records = (scene.nights.place(SECOND) / "runs" / "records").glob("*/record.json")
    return {path.parent.name: json.loads(path.read_text())["attempt"] for path in records}


@pytest.mark.slow
def test_a_killed_night_resumes_and_is_identical_to_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    scene.write_suite(searched=LONGER)
    with monkeypatch.context() as quick:
        reference_takes(quick, 1.0)
        assert scene.run(FIRST).first
    port = free_port()
    process = start(scene, "--night", SECOND, "--status-port", str(port))
    try:
        before = wait_for(lambda: attempts(scene), process)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json") as answer:
            shown = json.load(answer)
    finally:
        if psutil.pid_exists(process.pid) and process.poll() is None:
            kill(process)
    state = scene.nights.state(SECOND)
    assert state is not None
    assert state.status == "running", "nobody has told it that it was killed"
    assert 1 <= len(before) < 5
    assert (shown["sweep"], shown["state"]) == (f"searched-{SECOND}", "running")
    assert (shown["pid"], shown["trials"]["total"]) == (process.pid, 5)

    with server(500) as (url, received):
        resumed = start(scene, "--night", SECOND, webhook=url)
        out, err = output_of(resumed)
    assert resumed.returncode == 0, err
    assert "resuming the night of" in out
    assert "Bit-identical to the baseline of 2026-01-05: 6 results of 2 cells." in out
    after = attempts(scene)
    assert len(after) == 5
    assert before.items() <= after.items(), "what was done is not done again"
    assert scene.verdict(SECOND)["verdict"] == "identical"
    results = pd.read_parquet(scene.nights.place(SECOND) / "results.parquet")
    assert (results[["work_seconds", "reference"]] > 0).all(axis=None), "by Ray's workers"

    # The webhook was told and refused: one line, the exit code is the verdict's.
    assert len(received) == 3
    message = received[0]["message"]
    assert message["suite"] == "small"
    assert (message["night"], message["verdict"]) == (SECOND, "identical")
    assert Path(message["report"]).is_file()
    assert "the webhook at http://127.0.0.1/*** failed: it answered 500" in out
    assert_nowhere(SECRET, out, err, tmp_path)
    (log, killed) = sorted((scene.nights.directory / "log").iterdir(), reverse=True)
    assert "Bit-identical to the baseline" in log.read_text()
    assert f"searched-{SECOND}" in killed.read_text()
    assert_runs(scene)


def assert_runs(scene: Scene) -> None:
    """Night, sweep and trials hang together in MLflow, each once."""
    client = MlflowClient(f"sqlite:///{scene.nights.directory / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("small")
    runs: list[Run] = list(client.search_runs([experiment.experiment_id], max_results=100))
    (night,) = (run for run in runs if run.info.run_name == f"small {SECOND}")
    (sweep,) = (run for run in runs if run.info.run_name == f"searched-{SECOND}")
    assert sweep.data.tags["mlflow.parentRunId"] == night.info.run_id
    trials = [r for r in runs if r.data.tags.get("mlflow.parentRunId") == sweep.info.run_id]
    assert len(trials) == 5
    assert {run.info.status for run in (night, sweep, *trials)} == {"FINISHED"}
    assert not any("sharedViewState" in name for name in experiment.tags)


def assert_nowhere(secret: str, out: str, err: str, directory: Path) -> None:
    assert secret not in out + err
    for path in directory.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


def test_baselines_are_accepted_shown_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(tmp_path)
    scene.write_suite(searched=SEARCHED)
    nights = ["--nights", str(tmp_path / "nights")]
    suite = str(tmp_path / "small.yaml")
    assert main(["baseline", "show", suite, *nights]) == 0
    assert "no baseline yet" in capfd.readouterr().out
    assert main(["baseline", "accept", suite, *nights]) == 2
    assert "run calsweep nightly first" in capfd.readouterr().err
    reference_takes(monkeypatch, 1.0)
    for night in (FIRST, SECOND):
        scene.run(night)
    assert main(["baseline", "accept", "small", "--reason", "a better seed", *nights]) == 0
    assert "nights are now compared with that of 2026-01-06" in capfd.readouterr().out
    assert main(["baseline", "show", "small", *nights]) == 0
    shown = capfd.readouterr().out
    assert "small: the night of 2026-01-06, 6 results of 2 cells" in shown
    assert ": a better seed\n" in shown
    assert "before    2026-01-05, accepted" in shown
    assert "by calsweep: the first complete night" in shown
    assert main(["baseline", "accept", "small", "--night", FIRST, *nights]) == 0
    about = json.loads((scene.nights.directory / "baseline.json").read_bytes())
    assert [each["night"] for each in about["earlier"]] == [SECOND, FIRST]
    capfd.readouterr()
    assert main(["baseline", "accept", "small", "--night", "2026-01-09", *nights]) == 2
    assert "no night 2026-01-09; the latest are: 2026-01-05" in capfd.readouterr().err
    (scene.nights.directory / "baseline.parquet").write_bytes(b"x")
    assert main(["nightly", suite, "--night", "2026-01-07", *nights]) == 2, "before any work"
    assert "is damaged" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--night", "tomorrow"], "--night: found 'tomorrow'; write a date such as"),
        (["--night", "2999-01-01"], "--night: found 2999-01-01, which is in the future"),
        (["--webhook", f"gopher://x/{SECRET}"], "--webhook: not a valid address"),
        (["--tracking", "somewhere"], "--tracking: found 'somewhere'"),
        (["--at", "03:00"], "--at goes with --print"),
        (["--nights-url", "ci.example.org/nights"], "--nights-url: not a valid address"),
        (["--print", "cron", "--webhook", f"http://x/{SECRET}"], "--webhook with --print"),
    ],
)
def test_bad_options_are_one_message_and_leave_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    scene = Scene(tmp_path)
    scene.write_suite(searched=SEARCHED)
    nights = ["--nights", str(tmp_path / "nights")]
    assert main(["nightly", str(tmp_path / "small.yaml"), *nights, *options]) == 2
    said = capfd.readouterr()
    assert complaint in said.err
    assert SECRET not in said.err + said.out
    assert not (tmp_path / "nights").exists()


def dying(
    monkeypatch: pytest.MonkeyPatch, directory: Path, error: BaseException | None
) -> list[str]:
    """Arguments of a night that dies of an error, or is told by the system to end."""
    scene = Scene(directory)
    scene.write_suite(searched=SEARCHED)

    def die(night: Night) -> NoReturn:
        if error is not None:
            raise error
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal came to nothing")

    monkeypatch.setattr(night_module, "run_night", die)
    return ["nightly", str(directory / "small.yaml"), "--nights", str(directory / "nights")]


def test_a_broken_pipe_somewhere_is_no_good_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = dying(monkeypatch, tmp_path, BrokenPipeError(32, "Broken pipe"))
    assert main(arguments) == 1
    assert "ended without a verdict: [Errno 32] Broken pipe" in capfd.readouterr().err


def test_a_terminated_night_says_so_and_keeps_the_webhook_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with server(200) as (url, received):
            assert main([*dying(monkeypatch, tmp_path, None), "--webhook", url]) == 143
        said = capfd.readouterr()
        assert "calsweep: stopped; nothing is lost" in said.err
        assert SECRET not in said.err + said.out
        assert len(received) == 1
        assert main(dying(monkeypatch, tmp_path, KeyboardInterrupt())) == 130, "by nobody's order"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_webhook_hears_of_a_night_that_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = dying(monkeypatch, tmp_path, RuntimeError("no more\nmemory"))
    with server(200) as (url, received):
        assert main([*arguments, "--night", FIRST, "--webhook", url]) == 70
    (one,) = received
    assert one["message"] == {
        "suite": "small",
        "night": FIRST,
        "verdict": "incomplete",
        "ongoing": False,
        "sentences": ["The night ended without a verdict: no more memory"],
    }


def test_a_tracking_server_that_refuses_us_ends_it_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = dying(monkeypatch, tmp_path, AssertionError("it has begun"))
    with server(401) as (url, _):
        assert main([*arguments, "--tracking", url.partition("/hooks")[0]]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "requires authentication" in line
    assert not (tmp_path / "nights").exists()


def test_the_webhook_hears_of_a_night_that_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password that has changed, a spec that broke, a night that still runs."""
    arguments = [*dying(monkeypatch, tmp_path, AssertionError("it has begun")), "--night", FIRST]
    with server(200) as (url, received):
        told = ["--webhook", url]
        with server(401) as (tracking, _):
            assert main([*arguments, *told, "--tracking", tracking.partition("/hooks")[0]]) == 2
        with one_at_a_time(tmp_path / "nights" / "small"):
            assert main([*arguments, *told]) == 2
        (tmp_path / "sweeps" / "searched.yaml").write_text("name: [")
        assert main([*arguments, *told]) == 2
    messages = [each["message"] for each in received]
    assert {(each["suite"], each["night"]) for each in messages} == {("small", FIRST)}
    (refused,), (busy,), (broken,) = (each["sentences"] for each in messages)
    assert "requires authentication" in refused
    assert "a night is being run by process" in busy
    assert "searched.yaml" in broken


def test_a_suite_is_named_by_its_directory_whatever_its_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nights" / "v1.2").mkdir(parents=True)
    nights = ["--nights", str(tmp_path / "nights")]
    assert main(["baseline", "show", "v1.2", *nights]) == 0
    assert "no baseline yet" in capfd.readouterr().out
    state = {"suite": "v1.2", "given": "my/v1.2.yaml", "night": FIRST, "status": "failed"}
    (tmp_path / "nights" / "v1.2" / FIRST).mkdir()
    (tmp_path / "nights" / "v1.2" / FIRST / "night.json").write_text(json.dumps(state))
    assert main(["baseline", "accept", "v1.2", "--night", FIRST, *nights]) == 2
    finish = f"calsweep nightly my/v1.2.yaml --night {FIRST} --nights {tmp_path / 'nights'}"
    assert capfd.readouterr().err.endswith(f"finish it first: {finish}\n")
