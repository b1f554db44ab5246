"""A running cluster's head dies: the command ends by itself, and the sweep continues."""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.cluster.rays import PATIENT
from tests.faults.kit import Scene
from tests.faults.test_driver import LOST_SECONDS
from tests.faults.test_together import started_head
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

SPEC = """\
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods:
  paced: {method: "paced:Paced", lr: [0.01, 0.03, 0.1, 0.3], pause: 0.1, weight_decay: 0}
training: {epochs: 20, batch_size: full, evaluate_every: 5}
search: {sampler: grid}
confirm_seeds: 1
calibrators: []
"""
TRIALS = 4 + 1


def end(head: subprocess.Popen[bytes]) -> None:
    """Kill a head with all that it has started."""
    family = psutil.Process(head.pid).children(recursive=True)
    head.kill()
    head.wait()
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has followed the head
            process.kill()
    psutil.wait_procs(family)


def test_a_head_that_dies_ends_the_command_with_the_reason_and_the_sweep_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in PATIENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    scene = Scene(tmp_path / "sweep", SPEC, database=True)
    port, head = started_head(tmp_path / "head.log")
    try:
        process = scene.start("--address", f"127.0.0.1:{port}")
        wait_for(scene.records, process)
    finally:
        end(head)
    _, err = process.communicate(timeout=LOST_SECONDS)
    assert process.returncode == 1, err
    assert err.count("\n") == 1, err
    # The driver's own raylet is the head's: either may be missed first.
    assert re.search(r"(head|driver's machine) at \S+ has not answered for \d+ s", err), err
    before = scene.attempts()
    assert 1 <= len(before) < TRIALS
    scene.hurry()
    done = scene.run()  # where it goes on does not matter: on a Ray of its own it begins sooner
    assert done.returncode == 0, done.stderr
    assert before.items() <= scene.attempts().items()
    scene.assert_exact(TRIALS, [5, 10, 15, 20], {"FINISHED"})
