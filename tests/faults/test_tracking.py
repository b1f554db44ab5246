"""The MLflow server goes away, for a while or for good: the sweep does not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.kit import Scene, free_port, retrained, start_server, stop_server, wait_for
from tests.faults.outages import CURVE, OUTAGES, SPEC, TRIALS, Outages

pytestmark = pytest.mark.slow


def test_a_server_gone_for_good_costs_nothing_and_sync_publishes_later(tmp_path: Path) -> None:
    port = free_port()
    spec = SPEC.replace("TRIALS", "5").replace("pause: 0.1", "pause: 0.03")
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
    for record in scene.records().values():
        assert retrained(record, scene, pause=0.0).curve == record.curve
    refused = scene.run(command="sync")
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    server = start_server(tmp_path / "server", port)
    try:
        synced = scene.run(command="sync")
        assert synced.returncode == 0, synced.stderr
        scene.assert_exact(6, CURVE, {"FINISHED"})
    finally:
        stop_server(server)


def test_a_server_away_for_20_and_60_seconds_is_caught_up_with(outages: Outages) -> None:
    ended = outages.result()
    assert ended.code == 0, ended.err
    assert "could not be reached" not in ended.out
    # A trial takes six seconds, and two run at once: trials went on landing.
    assert [n >= away / 10 for n, away in zip(ended.landed, OUTAGES, strict=True)] == [True, True]
    ended.scene.assert_exact(TRIALS + 1, CURVE, {"FINISHED"})
