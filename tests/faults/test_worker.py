"""A worker dies in mid-epoch, then the driver: the trial goes on from its checkpoints."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.faults.kit import MODULE, Scene, kill, retrained, wait_for, workers

pytestmark = pytest.mark.slow

EPOCHS = 200
SPEC = f"""\
datasets: [blobs-1.7]
model: {{name: mlp, widths: [8]}}
methods:
  noisy:
    {{method: "paced:Noisy", lr: 0.05, weight_decay: 0, pause: 0.1, label_noise: 0.1, log: LOG}}
training: {{epochs: {EPOCHS}, batch_size: full, evaluate_every: 10}}
confirm_seeds: 1
calibrators: []
"""
NOISY = """

class NoisyHyperparameters(PacedHyperparameters):
    label_noise: Annotated[float, Field(ge=0, le=1)] = 0.0


class Noisy(Paced):
    Hyperparameters = NoisyHyperparameters

    def loss(self, output, labels, numbers):
        turned = torch.rand(len(labels)) < self.hyperparameters.label_noise
        return super().loss(output, torch.where(turned, labels.roll(1), labels), numbers)
"""


def test_a_killed_process_costs_the_epochs_since_the_checkpoint_and_nothing_else(
    tmp_path: Path,
) -> None:
    log = tmp_path / "steps.log"
    scene = Scene(tmp_path, SPEC.replace("LOG", str(log)), module=MODULE + NOISY, database=True)
    process = scene.start()
    wait_for(lambda: list((scene.root / "records").glob("*/live.json")), process)
    seen = len(log.read_text().splitlines())
    # Live curves: the run is there with its first epochs long before the trial ends.
    (run,) = wait_for(scene.trials, process)
    early = wait_for(lambda: scene.curve_steps(run), process)
    assert run.info.status == "RUNNING"
    assert 0 < len(early) < EPOCHS / 10
    (victim,) = workers(process)
    os.kill(victim.pid, signal.SIGKILL)
    # Once more, after the next checkpoint: the driver this time, and it is run again.
    wait_for(lambda: scene.curve_steps(run) > early, process)
    kill(process)
    done = scene.run()
    assert done.returncode == 0, done.stderr
    assert "1 of 1 done" in done.stdout
    scene.assert_exact(1, list(range(10, EPOCHS + 1, 10)), {"FINISHED"})
    (after,) = scene.trials()
    assert after.info.run_id == run.info.run_id
    steps = [line.split() for line in log.read_text().splitlines()]
    assert len({progress for _, progress, _ in steps}) == EPOCHS
    assert len({pid for _, _, pid in steps}) == 3
    # Twice it went on from a checkpoint, not from the start: that would have repeated more.
    assert len(steps) - EPOCHS < 2 * seen
    # And the result is that of an undisturbed training, whatever generator a method draws from.
    (record,) = scene.records().values()
    assert retrained(record, scene, pause=0.0, log="").curve == record.curve
