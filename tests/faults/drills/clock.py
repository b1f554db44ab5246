"""The clock is set back an hour while a sweep runs, and the sweep is none the worse for it.

libfaketime changes what every process of the sweep takes for the time of day; clocks that only
measure go on as they do when somebody sets a real machine's clock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tests.faults.drills.counting import assert_same, result_of
from tests.faults.drills.kills import SPEC
from tests.faults.drills.launching import run_to_end, until
from tests.faults.drills.outcome import Outcome, Setting, judged
from tests.faults.kit import Scene
from tests.faults.leftovers import Trace, short_directory

SLEEP = """
import select
import time


def sleep(seconds):
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = sleep
"""
"""Told to leave measuring clocks alone, libfaketime 0.9.10 refuses how Python sleeps (EINVAL)."""
LIBRARIES = "*/faketime/libfaketimeMT.so.1"


def clock_set_back(setting: Setting) -> Iterator[Outcome]:
    """Once in mid-run, and once more before the run that continues a killed one."""
    return judged("clock set back an hour", setting.directory / "clock", _set_back)


def _library() -> Path:
    for base in (Path("/usr/lib"), Path("/usr/local/lib")):
        for found in base.glob(LIBRARIES):
            return found
    raise AssertionError("libfaketime is missing; install libfaketime (Debian's package)")


def _environment(place: Path, offset: Path) -> dict[str, str]:
    (place / "site").mkdir()
    (place / "site" / "sitecustomize.py").write_text(SLEEP)
    paths = [str(place / "site"), os.environ.get("PYTHONPATH", "")]
    return {
        "LD_PRELOAD": str(_library()),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        # Read at every call, the file is read by several threads at once, and some crash.
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def _set_back(place: Path) -> str:
    offset = place / "offset"
    faked = _environment(place, offset)
    temporary = short_directory()
    try:
        calm = Scene(place / "calm", SPEC, temporary=temporary)
        run_to_end(calm)
        expected = result_of(calm)
        scene = Scene(place / "sweep", SPEC, temporary=temporary)
        offset.write_text("+0\n")
        launch = until(scene, lambda scene: len(scene.records()) >= 3, **faked)
        offset.write_text("-3600\n")
        code = launch.end()
        assert code == 0, f"ended {code}: {launch.said[-2000:]}"
        assert "Traceback" not in launch.said, launch.said[-2000:]
        assert_same(expected, result_of(scene))
        again = Scene(place / "again", SPEC, temporary=temporary)
        offset.write_text("+0\n")
        launch = until(again, lambda scene: len(scene.records()) >= 3, **faked)
        launch.kill_group()
        offset.write_text("-3600\n")
        run_to_end(again, **faked)
        assert_same(expected, result_of(again))
        return "in mid-run and before a run that continues: exact both times"
    finally:
        Trace(place, temporary).remove()
