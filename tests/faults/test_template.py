"""Workers are forked from the driver's template: they train the same, and it may be lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.store import Store
from tests.faults.kit import MODULE
from tests.tracked import put_database

pytestmark = pytest.mark.slow

SPEC = """\
name: forked
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods: {telling: {method: "paced:Telling", lr: [0.01, 0.03, 0.1], weight_decay: 0}}
training: {epochs: 6, batch_size: full, evaluate_every: 3}
confirm_seeds: 1
calibrators: [temperature]
"""
# Writes down whose child it is; the first one takes the template with it, and then dies.
TELLING = """

class Telling(Paced):
    def loss(self, output, labels, numbers):
        with open(f"/proc/{os.getppid()}/cmdline") as parent, open("PARENTS", "a") as log:
            name = "template" if "driver.py" in parent.read() else "raylet"
            log.write(f"{os.getpid()} {name}\\n")
        if name == "template" and not os.path.exists("DEAD"):
            open("DEAD", "w").close()
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(output, labels, numbers)
"""
# Ray is started by the second sweep of a process without a template: a fork would not survive it.
DRIVER = """
import sweeps

for store in ("forked", "started"):
    sweeps.run("spec.yaml", store=store)
    open("PARENTS", "a").write("--\\n")
"""


def test_forked_workers_train_the_same_and_the_template_may_be_killed(tmp_path: Path) -> None:
    module = MODULE + TELLING.replace("PARENTS", str(tmp_path / "parents"))
    (tmp_path / "paced.py").write_text(module.replace("DEAD", str(tmp_path / "dead")))
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "driver.py").write_text(DRIVER.replace("PARENTS", str(tmp_path / "parents")))
    for name in ("forked", "started"):
        put_database(tmp_path / name)
    command = [sys.executable, "driver.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    forked, started, _ = (tmp_path / "parents").read_text().split("--\n")
    assert "template" in forked
    assert "raylet" in forked  # after the template was killed
    assert "template" not in started
    one, other = Store(tmp_path / "forked"), Store(tmp_path / "started")
    keys = one.trial_keys()
    assert len(keys) == 4
    assert sorted(other.trial_keys()) == sorted(keys)
    for key in keys:
        ours, theirs = one.record(key), other.record(key)
        assert ours is not None
        assert theirs is not None
        assert (ours.status, ours.curve) == (theirs.status, theirs.curve) == ("done", ours.curve)
