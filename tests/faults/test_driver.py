"""The driver is killed, stopped, doubled and repeated: every count stays exact."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from tests.faults.kit import Scene, kill, wait_for

EPOCHS, EVERY = 12, 3
SPEC = f"""\
datasets: [blobs-1.7]
model: {{name: mlp, widths: [8]}}
methods:
  paced: {{method: "paced:Paced", lr: [0.01, 0.03, 0.1], pause: 0.08, weight_decay: 0}}
  random: {{method: focal, lr: {{loguniform: [0.01, 0.1]}}, gamma: 2, weight_decay: 0}}
training: {{epochs: {EPOCHS}, batch_size: full, evaluate_every: {EVERY}}}
search: {{sampler: random, trials: 4, seed: 5}}
confirm_seeds: 2
post_hoc: [temperature]
"""
CURVE = list(range(EVERY, EPOCHS + 1, EVERY))
TRIALS = 3 + 4 + 2 * 2  # the three points of the first row, one of them suggested twice


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The same sweep left alone, but for a second driver that is turned away."""
    scene = Scene(tmp_path_factory.mktemp("undisturbed"), SPEC)
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

    ``come`` is given the number of records there were when the driver started.
    """

    come: Callable[[Scene, int], object]
    number: int = signal.SIGKILL
    code: int = 0


def new_records(count: int) -> Callable[[Scene, int], bool]:
    return lambda scene, before: len(scene.records()) >= before + count


MOMENTS = {
    "setting up": Moment(lambda scene, _: (scene.root / scene.name).exists()),
    "building the database": Moment(lambda scene, _: any(scene.root.glob(".mlflow-*/mlflow.db"))),
    "searching": Moment(new_records(2)),
    "interrupted": Moment(new_records(1), signal.SIGINT, 130),
    "terminated": Moment(new_records(1), signal.SIGTERM, 143),
    "confirming": Moment(
        lambda scene, _: any(r["config"]["phase"] == "confirm" for r in scene.records().values())
    ),
    "reporting": Moment(lambda scene, _: (scene.root / scene.name / "leaderboard.csv").exists()),
}


def disturb(scene: Scene, moment: Moment, delay: float) -> None:
    before = len(scene.records())
    process = scene.start()
    wait_for(lambda: moment.come(scene, before), process)
    time.sleep(delay)
    if moment.number == signal.SIGKILL:
        kill(process)
        return
    process.send_signal(moment.number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == moment.code
    assert "calsweep run spec.yaml" in err
    assert "Traceback" not in out + err
    assert {run.info.status for run in scene.runs()} <= {"FINISHED", "KILLED"}


@pytest.mark.timeout(600)
def test_a_driver_killed_and_stopped_in_every_phase_leaves_the_same_result(
    undisturbed: Scene, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, SPEC)
    chance = random.Random(3)
    finished: dict[str, str] = {}
    for moment in MOMENTS.values():
        disturb(scene, moment, chance.uniform(0, 0.3))
        now = scene.attempts()
        assert finished.items() <= now.items(), "a finished trial was trained again"
        finished = now
    done = scene.run()
    assert done.returncode == 0, done.stderr
    assert finished.items() <= scene.attempts().items()
    scene.assert_exact(TRIALS, CURVE, {"FINISHED"})
    assert set(scene.records()) == set(undisturbed.records())
    pd.testing.assert_frame_equal(scene.leaderboard(), undisturbed.leaderboard())


def test_a_finished_sweep_trains_nothing_again(undisturbed: Scene) -> None:
    before = undisturbed.attempts()
    runs = {run.info.run_id for run in undisturbed.runs()}
    done = undisturbed.run()
    assert done.returncode == 0, done.stderr
    assert "0 trained now" in done.stdout
    assert undisturbed.attempts() == before
    assert {run.info.run_id for run in undisturbed.runs()} == runs


def test_an_extended_sweep_trains_only_what_is_new(undisturbed: Scene) -> None:
    """Two search trials more for each row, one seed and one map more for the confirmed."""
    before, suggested = undisturbed.attempts(), undisturbed.suggestions()
    more = SPEC.replace("confirm_seeds: 2", "confirm_seeds: 3")
    undisturbed.write(more.replace("[temperature]", "[temperature, histogram_mass]"))
    done = undisturbed.run("--extend", "2")
    assert done.returncode == 0, done.stderr
    assert before.items() <= undisturbed.attempts().items()
    assert len(undisturbed.suggestions()) == len(suggested) + 2 * 2
    assert {run.info.status for run in undisturbed.runs()} == {"FINISHED"}
    table = undisturbed.leaderboard()
    assert (table["seeds"] == 3).all()
    assert "histogram_mass" in set(table["post_hoc"])
