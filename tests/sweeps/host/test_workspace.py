"""Directories of this machine's sweeps, while others of them come and go."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from calibration.leftovers import temporary_name
from sweeps.host.workspace import WORKSPACE_PREFIX, WorkspaceError, _mine, _place, workspace
from tests.faults.leftovers import Trace
from tests.waiting import wait_for


def test_directories_that_others_remove_meanwhile_are_no_error(tmp_path: Path) -> None:
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            path = tmp_path / temporary_name(WORKSPACE_PREFIX)
            path.mkdir()
            path.rmdir()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(2000):
            _mine(tmp_path)
    finally:
        stop.set()
        other.join()


CROWDED = """
import os, resource
from sweeps.host.workspace import workspace

free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1,) * 2)  # for one more file, and no pipe
print(os.getpid(), flush=True)
with workspace():
    pass
"""


def test_a_workspace_that_nobody_can_watch_leaves_no_directory(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CROWDED], capture_output=True, text=True)
    assert "Too many open files" in done.stderr
    assert Trace(tmp_path, pids=[int(done.stdout)]).files() == []


def test_without_a_short_place_the_message_says_how_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)  # as for /tmp of a user who is not root
    with pytest.raises(WorkspaceError, match=r"at most (\d+) bytes") as caught, workspace():
        pass
    found = re.search(r"at most (\d+) bytes", str(caught.value))
    assert found is not None
    monkeypatch.undo()
    for more in (0, 1):  # as long as it says, and one byte longer
        name = "/" + "t" * (int(found[1]) - 1 + more)
        monkeypatch.setattr("tempfile.tempdir", name)
        monkeypatch.setattr(os, "access", lambda place, _, name=name: str(place) == name)
        assert _fits() == (not more)


def _fits() -> bool:
    try:
        _place()
    except WorkspaceError:
        return False
    return True


WATCHING = """
from sweeps.host import reaper
reaper.TOUCH_SECONDS = 0.05
reaper.main()
"""


def test_a_workspace_in_use_never_looks_abandoned(tmp_path: Path) -> None:
    """Another container, which cannot see its driver, goes by its age."""
    directory = tmp_path / "workspace"
    directory.mkdir()
    command = [sys.executable, "-c", WATCHING]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as watching:
        assert watching.stdin is not None
        watching.stdin.write(f"{directory}\n".encode())
        watching.stdin.flush()
        for _ in range(2):
            os.utime(directory, (0, 0))
            wait_for(lambda: directory.stat().st_mtime > 0, watching)
        assert directory.exists()
        watching.stdin.close()
        assert watching.wait() == 0
    assert not directory.exists()
