"""One driver per sweep: who comes second is told who was first; who is dead is succeeded."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from calibration.leftovers import machine, started
from sweeps.store import Store, StoreError
from sweeps.store.files import Files, LocalFiles, open_files
from sweeps.store.lock import LeaseTimes, LockedError, SweepLock, sweep_lock

FORK = multiprocessing.get_context("fork")
TIMES = LeaseTimes(renew=0.1, stale=60, settle=0.1)


@pytest.fixture(params=["path", "s3"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return open_files(tmp_path if request.param == "path" else request.getfixturevalue("s3_root"))


@pytest.fixture
def bucket(s3_root: str) -> Files:
    return open_files(s3_root)


def lock(files: Files) -> SweepLock:
    return sweep_lock(files, "sweep", TIMES)


def _hold(files: Files, connection: Connection) -> None:
    with lock(files):
        connection.send(os.getpid())
        connection.recv()


def held_elsewhere(files: Files) -> tuple[Any, Connection]:
    """A process that holds the lock, and what lets go of it."""
    here, there = FORK.Pipe()
    process = FORK.Process(target=_hold, args=(files, there), daemon=True)
    process.start()
    assert here.poll(20)
    assert here.recv() == process.pid
    return process, here


def test_the_second_is_told_about_the_first(files: Files) -> None:
    process, connection = held_elsewhere(files)
    who = rf"sweep: .*process {process.pid} on {socket.gethostname()} since 20\d\d-.* UTC"
    with pytest.raises(LockedError, match=who), lock(files):
        pass
    connection.send("enough")
    process.join()
    with lock(files) as held:
        assert not held.lost.is_set()
        with pytest.raises(LockedError, match=f"process {os.getpid()} "), lock(files):
            pass


def test_another_sweep_is_another_lock(root: str) -> None:
    store = Store(root)
    with store.lock("one"), store.lock("other"):
        assert store.files("one") == []


def test_a_killed_driver_is_succeeded_at_once(files: Files) -> None:
    process, _ = held_elsewhere(files)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    # Its lease is fresh, but it is known to be dead.
    with lock(files), pytest.raises(LockedError, match=f"process {os.getpid()} "), lock(files):
        pass


def test_a_child_of_the_driver_does_not_keep_the_lock(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    here, there = FORK.Pipe()
    with lock(files):
        child = FORK.Process(target=there.recv, daemon=True)
        child.start()
    with lock(files):
        pass
    here.send("")
    child.join()


def test_an_exception_frees_it(files: Files) -> None:
    with pytest.raises(KeyError), lock(files):
        raise KeyError
    with lock(files):
        pass


def foreign(age: float, token: str = "theirs") -> bytes:
    """The lease of a driver on another machine, renewed so many seconds ago."""
    now = time.time() - age
    holder = {"host": "far", "machine": "elsewhere", "pid": 1, "token": token}
    return json.dumps(holder | {"since": now, "renewed": now}).encode()


def test_a_lease_is_renewed_and_removed_at_the_end(bucket: Files) -> None:
    with lock(bucket) as held:
        first = last = json.loads(bucket.read("sweep/.lock") or b"")
        for _ in range(3):
            before = last
            while last["renewed"] == before["renewed"]:
                last = json.loads(bucket.read("sweep/.lock") or b"")
        assert last == first | {"renewed": last["renewed"]}
        assert last["renewed"] > first["renewed"]
        assert not held.lost.is_set()
    assert bucket.read("sweep/.lock") is None


@pytest.mark.parametrize("since", ["1e20", "-1e20", "Infinity", "NaN"])
def test_a_lock_of_an_impossible_time_names_nobody(tmp_path: Path, since: str) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / ".lock").write_text(f'{{"pid": {os.getpid()}, "since": {since}}}')
    assert lock(open_files(tmp_path)).holder() is None


def test_a_fresh_lease_of_another_machine_is_respected(bucket: Files) -> None:
    bucket.write("sweep/.lock", foreign(age=0))
    with pytest.raises(LockedError, match="process 1 on far"), lock(bucket):
        pass
    assert json.loads(bucket.read("sweep/.lock") or b"")["token"] == "theirs"


@pytest.mark.parametrize("found", [1000, -1000, -1e20, b"", b"damaged", b'{"pid": 1}'])
def test_a_stale_or_damaged_lease_is_taken_over(bucket: Files, found: float | bytes) -> None:
    """A lease renewed so many seconds ago or, by a clock that is wrong, in the future."""
    bucket.write("sweep/.lock", found if isinstance(found, bytes) else foreign(found))
    with lock(bucket), pytest.raises(LockedError, match=f"process {os.getpid()} "), lock(bucket):
        pass


def test_a_holder_whose_clock_is_wrong_is_not_robbed(bucket: Files) -> None:
    done, robbed = threading.Event(), threading.Event()

    def renew() -> None:
        age = 1000.0
        while not done.wait(0.05):
            age -= 0.1
            if json.loads(bucket.read("sweep/.lock") or b"{}").get("token") != "theirs":
                robbed.set()
            bucket.write("sweep/.lock", foreign(age))

    bucket.write("sweep/.lock", foreign(age=1000))
    holder = threading.Thread(target=renew)
    holder.start()
    try:
        slow = LeaseTimes(renew=0.7, stale=60, settle=0.3)
        with pytest.raises(LockedError, match="on far"), sweep_lock(bucket, "sweep", slow):
            pass
    finally:
        done.set()
        holder.join()
    assert not robbed.is_set()


def test_who_is_robbed_learns_of_it_and_leaves_the_other_s_lease(bucket: Files) -> None:
    with lock(bucket) as held:
        bucket.write("sweep/.lock", foreign(age=0))
        assert held.lost.wait(20)
    assert json.loads(bucket.read("sweep/.lock") or b"")["token"] == "theirs"


def test_of_two_successors_one_gets_it(bucket: Files) -> None:
    bucket.write("sweep/.lock", foreign(age=1000))
    slow = LeaseTimes(renew=0.5, stale=60, settle=0.7)
    leave = threading.Barrier(3)
    outcomes: list[str] = []

    def succeed() -> None:
        try:
            with sweep_lock(bucket, "sweep", slow) as held:
                outcomes.append("mine")
                leave.wait()
                outcomes.append("lost" if held.lost.is_set() else "kept")
        except LockedError:
            leave.wait()
            outcomes.append("refused")

    threads = [threading.Thread(target=succeed) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["kept", "mine", "refused", "refused"]
    assert bucket.read("sweep/.lock") is None


@pytest.mark.parametrize("kind", ["symbolic link", "dangling link", "hard link", "pipe"])
def test_a_lock_that_is_another_file_is_refused_and_the_other_left_alone(
    tmp_path: Path, kind: str
) -> None:
    path, other = tmp_path / "sweep" / ".lock", tmp_path / "precious"
    path.parent.mkdir()
    other.write_text("precious")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "hard link":
        path.hardlink_to(other)
    else:
        path.symlink_to(other if kind == "symbolic link" else tmp_path / "nowhere")
    said = {"hard link": "second name", "pipe": "not a plain file"}.get(kind, "symbolic link")
    with (
        pytest.raises(StoreError, match=rf"\.lock: it .*{said}.*delete it and run"),
        lock(LocalFiles(tmp_path)),
    ):
        pass
    assert other.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    path.unlink()
    with lock(LocalFiles(tmp_path)):
        pass


@pytest.mark.parametrize("how", ["deleted", "replaced", "moved with its directory"])
def test_who_loses_the_lock_file_learns_of_it(tmp_path: Path, how: str) -> None:
    files = LocalFiles(tmp_path)
    path = tmp_path / "sweep" / ".lock"
    with lock(files) as held:
        held.ensure()
        if how == "moved with its directory":
            path.parent.rename(tmp_path / "elsewhere")
        else:
            path.unlink()
        if how == "replaced":
            with lock(files) as second:  # the file is a new one, and free
                second.ensure()
        for _ in range(2):
            with pytest.raises(LockedError, match=r"deleted or replaced.*records are safe"):
                held.ensure()
        assert held.lost.is_set()
    held.ensure()  # not held any more: nothing to be lost
    with lock(files) as again:
        again.ensure()


def test_any_thread_may_ask_whether_the_lock_is_held(tmp_path: Path) -> None:
    files, stop = LocalFiles(tmp_path), threading.Event()
    current: list[SweepLock] = []
    errors: list[Exception] = []

    def ask() -> None:
        while not stop.is_set():
            for held in current[-1:]:
                try:
                    held.ensure()
                except Exception as error:  # whatever it is, it should not be
                    errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(200):
        with lock(files) as held:
            current.append(held)
    stop.set()
    asking.join()
    assert errors == []


def test_a_lease_of_a_process_whose_number_was_given_anew_is_taken_over(bucket: Files) -> None:
    now = time.time()
    mine = {"host": "here", "machine": machine(), "pid": os.getpid(), "since": now, "renewed": now}
    bucket.write("sweep/.lock", json.dumps(mine | {"started": "00000001"}).encode())
    with lock(bucket):
        pass
    bucket.write("sweep/.lock", json.dumps(mine | {"started": started(os.getpid())}).encode())
    with pytest.raises(LockedError, match=f"process {os.getpid()} on here"), lock(bucket):
        pass
