"""Ray is lost under a running sweep: the command says so and ends, and the next one goes on."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.faults.kit import Scene, wait_for
from tests.faults.leftovers import Trace

pytestmark = pytest.mark.slow

EPOCHS, EVERY = 12, 3
SPEC = f"""\
datasets: [blobs-1.7]
model: {{name: mlp, widths: [8]}}
methods: {{paced: {{method: "paced:Paced", lr: [0.01, 0.03, 0.1], pause: 0.1, weight_decay: 0}}}}
training: {{epochs: {EPOCHS}, batch_size: full, evaluate_every: {EVERY}}}
search: {{sampler: grid}}
confirm_seeds: 2
calibrators: [temperature]
resources: {{cpu: 2}}
"""


def named(process: psutil.Process, name: str) -> psutil.Process:
    """A sweep's server of this name."""
    return next(child for child in process.children(recursive=True) if child.name() == name)


def test_a_lost_ray_ends_the_command_with_the_reason_and_the_next_goes_on(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path / "scene", SPEC)
    before: dict[str, str] = {}
    for lost in ("raylet", "gcs_server"):
        process = scene.start()
        wait_for(lambda: scene.attempts().keys() - before.keys(), process)  # noqa: B023
        named(psutil.Process(process.pid), lost).kill()
        out, err = process.communicate()
        assert process.returncode == 1, err
        assert err.count("\n") == 1, err
        assert f"{lost} on this machine was ended by signal SIGKILL" in err
        assert "Raylet" not in out
        Trace(scene.directory, pids=[process.pid]).assert_nothing_left()
        assert before.items() <= scene.attempts().items()
        before = scene.attempts()
    done = scene.run()
    assert done.returncode == 0, done.stderr
    assert before.items() <= scene.attempts().items()
    scene.assert_exact(3 + 2, list(range(EVERY, EPOCHS + 1, EVERY)), {"FINISHED"})
