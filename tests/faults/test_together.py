"""Three sweeps begin at once on an empty store and an empty database, sharing one Ray."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.rays import ATTEMPTS, PATIENT
from tests.faults.kit import Scene
from tests.ports import free_port
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

SPEC = """\
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods:
  standard: {lr: LR, weight_decay: 0}
  shared: {method: standard, lr: [0.02, 0.05], weight_decay: 0}
training: {epochs: 10, batch_size: full, evaluate_every: 5}
search: {sampler: grid}
confirm_seeds: 1
calibrators: []
resources: {cpu: 2}
"""
TOGETHER = 3


@pytest.fixture
def ray_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A Ray head for all of them."""
    for name, value in PATIENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    port, head = started_head(tmp_path / "head.log")
    yield f"127.0.0.1:{port}"
    head.terminate()
    head.wait()


def started_head(log: Path) -> tuple[int, subprocess.Popen[bytes]]:
    """A port and the head that listens there; begun anew if Ray was too slow for itself."""
    for _ in range(ATTEMPTS):
        port = free_port()
        command = ["ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
        command += ["--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"]
        command += ["--node-ip-address=127.0.0.1"]
        with log.open("w") as said:
            head = subprocess.Popen([sys.executable, "-m", *command], stdout=said, stderr=said)

        def settled(head: subprocess.Popen[bytes] = head) -> bool:
            return head.poll() is not None or "Ray runtime started" in log.read_text()

        wait_for(settled)
        if head.poll() is None:
            return port, head
    raise AssertionError(log.read_text())


def test_three_processes_at_once_on_nothing(tmp_path: Path, ray_address: str) -> None:
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
    # Each has two searches of two points, the shared one's trials are in all of them.
    assert len(scenes[0].records()) == TOGETHER * 3 + 3
    for scene in scenes:
        trials = scene.trials()
        assert len(trials) == len({run.data.tags["calsweep.key"] for run in trials}) == 6
        assert {run.info.status for run in scene.runs()} == {"FINISHED"}
        assert all(scene.curve_steps(run) == [5, 10] for run in trials)
    # And a finished sweep trains and publishes nothing again.
    last, attempts = scenes[-1], scenes[-1].attempts()
    runs = {run.info.run_id for run in last.runs()}
    again = last.run("--address", ray_address)
    assert (again.returncode, again.stderr) == (0, "")
    assert "0 trained now" in again.stdout
    assert last.attempts() == attempts
    assert {run.info.run_id for run in last.runs()} == runs
    assert not (tmp_path / "store" / "damaged").exists()
