"""The store is full, then damaged: a clear word, nothing corrupt, and on it goes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import fill, small_disk
from tests.faults.kit import Scene, retrained, wait_for

pytestmark = pytest.mark.slow

SPEC = """\
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods:
  paced:
    {method: "paced:Paced", pause: 0.1, lr: [0.01, 0.03, 0.1, 0.3], weight_decay: [0, 0.001]}
training: {epochs: 30, batch_size: full, evaluate_every: 5}
search: {sampler: grid}
confirm_seeds: 2
calibrators: [temperature]
resources: {cpu: 2}
"""
CURVE = list(range(5, 31, 5))
TRIALS = 8 + 2


@pytest.fixture
def full_soon(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "24M") as place:
        yield place


def test_a_full_store_is_reported_clearly_and_damage_is_repaired_once_there_is_room(
    full_soon: Path,
) -> None:
    scene = Scene(full_soon / "sweep", SPEC, database=True)
    process = scene.start()
    wait_for(lambda: len(scene.records()) >= 3, process)
    ballast = fill(full_soon)
    _, err = process.communicate()
    assert process.returncode == 1
    assert "o space left" in err
    assert "runs" in err
    assert "Traceback" not in err
    ballast.unlink()
    before = scene.attempts()
    assert 3 <= len(before) < TRIALS
    damaged = damage(scene)
    scene.hurry()
    done = scene.run()
    assert done.returncode == 0, done.stderr
    assert f"{TRIALS - len(before) + len(damaged)} trained now" in done.stdout
    assert [key for key in damaged if key not in done.stderr] == []
    after = scene.attempts()
    assert {key for key, attempt in before.items() if after[key] != attempt} == set(damaged)
    aside = {path.name.partition("-")[0] for path in (scene.root / "damaged").iterdir()}
    assert aside == set(damaged)
    scene.assert_exact(TRIALS, CURVE, {"FINISHED"})
    for key in damaged:
        record = scene.records()[key]
        assert retrained(record, scene).curve == record.curve


def damage(scene: Scene) -> list[str]:
    """Spoil one file each of three finished trials; their keys."""
    chance = random.Random(1)
    keys = chance.sample(sorted(scene.records()), 3)
    directories = [scene.root / "records" / key for key in keys]
    record = directories[0] / "record.json"
    record.write_bytes(record.read_bytes()[:-100])
    flip(directories[1] / "record.json", chance)
    (predictions,) = directories[2].glob("*/predictions.npz")
    flip(predictions, chance)
    return keys


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content) // 4, len(content) - len(content) // 4)
    content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(content))
