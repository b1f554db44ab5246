"""What killed processes leave goes; what a living one is writing stays."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from calibration.leftovers import (
    FOREIGN_SECONDS,
    is_dead,
    is_leftover,
    made_by_the_dead,
    started,
    temporary_name,
    token,
)
from sweeps.engine.plan import Options, Plan
from sweeps.spec import load_spec
from sweeps.store import Store
from sweeps.store.files import DRAFT, LocalFiles, clear_drafts
from tests.outcomes import outcome, recorded
from tests.trained import finish

FORK = multiprocessing.get_context("fork")
FOREIGN = "f" * 32
SPEC = """\
name: left
datasets: [blobs-1.7]
model: {name: mlp, widths: [4]}
methods: {standard: {lr: [0.01, 0.1], weight_decay: 0}}
training: {epochs: 2, batch_size: full}
search: {sampler: grid}
confirm_seeds: 1
calibrators: [temperature]
"""


def of_the_dead() -> str:
    """A token of a process that had this one's number before it, and is gone."""
    mine = token()
    return f"{mine[:14]}00000001{mine[22:]}"


DEAD = of_the_dead()


def _name_and_wait(connection: Connection) -> None:
    connection.send(temporary_name(".x-"))
    connection.recv()


def test_a_name_tells_whether_its_maker_lives() -> None:
    mine = temporary_name(".x-")
    assert mine != temporary_name(".x-")
    assert not made_by_the_dead(mine)
    here, there = FORK.Pipe()
    child = FORK.Process(target=_name_and_wait, args=(there,), daemon=True)
    child.start()
    name = here.recv()
    assert not made_by_the_dead(name)
    os.kill(child.pid or 0, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid or 0, os.WEXITED | os.WNOWAIT)
    assert made_by_the_dead(name)  # a zombie, as nobody has asked how it ended
    child.join()
    assert made_by_the_dead(name)


def test_a_process_number_that_was_given_anew_is_another_process() -> None:
    assert not is_dead(os.getpid(), started(os.getpid()))
    assert is_dead(os.getpid(), "00000001")
    assert not made_by_the_dead(token())
    assert made_by_the_dead(of_the_dead())


@pytest.mark.parametrize("name", ["", "x", ".draft-", "0123abcd", FOREIGN, "DEAD.json"])
def test_other_names_are_nobody_s(name: str) -> None:
    name = name.replace("DEAD", DEAD)  # not in the test's own name, which is to be the same always
    assert not made_by_the_dead(name)


def test_what_another_machine_made_is_given_up_after_a_day(tmp_path: Path) -> None:
    path = tmp_path / f".draft-{FOREIGN}"
    assert not is_leftover(path)
    path.write_bytes(b"")
    assert not is_leftover(path)
    old = time.time() - FOREIGN_SECONDS - 60
    os.utime(path, (old, old))
    assert is_leftover(path)
    path = tmp_path / temporary_name(".draft-")  # our own may be as old as they like
    path.write_bytes(b"")
    os.utime(path, (old, old))
    assert not is_leftover(path)


def _write_for_ever(root: Path) -> None:
    files = LocalFiles(root)
    while True:
        files.write("deep/down/file", b"x" * 500_000)


def test_the_drafts_of_killed_writers_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    for _ in range(100):  # until one is killed with its draft there
        writer = FORK.Process(target=_write_for_ever, args=(tmp_path,), daemon=True)
        writer.start()
        while not (drafts := list(tmp_path.rglob(f"{DRAFT}*"))):
            pass
        assert all(not made_by_the_dead(draft.name) for draft in drafts)
        clear_drafts(tmp_path)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        if list(tmp_path.rglob(f"{DRAFT}*")):
            break
    clear_drafts(tmp_path)
    assert not list(tmp_path.rglob(f"{DRAFT}*"))


def test_a_sweep_clears_what_killed_processes_left_and_nothing_else(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    store = Store(tmp_path / "runs")
    assert store.local is not None
    plan = finish(spec, store).plan
    study = next(iter(plan.cells.values())).study_id
    keys = store.trial_keys()
    before = everything(store.local)
    attempts = {key: recorded(store, key).attempt for key in keys}
    dead, alive = [], []
    for key in keys:
        home = store.local / "records" / key
        for whose, maker in ((dead, DEAD), (alive, token()), (alive, FOREIGN)):
            whose += [home / f"{DRAFT}{maker}", home / attempts[key] / f"{DRAFT}{maker}"]
            whose += [home / maker / "predictions.npz"]
        dead += [home / "checkpoint.bin", home / "live.json"]
    for place in ("left", f"left/suggestions/{study}", "damaged/x-1"):
        dead.append(store.local / place / f"{DRAFT}{DEAD}")
        alive.append(store.local / place / f"{DRAFT}{token()}")
    for path in dead + alive:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"begun")
    reader = Plan(load_spec(spec), store, Options(persist=False))
    reader.replay()  # who only looks changes nothing
    assert [path for path in dead if not path.exists()] == []
    finish(spec, store)
    assert [path for path in dead if path.exists()] == []
    assert not (store.local / "records" / keys[0] / DEAD).exists()
    assert [path for path in alive if not path.exists()] == []
    assert everything(store.local) - set(alive) == before
    assert {key: recorded(store, key).attempt for key in keys} == attempts


def test_what_is_left_of_a_trial_without_a_record_goes_but_its_checkpoint_stays(
    tmp_path: Path,
) -> None:
    store, key = Store(tmp_path), "ab" * 16
    store.write_checkpoint(key, {"epoch": 3})
    orphan = tmp_path / "records" / key / DEAD / "predictions.npz"
    orphan.parent.mkdir()
    orphan.write_bytes(b"of an attempt that was killed before its record")
    store.clear_trial(key, None)
    assert not orphan.parent.exists()
    assert store.checkpoint(key) == {"epoch": 3}


def test_a_record_that_a_process_filed_before_it_died_keeps_its_files(tmp_path: Path) -> None:
    store, key = Store(tmp_path), "ab" * 16
    child = FORK.Process(target=store.file_record, args=(key, outcome(), {"a": b"1"}))
    child.start()
    child.join()
    # As seen by somebody who had looked for the record just before it came.
    store.clear_trial(key, None)
    record = recorded(store, key)
    assert store.intact(record)
    assert store.file(record, "a") == b"1"


def everything(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}
