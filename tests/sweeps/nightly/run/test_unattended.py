"""One night at a time, none too long, every word of it on disk: tried with real processes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from sweeps.nightly.run.unattended import TimeUp, logged, one_at_a_time, time_limit
from sweeps.store import LockedError, StoreError
from tests.waiting import wait_for

STARTED: list[int] = []
"""What the running test has started; swept up at its end."""


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    while STARTED:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(STARTED.pop())
            for member in [process, *process.children(recursive=True)]:
                member.kill()
            process.wait()


class Child:
    """A forked process that runs a body in a directory, its output in two pipes."""

    def __init__(self, body: Callable[[], object], directory: Path) -> None:
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(out_end, 1)
            os.dup2(err_end, 2)
            os.closerange(3, 256)  # or its own reading ends would keep the pipes from breaking
            _run(body, directory)
        STARTED.append(self.pid)
        os.close(out_end)
        os.close(err_end)
        self.out, self.err = os.fdopen(out), os.fdopen(err)

    def end(self) -> int:
        """Wait for it: its exit code, or minus the signal that ended it."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        STARTED.remove(self.pid)
        return code


def _run(body: Callable[[], object], directory: Path) -> NoReturn:
    code = 1
    try:
        os.chdir(directory)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        body()
        sys.stdout.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def only_log(directory: Path) -> Path:
    [log] = (directory / "log").iterdir()
    return log


def test_a_second_night_is_told_who_has_the_first_and_a_killed_one_is_succeeded(
    tmp_path: Path,
) -> None:
    def hold() -> None:
        with one_at_a_time(Path("suite")):
            # It outlives its parent, and must not keep the lock.
            child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
            print(child.pid, flush=True)
            time.sleep(600)

    holder = Child(hold, tmp_path)
    STARTED.append(int(holder.out.readline()))
    who = rf"suite: a night is .* process {holder.pid} on {socket.gethostname()} since 20\d\d-"
    with pytest.raises(LockedError, match=who), one_at_a_time(tmp_path / "suite"):
        pass
    with one_at_a_time(tmp_path / "other"):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    assert holder.end() == -signal.SIGKILL
    assert is_running(STARTED[-1])
    with one_at_a_time(tmp_path / "suite"):
        pass


def test_the_lock_is_free_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), one_at_a_time(tmp_path):
        raise KeyError("x")
    with one_at_a_time(tmp_path):
        pass


def wait_for_a_child() -> None:
    child = subprocess.Popen(["sleep", "600"])
    STARTED.append(child.pid)
    child.wait()


def compute() -> None:
    while True:
        sum(range(1000))


@pytest.mark.parametrize(
    "wait",
    [lambda: time.sleep(600), wait_for_a_child, lambda: threading.Event().wait(600), compute],
    ids=["sleep", "child", "thread", "loop"],
)
def test_the_main_thread_is_interrupted_wherever_it_is(wait: Callable[[], object]) -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeUp, match=r"limit of 0\.2 s was reached"), time_limit(0.2):
        wait()
    assert signal.getsignal(signal.SIGALRM) is before
    assert not [thread for thread in threading.enumerate() if thread.name == "time limit"]


def test_a_library_that_catches_errors_lets_it_through() -> None:
    def library() -> None:
        with contextlib.suppress(Exception):
            time.sleep(600)
        reached.append("the next line")

    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt), time_limit(0.1):
        library()
    assert reached == []


@pytest.mark.parametrize("other", [KeyboardInterrupt, RuntimeError, SystemExit, None])
def test_it_arrives_whatever_a_library_makes_of_it(other: type[BaseException] | None) -> None:
    def library() -> None:
        try:
            reached.append(seconds)
            time.sleep(600)
        except TimeUp:
            if other is not None:
                raise other("changed") from None

    reached: list[float] = []
    for seconds in (0.1, 1.0, 10.0, 100.0):  # a busy machine may not get there in so short a time
        with pytest.raises(TimeUp) as caught, time_limit(seconds):
            library()
        if reached:
            break
    cause = caught.value.__cause__
    assert cause is None if other is None else isinstance(cause, other)


def test_within_its_time_nothing_is_changed() -> None:
    with time_limit(600), time_limit(None):
        pass
    with pytest.raises(KeyError), time_limit(600):
        raise KeyError("own")
    with pytest.raises(KeyboardInterrupt) as caught, time_limit(600):
        raise KeyboardInterrupt
    assert not isinstance(caught.value, TimeUp)


def test_an_impossible_limit_is_refused() -> None:
    for seconds in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="seconds"), time_limit(seconds):
            pass


def test_what_does_not_stop_is_killed_with_its_children_and_nothing_above_it(
    tmp_path: Path,
) -> None:
    """The caller is in the same process group, the child in a session of its own."""

    def ignore() -> None:
        family = ["sh", "-c", "sleep 600 & echo $!; wait"]
        child = subprocess.Popen(family, start_new_session=True, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        print(child.stdout.readline().strip(), flush=True)
        with time_limit(1, grace=3):
            while True:
                try:
                    time.sleep(600)
                except KeyboardInterrupt:
                    print("no", flush=True)

    def call() -> None:
        child = Child(ignore, tmp_path)
        print(child.out.read(), child.err.read())
        assert child.end() == -signal.SIGKILL

    caller = Child(call, tmp_path)
    out = caller.out.read()
    assert caller.end() == 0, caller.err.read()
    assert 2 <= out.count("no\n") <= 3, "it was reminded"
    assert "limit of 1 s was reached 3 s ago: killed" in out
    wait_for(lambda: not is_running(int(out.split()[0])))


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_main_thread_that_never_lets_go_of_the_interpreter_is_ended_too(tmp_path: Path) -> None:
    def hog() -> None:
        with time_limit(1, grace=0.1):
            re.match(r"(a+)+$", "a" * 60 + "b")  # years, in C, in one step

    child = Child(hog, tmp_path)
    assert child.end() == 1
    assert "Timeout" in child.err.read()


def test_everything_printed_is_in_the_log_and_still_shown(tmp_path: Path) -> None:
    def night() -> None:
        print("before")
        with logged(Path()) as path:
            print("from python", sys.stdout.isatty())
            print("an error", file=sys.stderr)
            subprocess.run(["sh", "-c", "echo from a child; echo its error >&2"], check=True)
            forked = os.fork()
            if forked == 0:
                print("from a fork", flush=True)
                os._exit(0)
            os.waitpid(forked, 0)
            print("x" * 300_000)
        print("after", path.name)

    child = Child(night, tmp_path)
    out, err = child.out.read(), child.err.read()
    assert child.end() == 0, err
    assert err == ""
    log = only_log(tmp_path)
    assert re.fullmatch(r"20\d\d-\d\d-\d\d-\d{6}\.log", log.name)
    lines = log.read_text().splitlines()
    printed = ["from python False", "an error", "from a child", "its error", "from a fork"]
    assert lines == [*printed, "x" * 300_000]
    assert out.splitlines() == ["before", *lines, f"after {log.name}"]


def test_the_log_of_a_killed_process_is_whole(tmp_path: Path) -> None:
    def night() -> None:
        with logged(Path()):
            for number in range(5000):
                print("line", number)
            os.kill(os.getpid(), signal.SIGKILL)

    assert Child(night, tmp_path).end() == -signal.SIGKILL
    lines = only_log(tmp_path).read_text().splitlines()
    assert lines == [f"line {number}" for number in range(5000)]


def test_a_reader_that_is_gone_does_not_disturb_the_night(tmp_path: Path) -> None:
    def night() -> None:
        with logged(Path()):
            print("first")
            wait_for(Path("gone").exists)
            for number in range(3):
                print("line", number)
                time.sleep(0.25)

    child = Child(night, tmp_path)
    assert child.out.readline() == "first\n"
    child.out.close()
    (tmp_path / "gone").touch()
    assert child.end() == 0, child.err.read()
    assert only_log(tmp_path).read_text() == "first\nline 0\nline 1\nline 2\n"


def test_an_output_that_nobody_reads_for_a_while_does_not_hold_up_the_night(
    tmp_path: Path,
) -> None:
    def night() -> None:
        with logged(Path()):
            print("y" * 1_000_000)  # a pipe holds 64 KB
            Path("went-on").touch()

    child = Child(night, tmp_path)
    wait_for((tmp_path / "went-on").exists)
    assert child.out.read() == "y" * 1_000_000 + "\n"
    assert child.end() == 0, child.err.read()


def test_why_it_ended_is_in_the_log_without_its_secrets(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def log_of(error: BaseException) -> str:
        with pytest.raises(type(error)), logged(tmp_path) as path:
            raise error
        return path.read_text()

    assert log_of(StoreError("no space left")) == "calsweep: no space left\n"
    assert log_of(TimeUp("the time is over")) == "calsweep: the time is over\n"
    unexpected = log_of(LookupError("at http://me:secret@host/"))
    assert unexpected.startswith("Traceback")
    assert unexpected.endswith("LookupError: at http://***@host/\n")
    out, err = capfd.readouterr()
    assert out + err == ""  # whoever catches it says it


def test_only_the_newest_logs_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    logs = tmp_path / "log"
    logs.mkdir()
    days = [f"{month:02d}-{day:02d}" for month in (1, 2) for day in range(1, 21)]
    old = [f"2020-{day}-020000.log" for day in days]
    for name in [*old, "notes.txt", "mine.log"]:
        (logs / name).touch()
    with logged(tmp_path) as path:
        pass
    assert sorted(p.name for p in logs.iterdir()) == [
        *old[-29:],
        path.name,
        "mine.log",
        "notes.txt",
    ]
    with logged(tmp_path) as second:  # very likely in the same second
        assert second.stem > path.stem


def test_a_place_for_logs_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with pytest.raises(StoreError, match="is a file"), logged(tmp_path):
        pass
