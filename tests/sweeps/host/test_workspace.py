"""Directories of this machine's sweeps, while others of them come and go."""

from __future__ import annotations

import threading
from pathlib import Path

from calibration.leftovers import temporary_name
from sweeps.host.workspace import WORKSPACE_PREFIX, _mine


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
