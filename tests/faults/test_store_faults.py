"""Files are deleted, damaged, locked away and written by two at once; then all is counted."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from sweeps.cli.main import main
from sweeps.engine.trial import TrialRun
from sweeps.store import Store, StoreError
from sweeps.store.codec import STORE_FORMAT
from sweeps.sweep import open_sweep
from tests.disks import read_only, small_disk
from tests.faults.kit import Scene, wait_for
from tests.outcomes import recorded
from tests.trained import finish, train_sweep

pytestmark = pytest.mark.slow

GRID = """\
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods: {ROW: {lr: [0.01, 0.03, 0.1, 0.3], weight_decay: 0}}
training: {epochs: 20, batch_size: full, evaluate_every: 5}
search: {sampler: grid}
confirm_seeds: 2
calibrators: [temperature]
"""
CURVE = [5, 10, 15, 20]
TRIALS = 4 + 2
SLOWLY = GRID.replace("ROW: {", 'paced: {method: "paced:Paced", pause: 0.05, ')
HERE = "name: here\n" + GRID.replace("ROW", "standard")


def test_two_drivers_and_deleted_files_leave_every_trial_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SLOWLY, database=True)
    first = scene.start()
    wait_for(scene.records, first)
    # Asleep, the first cannot notice that its lock goes; its workers go on.
    os.kill(first.pid, signal.SIGSTOP)
    (scene.root / scene.name / ".lock").unlink()
    lost = sorted((scene.root / "records").glob("*/record.json"))[0]
    lost.unlink()
    scene.suggestions()[0].unlink()
    for path in (scene.root / "records").glob("*/[cl]*"):  # checkpoints and live curves
        if path.is_file():  # attempts are directories, with any hexadecimal digit in front
            path.unlink()
    second = scene.start()
    wait_for(lambda: lost.exists(), second)
    os.kill(first.pid, signal.SIGCONT)
    _, complaint = first.communicate()
    assert first.returncode == 2, complaint
    assert ".lock: the lock file of this run was deleted or replaced" in complaint
    assert "Traceback" not in complaint
    _, complaint = second.communicate()
    assert second.returncode == 0, complaint
    scene.assert_exact(TRIALS, CURVE, {"FINISHED"})
    # One attempt of each trial stays, once nobody lives who may still be at work on another.
    store = Store(scene.root)
    for key, attempt in scene.attempts().items():
        store.clear_trial(key, store.record(key))
        assert {path.name for path in lost.parent.with_name(key).iterdir()} == {
            "record.json",
            attempt,
        }
    assert not list(scene.root.rglob(".draft-*"))


def test_a_run_whose_store_turns_read_only_and_then_loses_its_database(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SLOWLY, database=True)
    process = scene.start()
    wait_for(scene.records, process)
    with read_only(scene.root):
        _, complaint = process.communicate()
        assert process.returncode == 1, complaint
        assert complaint.count("\n") == 1, complaint
        assert "ead-only" in complaint
    before = scene.attempts()
    assert len(before) < TRIALS
    process = scene.start()
    # Not seen by MLflow's client, which would keep the file that is deleted.
    wait_for(lambda: len(scene.records()) > len(before), process)
    (scene.root / "mlflow.db").unlink()
    out, complaint = process.communicate()
    assert (process.returncode, complaint) == (0, "")
    assert "the records are safe; to publish them: calsweep sync spec.yaml" in out
    assert before.items() <= scene.attempts().items()
    synced = scene.run(command="sync")
    assert synced.returncode == 0, synced.stderr
    scene.assert_exact(TRIALS, CURVE, {"FINISHED"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep, trained in this process; to be copied."""
    directory = tmp_path_factory.mktemp("whole")
    train_sweep(directory, HERE)
    return directory


def copied(whole: Path, tmp_path: Path) -> tuple[Path, Store]:
    place = Path(shutil.copytree(whole, tmp_path / "copy"))
    return place, Store(place / "runs")


def assert_whole(store: Store, results: pd.DataFrame) -> None:
    """Every trial has one intact record, and the results are what they were."""
    keys = store.trial_keys()
    assert len(keys) == TRIALS
    assert all(store.intact(recorded(store, key)) for key in keys)
    found = open_sweep("here", store).results.drop(columns="train_seconds")
    pd.testing.assert_frame_equal(found, results.drop(columns="train_seconds"))


def flipped(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]


DAMAGES: list[Callable[[bytes, random.Random], bytes]] = [
    flipped,
    lambda content, chance: content[: chance.randrange(len(content))],
    lambda content, chance: b"",
    lambda content, chance: b'{"format": %d, "status": "done"}\n' % STORE_FORMAT,
]
KINDS = (  # those that only confirm trials have come first
    "records/*/*/network.pt",
    "records/*/*/evaluations/*/temperature.json",
    "records/*/*/predictions.npz",
    "records/*/record.json",
    "here/suggestions/*/*/*/*.json",
)


@pytest.mark.parametrize("seed", range(2))
def test_a_damaged_store_is_taken_up_and_every_damage_named(
    whole: Path, tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    place, store = copied(whole, tmp_path)
    results = open_sweep("here", store).results
    chance = random.Random(seed)
    spoilt: dict[str, Path] = {}
    for kind in KINDS:  # each in a trial of its own, as a trial is set aside as one
        found = sorted((place / "runs").glob(kind))
        path = chance.choice([p for p in found if not any(key in str(p) for key in spoilt)])
        path.write_bytes(chance.choice(DAMAGES)(path.read_bytes(), chance))
        spoilt[path.relative_to(place / "runs").parts[1]] = path
    finish(place / "spec.yaml", store)
    assert_whole(store, results)
    notes = [note.read_text() for note in (place / "runs" / "damaged").glob("*/reason.txt")]
    assert len(notes) == len(KINDS)
    for path in spoilt.values():
        name = path.relative_to(place / "runs")
        assert any(note.startswith(f"{name}: ") for note in notes)
        assert f"{path} is damaged" in caplog.text


@pytest.mark.parametrize("seed", range(2))
def test_whatever_files_are_deleted_the_same_command_makes_it_whole(
    whole: Path, tmp_path: Path, seed: int
) -> None:
    place, store = copied(whole, tmp_path)
    results = open_sweep("here", store).results
    chance = random.Random(seed)
    files = sorted(path for path in (place / "runs").rglob("*") if path.is_file())
    for path in chance.sample(files, len(files) // 2):
        path.unlink()
    finish(place / "spec.yaml", store)
    assert_whole(store, results)


def test_a_read_only_store_is_said_in_one_message_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "disk", "24M") as place:
        swept = train_sweep(place, HERE, limit=2)
        store, plan = swept.store, swept.plan
        before = everything(place)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        monkeypatch.chdir(tmp_path)
        spec, runs = str(place / "spec.yaml"), str(place / "runs")
        for root in (runs, str(place / "new")):
            assert main(["run", spec, "--store", root]) == 1
            message = capsys.readouterr().err
            assert message.count("\n") == 1
            assert "Read-only file system" in message or "is read-only" in message
        assert main(["status", "here", "--store", runs]) == 0  # who only reads may
        # In the midst of training it is the same.
        trial = plan.next()
        assert trial is not None
        attempt = TrialRun(trial.config, store, calibrators=[], evaluation=plan.spec.evaluation)
        with pytest.raises(StoreError, match="is read-only"):
            attempt.advance(600)
        assert everything(place) == before
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)
        finish(place / "spec.yaml", store)
        assert len(store.trial_keys()) == TRIALS
        assert all(store.intact(recorded(store, key)) for key in store.trial_keys())


def everything(root: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in root.rglob("*")}
