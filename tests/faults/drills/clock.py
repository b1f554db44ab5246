"""The clock is set back an hour while a sweep runs, and the sweep is none the worse for it.

What every process of the sweep takes for the time of day is shifted by a small preloaded library;
clocks that only measure go on, as they do when somebody sets a real machine's clock. libfaketime
would do the same, but its 0.9.10 deadlocks and crashes in processes with as many threads as these.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.faults.drills.counting import assert_same, result_of
from tests.faults.drills.kills import SPEC
from tests.faults.drills.launching import run_to_end, until
from tests.faults.drills.outcome import Outcome, Setting, judged
from tests.faults.kit import Scene
from tests.faults.leftovers import Trace, short_directory

SOURCE = Path(__file__).with_name("shifted_clock.c")
BACK = -3600


def clock_set_back(setting: Setting) -> Iterator[Outcome]:
    """Once in mid-run, and once more before the run that continues a killed one."""
    return judged("clock set back an hour", setting.directory / "clock", _set_back)


def _set_back(place: Path) -> str:
    clock = Clock(place)
    temporary = short_directory()
    try:
        calm = Scene(place / "calm", SPEC, temporary=temporary)
        run_to_end(calm)
        expected = result_of(calm)
        scene = Scene(place / "sweep", SPEC, temporary=temporary)
        launch = until(scene, lambda scene: len(scene.records()) >= 3, **clock.environment)
        clock.shift(BACK)
        code = launch.end()
        assert code == 0, f"ended {code}: {launch.said[-2000:]}"
        assert "Traceback" not in launch.said, launch.said[-2000:]
        assert_same(expected, result_of(scene))
        clock.shift(0)
        again = Scene(place / "again", SPEC, temporary=temporary)
        launch = until(again, lambda scene: len(scene.records()) >= 3, **clock.environment)
        launch.kill_group()
        clock.shift(BACK)
        run_to_end(again, **clock.environment)
        assert_same(expected, result_of(again))
        return "in mid-run and before a run that continues: exact both times"
    finally:
        Trace(place, temporary).remove()


class Clock:
    """A clock for the commands that have its ``environment``. Raises ``AssertionError``."""

    def __init__(self, place: Path) -> None:
        compiler = shutil.which("cc")
        assert compiler, "no C compiler; install gcc"
        library, self._file = place / "shifted_clock.so", place / "shift"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
        self._file.write_bytes(struct.pack("l", 0))
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(self._file)}

    def shift(self, seconds: int) -> None:
        """Let the clock differ by so many seconds, in running processes too."""
        with self._file.open("r+b") as file:  # they have mapped it: it is changed in place
            file.write(struct.pack("l", seconds))
