"""The MLflow server goes away, for a while or for good: the sweep does not notice."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.faults.kit import Scene, free_port, retrained, start_server, stop_server, wait_for
from tests.faults.outages import CURVE, OUTAGES, SPEC, TRIALS, Outages
from tests.sweeps.tracking.between import Between

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


def test_who_waits_for_a_slow_server_is_told_so_and_may_interrupt_at_no_loss(
    tmp_path: Path,
) -> None:
    """It takes two seconds for an answer; the drill ``slow-server`` waits until it has them all."""
    port = free_port()
    (tmp_path / "server").mkdir()
    server = start_server(tmp_path / "server", port)
    between = Between(port, seconds=2.0)
    between.turn("slow")
    spec = SPEC.replace("{loguniform: [0.01, 0.1]}", "0.05").replace("TRIALS", "1")
    scene = Scene(tmp_path / "sweep", spec, tracking=between.uri)
    try:
        process = scene.start()
        said = line_with("waiting for", process)
        assert f"{between.uri}: " in said
        assert "left to publish; interrupting loses nothing" in said
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        assert process.returncode == 130, err
        assert "Traceback" not in err
        between.turn("fair")
        before = scene.attempts()
        done = scene.run()
        assert done.returncode == 0, done.stderr
        assert scene.attempts() == before
        scene.assert_exact(1, CURVE, {"FINISHED"})
    finally:
        between.close()
        stop_server(server)


def line_with(words: str, process: subprocess.Popen[str]) -> str:
    """The first line of a command's output with these words."""
    assert process.stdout is not None
    said = next((line for line in process.stdout if words in line), None)
    assert said is not None, process.communicate()
    return said


def test_a_server_away_for_20_and_60_seconds_is_caught_up_with(outages: Outages) -> None:
    ended = outages.result()
    assert ended.code == 0, ended.err
    assert "could not be reached" not in ended.out
    # A trial takes six seconds, and two run at once: trials went on landing.
    assert [n >= away / 10 for n, away in zip(ended.landed, OUTAGES, strict=True)] == [True, True]
    ended.scene.assert_exact(TRIALS + 1, CURVE, {"FINISHED"})
