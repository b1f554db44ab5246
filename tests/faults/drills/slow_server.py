"""An MLflow server that takes two seconds for every answer gets everything all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.faults.drills.launching import run_to_end
from tests.faults.drills.outcome import Outcome, Setting, judged
from tests.faults.kit import Scene, free_port, start_server, stop_server
from tests.faults.leftovers import short_directory
from tests.faults.outages import CURVE, SPEC
from tests.sweeps.tracking.between import Between

TRIALS = 3
SECONDS = 2.0


def slow_server(setting: Setting) -> Iterator[Outcome]:
    """One sweep, left alone until it has published everything."""
    return judged(f"MLflow that answers in {SECONDS:g} s", setting.directory / "slow", _publish)


def _publish(place: Path) -> str:
    port = free_port()
    (place / "server").mkdir()
    server = start_server(place / "server", port)
    between = Between(port, seconds=SECONDS)
    between.turn("slow")
    spec = SPEC.replace("TRIALS", str(TRIALS - 1))
    scene = Scene(place / "sweep", spec, tracking=between.uri, temporary=short_directory())
    try:
        launch = run_to_end(scene)
        assert f"waiting for {between.uri}: " in launch.said, launch.said[-2000:]
        assert "could not be reached" not in launch.said, launch.said[-2000:]
        asked = between.asked
        between.turn("fair")
        scene.assert_exact(TRIALS, CURVE, {"FINISHED"})
        return f"all of {TRIALS} trials published, with {asked} requests"
    finally:
        scene.trace.remove()
        between.close()
        stop_server(server)
