"""The driver is killed, stopped, doubled, or loses its Ray: every count stays exact."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.faults.drills.counting import assert_same, result_of
from tests.faults.kit import Scene, kill, wait_for
from tests.faults.leftovers import short_directory
from tests.waiting import LIMIT

pytestmark = pytest.mark.slow

EPOCHS, EVERY = 12, 3
SPEC = f"""\
datasets: [blobs-1.7]
model: {{name: mlp, widths: [8]}}
methods:
  paced: {{method: "paced:Paced", lr: [0.01, 0.03, 0.1], pause: 0.08, weight_decay: 0}}
  random: {{method: "paced:Paced", lr: {{loguniform: [0.01, 0.1]}}, pause: 0.05, weight_decay: 0}}
training: {{epochs: {EPOCHS}, batch_size: full, evaluate_every: {EVERY}}}
search: {{sampler: random, trials: 30, seed: 5}}
confirm_seeds: 2
calibrators: [temperature]
"""
CURVE = list(range(EVERY, EPOCHS + 1, EVERY))
TRIALS = 3 + 30 + 2 * 2  # the three points of the first row, some of them suggested again
LOST_SECONDS = 180.0
"""Three times the minute that is promised of a command whose Ray is lost: machines may be busy."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The same sweep left alone, but for a second driver that is turned away."""
    scene = Scene(tmp_path_factory.mktemp("undisturbed"), SPEC, database=True)
    process = scene.start()
    wait_for(scene.suggestions, process)
    second = scene.run()
    assert second.returncode == 2
    assert f"process {process.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    assert process.poll() is None
    _, err = process.communicate()
    assert process.returncode == 0, err
    return scene


def test_a_second_driver_of_the_same_sweep_does_no_harm(undisturbed: Scene) -> None:
    undisturbed.assert_exact(TRIALS, CURVE, {"FINISHED"})


class Moment(NamedTuple):
    """When a sweep is disturbed, known by what lies in the store, and how.

    ``come`` is given the number of records there were when the driver started. Signals other
    than SIGKILL end it with ``code``. Where one of Ray's processes is ``lost``, it gets the
    signal instead of the driver.
    """

    come: Callable[[Scene, int], object]
    signals: tuple[int, ...] = (signal.SIGKILL,)
    code: int = 0
    lost: str = ""


def new_records(count: int) -> Callable[[Scene, int], bool]:
    return lambda scene, before: len(scene.records()) >= before + count


def written(pattern: str) -> Callable[[Scene, int], bool]:
    return lambda scene, _: any(scene.root.glob(pattern))


MOMENTS = {
    "setting up": Moment(written("*/.lock")),
    "building the database": Moment(written(".mlflow-*/mlflow.db")),
    "searching": Moment(new_records(2)),
    "without a raylet": Moment(new_records(1), lost="raylet"),
    "without a GCS": Moment(new_records(1), lost="gcs_server"),
    "interrupted": Moment(new_records(1), (signal.SIGINT,), 130),
    # Whoever presses Ctrl-C again does not want to wait for MLflow and Ray.
    "interrupted twice": Moment(new_records(1), (signal.SIGINT, signal.SIGINT), 130),
    "terminated": Moment(new_records(1), (signal.SIGTERM,), 143),
    "confirming": Moment(
        lambda scene, _: any(r.config["phase"] == "confirm" for r in scene.records().values())
    ),
    # No run before this one has come so far: these are the first files of their kind.
    "reporting": Moment(written("*/figures/*.png")),
    "publishing": Moment(written("mlartifacts/*/*/artifacts/figures/*.png")),
}


def disturb(scene: Scene, moment: Moment, chance: random.Random) -> None:
    before = len(scene.records())
    process = scene.start()
    wait_for(lambda: moment.come(scene, before), process)
    if moment.lost:
        lose(moment.lost, process, scene)
        return
    time.sleep(chance.uniform(0, 0.3))
    if moment.signals == (signal.SIGKILL,):
        kill(process)
        return
    for number in moment.signals:
        process.send_signal(number)
        time.sleep(chance.uniform(0.1, 0.5))
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == moment.code, out + err
    assert "calsweep run spec.yaml" in err
    assert "Traceback" not in out + err
    if len(moment.signals) == 1:
        assert {run.info.status for run in scene.runs()} <= {"FINISHED", "KILLED"}


def lose(name: str, process: subprocess.Popen[str], scene: Scene) -> None:
    """Kill a server of Ray's: the command ends by itself, with the reason, and leaves nothing."""
    family = psutil.Process(process.pid).children(recursive=True)
    next(child for child in family if child.name() == name).kill()
    out, err = process.communicate(timeout=LOST_SECONDS)
    assert process.returncode == 1, err
    assert err.count("\n") == 1, err
    assert f"{name} on this machine was ended by signal SIGKILL" in err
    assert "Raylet" not in out
    scene.trace.assert_nothing_left()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Temporary files of this test's sweeps go there, and all that are there are theirs."""
    place = short_directory()
    yield place
    shutil.rmtree(place, ignore_errors=True)


def test_a_driver_killed_and_stopped_in_every_phase_leaves_the_same_result_and_nothing_else(
    undisturbed: Scene, tmp_path: Path, temporary: Path
) -> None:
    # In cohorts, which the undisturbed one is not: that, too, leaves the same result.
    scene = Scene(tmp_path, SPEC + "cohort: 3\n", temporary=temporary)
    chance = random.Random(3)
    finished: dict[str, str] = {}
    for moment in MOMENTS.values():
        disturb(scene, moment, chance)
        now = scene.attempts()
        assert finished.items() <= now.items(), "a finished trial was trained again"
        finished = now
    done = scene.run()
    assert done.returncode == 0, done.stderr
    assert finished.items() <= scene.attempts().items()
    scene.assert_exact(TRIALS, CURVE, {"FINISHED"})
    assert_same(result_of(undisturbed), result_of(scene))
    scene.trace.assert_nothing_left()


def test_an_extended_sweep_trains_only_what_is_new(undisturbed: Scene) -> None:
    """Two search trials more for each row, one seed and one calibrator more for the confirmed."""
    before, suggested = undisturbed.attempts(), undisturbed.suggestions()
    more = SPEC.replace("confirm_seeds: 2", "confirm_seeds: 3")
    undisturbed.write(more.replace("[temperature]", "[temperature, histogram_mass]"))
    undisturbed.hurry()
    done = undisturbed.run("--extend", "2")
    assert done.returncode == 0, done.stderr
    assert before.items() <= undisturbed.attempts().items()
    assert len(undisturbed.suggestions()) == len(suggested) + 2 * 2
    assert {run.info.status for run in undisturbed.runs()} == {"FINISHED"}
    table = undisturbed.leaderboard()
    assert (table["seeds"] == 3).all()
    assert "histogram_mass" in set(table["calibrator"])
