"""Files of the store are deleted at random while a sweep runs; then the same command mends it.

The two whose loss a running sweep cannot mend by itself have tests of their own: the lock and
MLflow's database (``tests/faults/test_store_faults.py``). MLflow's artifacts are its own.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.drills.counting import Result, result_of
from tests.faults.drills.kills import ATTEMPTS, SPEC
from tests.faults.drills.launching import Launch, run_to_end, until
from tests.faults.drills.outcome import Outcome, Setting, judged
from tests.faults.kit import Scene
from tests.faults.leftovers import short_directory

PAUSE_SECONDS = 0.5
CODES = {0, 1}
"""A file may be lost in the very moment in which the command needs it."""


def deletions(setting: Setting) -> Iterator[Outcome]:
    """One sweep, which loses a file every half second from its first record to its end."""
    return judged(
        "files deleted at random",
        setting.directory / "deletions",
        lambda place: _delete(place, random.Random(setting.seed)),
    )


def _delete(place: Path, chance: random.Random) -> str:
    calm = Scene(place / "calm", SPEC, temporary=short_directory())
    scene = Scene(place / "sweep", SPEC, temporary=short_directory())
    try:
        run_to_end(calm)
        launch = until(scene, lambda scene: bool(scene.records()))
        deleted = 0
        while launch.running:
            found = _files(scene.root)
            if found:
                chance.choice(found).unlink(missing_ok=True)
                deleted += 1
            time.sleep(PAUSE_SECONDS)
        code = launch.end()
        assert code in CODES, f"ended {code}: {launch.said[-2000:]}"
        assert "Traceback" not in launch.said, launch.said[-2000:]
        runs = _mend(scene)
        _assert_whole(result_of(calm), result_of(scene))
        return f"ended {code} without {deleted} files, whole after {runs} further runs"
    finally:
        calm.trace.remove()
        scene.trace.remove()


def _files(root: Path) -> list[Path]:
    """What may be lost. Drafts are left out: they are nobody's before they have a name."""
    found = [Path(place, name) for place, _, names in os.walk(root) for name in names]
    kept = re.compile(r"ml|\.mlflow-|(?:.*/)?\.(?:lock$|draft-)")
    return sorted(path for path in found if not kept.match(str(path.relative_to(root))))


def _mend(scene: Scene) -> int:
    """Run the same command until nothing is trained any more; how often that took."""
    for attempt in range(1, ATTEMPTS + 1):
        launch = Launch(scene)
        code = launch.end()
        assert code in CODES, f"run again, it ended {code}: {launch.said[-2000:]}"
        if code == 0 and " 0 trained now" in launch.said:
            return attempt
    raise AssertionError(f"after {ATTEMPTS} runs there is still something to train")


def _assert_whole(calm: Result, found: Result) -> None:
    """The same trials, runs, curves and numbers, whatever was trained twice."""
    assert found.epochs == calm.epochs, "records"
    assert found.runs == calm.runs, "MLflow runs"
    assert found.points == calm.points, "points of MLflow's curves"
    assert found.leaderboard.equals(calm.leaderboard), "the leaderboard"
