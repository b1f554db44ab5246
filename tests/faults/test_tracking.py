"""The MLflow server goes away, for a while or for good: the sweep does not notice."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.faults.kit import Scene, retrained, start_server, stop_server, wait_for

SPEC = """\
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods:
  paced: {method: "paced:Paced", lr: {loguniform: [0.01, 0.1]}, pause: 0.1, weight_decay: 0}
training: {epochs: 20, batch_size: full, evaluate_every: 5}
search: {sampler: random, trials: 90}
confirm_seeds: 1
post_hoc: []
"""
CURVE = [5, 10, 15, 20]
SHORT, LONG = 20.0, 60.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.timeout(600)
def test_a_server_away_for_20_and_60_seconds_is_caught_up_with(tmp_path: Path) -> None:
    port = free_port()
    scene = Scene(tmp_path / "sweep", SPEC, tracking=f"http://127.0.0.1:{port}")
    (tmp_path / "server").mkdir()
    server = start_server(tmp_path / "server", port)
    process = scene.start()
    try:
        for outage in (SHORT, LONG):
            wait_for(scene.trials, process)
            before = len(scene.records())
            stop_server(server)
            time.sleep(outage)
            landed = len(scene.records()) - before
            # A trial takes two seconds, and two run at once: most of the outage was used.
            assert landed >= outage / 4
            server = start_server(tmp_path / "server", port)
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert "could not be reached" not in out
        scene.assert_exact(91, CURVE, {"FINISHED"})
    finally:
        process.kill()
        stop_server(server)


def test_a_server_gone_for_good_costs_nothing_and_sync_publishes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    spec = SPEC.replace("trials: 90", "trials: 5").replace("pause: 0.1", "pause: 0.03")
    scene = Scene(tmp_path / "sweep", spec, tracking=f"http://127.0.0.1:{port}")
    (tmp_path / "server").mkdir()
    server = start_server(tmp_path / "server", port)
    process = scene.start()
    wait_for(lambda: len(scene.records()) >= 2, process)
    stop_server(server)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "calsweep sync spec.yaml" in out
    assert "Traceback" not in out + err
    assert len(scene.records()) == 6
    monkeypatch.syspath_prepend(scene.directory)
    for record in scene.records().values():
        assert retrained(record, tmp_path / "calm", pause=0.0)["curve"] == record["curve"]
    refused = scene.run(command="sync")
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    server = start_server(tmp_path / "server", port)
    try:
        synced = scene.run(command="sync")
        assert synced.returncode == 0, synced.stderr
        scene.assert_exact(6, CURVE, {"FINISHED"})
        assert scene.run(command="sync").stdout.startswith("0 trials")
    finally:
        stop_server(server)
