"""What nobody foresaw: one line, a log with the traceback and without secrets, exit code 70."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sweeps.cli import listings
from sweeps.cli import main as cli
from sweeps.cli.main import main
from sweeps.store import Store
from tests.waiting import output_of, wait_for

Break = Callable[[BaseException], None]


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Break:
    """Let ``calsweep methods`` raise something; the state directory is ``tmp_path / state``."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def let_raise(error: BaseException) -> None:
        def raising(*arguments: Any) -> NoReturn:
            raise error

        monkeypatch.setattr(listings, "methods", raising)

    return let_raise


def crashed(arguments: list[str], capsys: pytest.CaptureFixture) -> tuple[str, Path]:
    """The one line that was said, and the log that it names."""
    assert main(arguments) == 70
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    found = re.search(r"the details are in (\S+)$", said)
    assert found, said
    return said, Path(found[1])


@pytest.mark.parametrize(
    "error", [KeyError("nobody\x1b[31m"), MemoryError(), RecursionError("deep"), StopIteration()]
)
def test_an_unforeseen_error_is_one_line_and_a_log(
    error: Exception, broken: Break, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    broken(error)
    said, log = crashed(["methods"], capsys)
    assert said.startswith(f"calsweep: internal error: {type(error).__name__}")
    assert "this is a bug in calsweep" in said
    assert "\x1b" not in said
    assert log.parent == tmp_path / "state" / "calsweep" / "crashes"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    text = log.read_text()
    assert "calsweep methods\n" in text
    assert "Traceback (most recent call last)" in text
    assert "raise error" in text


def test_secrets_are_in_neither_the_line_nor_the_log(
    broken: Break, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("PGPASSWORD", "s3cret/word")
    broken(LookupError("postgresql://bob:hunter2@host/db said s3cret/word"))
    said, log = crashed(["methods"], capsys)
    for text in (said, log.read_text()):
        assert "postgresql://***@host/db said ***" in text
        assert "hunter2" not in text
        assert "s3cret" not in text


def test_the_newest_logs_are_kept_and_none_is_overwritten(
    broken: Break, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    logs = []
    for number in range(23):
        broken(LookupError(f"number {number}"))
        logs.append(crashed(["methods"], capsys)[1])
    assert len(set(logs)) == 23
    assert sorted(logs[-1].parent.iterdir()) == logs[-20:]
    assert "number 22" in logs[-1].read_text()


def test_the_log_lies_in_the_sweep_that_is_known(
    broken: Break, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    text = "name: mine\ndatasets: [iris]\nmethods: [standard]\n"
    (tmp_path / "own.yaml").write_text(text)
    Store("runs").write_file("mine", "spec.yaml", text.encode())

    def raising(*arguments: Any) -> NoReturn:
        raise LookupError("unforeseen")

    monkeypatch.setattr("sweeps.cli.status_view.print_status", raising)
    monkeypatch.setattr("sweeps.cli.plan_view.print_plan", raising)
    for arguments in (["status", "mine"], ["status", "own.yaml"], ["check", "own.yaml"]):
        _, log = crashed(arguments, capsys)
        assert log.parent == tmp_path / "runs" / "mine" / "crashes"
    assert Store("runs").files("mine") == ["spec.yaml"]  # what is published holds no log
    (tmp_path / "other.yaml").write_text(text.replace("mine", "other"))
    _, log = crashed(["check", "other.yaml"], capsys)
    assert log.is_relative_to(tmp_path / "state")  # no directory is made for a sweep
    assert not (tmp_path / "runs" / "other").exists()


def test_without_a_place_of_its_own_the_log_is_a_temporary_file(
    broken: Break, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "state").write_text("a file")
    broken(LookupError("unforeseen"))
    _, log = crashed(["methods"], capsys)
    assert log.parent == tmp_path
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert main(["methods"]) == 70
    assert "no log could be written" in capsys.readouterr().err


def test_what_the_machine_refuses_is_no_bug(broken: Break, capsys: pytest.CaptureFixture) -> None:
    broken(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some/file"))
    assert main(["methods"]) == 1
    assert capsys.readouterr().err == "calsweep: some/file: No space left on device\n"


TELLING = """
import logging, warnings
from sweeps.cli.main import main

main(["methods", "standard"])
logging.getLogger("calsweep").warning("a log of %s", "\x1b[31mred")
warnings.warn("a warning of \x1b[31mred")
"""


def test_logs_and_warnings_send_no_control_characters_to_the_terminal() -> None:
    """Both quote what others wrote: names of files, errors of other software."""
    done = subprocess.run([sys.executable, "-c", TELLING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert r"calsweep: a log of \x1b[31mred" in done.stderr
    assert r"UserWarning: a warning of \x1b[31mred" in done.stderr
    assert "\x1b" not in done.stderr


def test_interruptions_stay_what_they_are(
    broken: Break, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for stop, code in ((KeyboardInterrupt(), 130), (SystemExit(1), 143)):
        broken(stop)
        assert main(["methods"]) == code
        assert capsys.readouterr().err.startswith("calsweep: stopped; ")
    assert not (tmp_path / "state").exists()


def test_an_interruption_during_the_imports_is_one_message(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "rich.py").write_text(
        f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(3600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "sweeps.cli", "methods"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(begun.exists, process)
    process.send_signal(signal.SIGINT)
    assert output_of(process) == ("", "calsweep: stopped; nothing was started\n")
    assert process.returncode == 130


def test_an_interruption_after_the_end_changes_nothing(tmp_path: Path) -> None:
    """The interpreter takes a while to end, with Ray's threads a second."""
    ending, interrupted = tmp_path / "ending", tmp_path / "interrupted"
    (tmp_path / "linger.py").write_text(
        f"""
import atexit, pathlib, runpy, sys, time

def linger():
    pathlib.Path({str(ending)!r}).touch()
    while not pathlib.Path({str(interrupted)!r}).exists():
        time.sleep(0.01)

atexit.register(linger)
sys.argv = ["calsweep", "metrics"]
runpy.run_module("sweeps.cli", run_name="__main__")
"""
    )
    process = subprocess.Popen(
        [sys.executable, tmp_path / "linger.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(ending.exists, process)
    process.send_signal(signal.SIGINT)
    interrupted.touch()
    said, complaints = output_of(process)
    assert "nll" in said
    assert complaints == ""
    assert process.returncode == 0


def test_a_broken_plug_in_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "leaving_plugin.py").write_text("import sys\nsys.exit(3)\n")
    points = [
        EntryPoint("absent", "no_such_module_of_mine:add", "calsweep.commands"),
        EntryPoint("failing", "json:loads", "calsweep.commands"),
        EntryPoint("leaving", "leaving_plugin:add", "calsweep.commands"),
    ]
    monkeypatch.setattr(cli, "entry_points", lambda group: points)
    assert main(["metrics"]) == 0
    said = capsys.readouterr()
    assert "nll" in said.out
    lines = said.err.splitlines()
    assert [line.split("'")[1] for line in lines] == ["absent", "failing", "leaving"]
    assert all(line.startswith("calsweep: the plug-in ") for line in lines)
    assert "no_such_module_of_mine" in lines[0]


def test_a_working_directory_that_is_gone_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["check", "nothing.yaml"]) == 2
    assert main(["status", "nothing"]) == 1
    assert capsys.readouterr().err.count("\n") == 2
