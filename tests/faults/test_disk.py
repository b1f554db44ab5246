"""The store is full, read-only or damaged: a clear word, nothing corrupt, and on it goes."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from tests.disks import fill, small_disk
from tests.faults.kit import Scene, kill, wait_for

pytestmark = pytest.mark.slow

SPEC = """\
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods:
  standard: {lr: [0.01, 0.03, 0.1, 0.3], weight_decay: [0, 0.001]}
training: {epochs: 30, batch_size: full, evaluate_every: 5}
search: {sampler: grid}
confirm_seeds: 2
calibrators: [temperature]
"""
CURVE = list(range(5, 31, 5))
TRIALS = 8 + 2


@pytest.fixture
def full_soon(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "24M") as place:
        yield place


def test_a_full_store_is_said_clearly_and_damage_is_mended_once_there_is_room(
    full_soon: Path,
) -> None:
    slowly = SPEC.replace("standard: {", 'paced: {method: "paced:Paced", pause: 0.1, ')
    scene = Scene(full_soon / "sweep", slowly)
    process = scene.start()
    wait_for(lambda: len(scene.records()) >= 2, process)
    ballast = fill(full_soon)
    _, err = process.communicate()
    assert process.returncode == 1
    assert "o space left" in err
    assert "runs" in err
    assert "Traceback" not in err
    before = scene.attempts()
    assert 0 < len(before) < TRIALS
    ballast.unlink()
    scene.hurry()
    done = scene.run()
    assert done.returncode == 0, done.stderr
    assert before.items() <= scene.attempts().items()
    scene.assert_exact(TRIALS, CURVE, {"FINISHED"})
    damage_and_repeat(scene)


def damage_and_repeat(scene: Scene) -> None:
    """Damaged files are set aside and made again, and nothing else is."""
    leaderboard = scene.leaderboard()
    chance = random.Random(1)
    before = scene.attempts()
    damaged = chance.sample(sorted(before), 3)
    directories = [scene.root / "records" / key for key in damaged]
    record = directories[0] / "record.json"
    record.write_bytes(record.read_bytes()[:-100])
    flip(directories[1] / "record.json", chance)
    (predictions,) = directories[2].glob("*/predictions.npz")
    flip(predictions, chance)
    again = scene.run()
    assert again.returncode == 0, again.stderr
    assert "3 trained now" in again.stdout
    assert [key for key in damaged if key not in again.stderr] == []
    assert {k for k, attempt in scene.attempts().items() if attempt != before[k]} == set(damaged)
    assert len(list((scene.root / "damaged").iterdir())) == 3
    scene.assert_exact(TRIALS, CURVE, {"FINISHED"})
    pd.testing.assert_frame_equal(scene.leaderboard(), leaderboard)


def test_a_read_only_store_is_said_clearly(full_soon: Path) -> None:
    scene = Scene(full_soon / "sweep", SPEC)
    subprocess.run(["mount", "-o", "remount,ro", full_soon], check=True)
    refused = scene.run()
    assert refused.returncode == 1
    assert "ead-only" in refused.stderr
    assert "Traceback" not in refused.stderr
    subprocess.run(["mount", "-o", "remount,rw", full_soon], check=True)
    assert not scene.root.exists()


def test_a_damaged_checkpoint_is_not_continued(tmp_path: Path) -> None:
    slow = SPEC.replace("standard: {", 'paced: {method: "paced:Paced", pause: 1.5, ')
    slow = slow.replace("[0.01, 0.03, 0.1, 0.3]", "0.1").replace("[0, 0.001]", "0")
    scene = Scene(tmp_path, slow.replace("confirm_seeds: 2", "confirm_seeds: 1"))
    process = scene.start()
    (live,) = wait_for(lambda: list((scene.root / "records").glob("*/live.json")), process)
    wait_for(scene.trials, process)
    kill(process)
    (checkpoint,) = live.parent.glob("checkpoint*")
    flip(checkpoint, random.Random(2))
    scene.hurry()
    done = scene.run()
    assert done.returncode == 0, done.stderr
    (aside,) = (scene.root / "damaged").iterdir()
    assert aside.name.startswith(live.parent.name)
    scene.assert_exact(1, CURVE, {"FINISHED"})


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content) // 4, len(content) - len(content) // 4)
    content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(content))
