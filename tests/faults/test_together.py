"""Eight sweeps begin at once on an empty store and an empty database, sharing one Ray."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.kit import Scene
from tests.faults.test_tracking import free_port

SPEC = """\
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods:
  standard: {lr: LR, weight_decay: 0}
  shared: {method: standard, lr: [0.02, 0.05], weight_decay: 0}
training: {epochs: 10, batch_size: full, evaluate_every: 5}
search: {sampler: grid}
confirm_seeds: 1
post_hoc: [temperature]
"""
TOGETHER = 8


@pytest.fixture
def ray_address() -> Iterator[str]:
    """A Ray head with eight CPUs of its own account."""
    port = free_port()
    command = ["ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
    command += ["--num-cpus=8", "--include-dashboard=false", "--disable-usage-stats"]
    head = subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield f"127.0.0.1:{port}"
    head.terminate()
    head.wait()


def test_eight_processes_at_once_on_nothing(tmp_path: Path, ray_address: str) -> None:
    store = str(tmp_path / "store")
    scenes = [
        Scene(
            tmp_path / f"s{i}",
            SPEC.replace("LR", f"[0.0{i + 1}1, 0.1{i + 1}]"),
            name=f"sweep{i}",
            store=store,
        )
        for i in range(TOGETHER)
    ]
    processes = [scene.start("--address", ray_address) for scene in scenes]
    ended = [process.communicate() for process in processes]
    assert [p.returncode for p in processes] == [0] * TOGETHER, ended
    # Each has two searches of two points, the shared one's trials are in all eight.
    assert len(scenes[0].records()) == TOGETHER * 3 + 3
    for scene in scenes:
        trials = scene.trials()
        assert len(trials) == len({run.data.tags["calsweep.key"] for run in trials}) == 6
        assert {run.info.status for run in scene.runs()} == {"FINISHED"}
        assert all(scene.curve_steps(run) == [5, 10] for run in trials)
    again = scenes[-1].run("--address", ray_address)
    assert "0 trained now" in again.stdout
    assert again.stderr == ""
    assert not (tmp_path / "store" / "damaged").exists()
