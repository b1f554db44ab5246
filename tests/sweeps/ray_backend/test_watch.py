"""The watch over a long call, and the end of a call that cannot be ended."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from sweeps.ray_backend import watch
from sweeps.ray_backend.connection import Reachable
from sweeps.ray_backend.local_ray import BackendError, started
from sweeps.ray_backend.watch import Watch
from tests.ports import free_port


class LostError(RuntimeError):
    pass


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.01)


def failing_after(event: threading.Event) -> watch.Check:
    def check() -> None:
        if event.is_set():
            raise LostError("it is gone")

    return check


def test_a_call_is_ended_where_it_stands_by_the_check_that_fails() -> None:
    gone = threading.Event()
    caught = []

    def work_for_ever() -> None:
        while True:
            try:
                gone.set()
                time.sleep(0.001)
            except Exception as error:  # as libraries do; the end must not be taken for one
                caught.append(error)

    with pytest.raises(LostError, match="it is gone"), Watch(lambda: None, failing_after(gone)):
        work_for_ever()
    assert caught == []


def test_in_any_thread() -> None:
    gone = threading.Event()
    found: list[BaseException] = []

    def work() -> None:
        try:
            with Watch(failing_after(gone)):
                while True:
                    time.sleep(0.001)
        except LostError as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    gone.set()
    thread.join()
    assert [str(error) for error in found] == ["it is gone"]


def test_an_error_of_the_call_is_explained_by_a_check_that_fails_now() -> None:
    gone = threading.Event()

    def fail() -> None:
        gone.set()
        raise ConnectionError("the first sign")

    with pytest.raises(LostError), Watch(failing_after(gone)):
        fail()


def test_other_ends_pass() -> None:
    gone = threading.Event()
    with pytest.raises(ZeroDivisionError), Watch(failing_after(gone)):
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt), Watch(failing_after(gone)):
        raise KeyboardInterrupt
    with Watch(failing_after(gone)):
        pass
    before = threading.active_count()
    gone.set()
    time.sleep(0.05)  # nobody looks any more
    assert threading.active_count() <= before


BLOCKED = """
import ctypes
from sweeps.ray_backend import watch
watch.LOOK_SECONDS, watch.AGAIN_SECONDS, watch._PATIENCE_SECONDS = 0.01, 0.1, 0.3
def check(): raise RuntimeError("Ray was lost")
with watch.Watch(check):
    ctypes.CDLL(None).pause()  # never comes back to Python
"""


def test_a_call_that_never_returns_to_python_ends_with_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "calsweep: Ray was lost\n"


def test_a_cluster_counts_as_lost_when_it_has_not_answered_for_a_while() -> None:
    port = free_port()
    check = Reachable({"the cluster's head": ("127.0.0.1", port)}, patience=0.2)
    check()  # it may be restarted
    time.sleep(0.2)
    with pytest.raises(BackendError, match=rf"head at 127\.0\.0\.1:{port} has not answered"):
        check()


def test_ray_is_started_again_after_it_failed_to_start() -> None:
    events: list[str] = []

    def start() -> None:
        events.append("start")
        if events.count("start") < 3:
            raise Exception("The current node timed out during startup.")

    started(start, lambda: events.append("clear"))
    assert events == ["start", "clear", "start", "clear", "start"]
    events.clear()
    with pytest.raises(BackendError, match="tried 2 times: The current node timed out"):
        started(start, lambda: events.append("clear"), tries=2)
    assert events == ["start", "clear", "start", "clear"]
