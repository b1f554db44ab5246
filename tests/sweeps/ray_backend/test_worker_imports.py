"""A worker starts in seconds: it imports what it trains with, and nothing of the driver's."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

from sweeps.engine.plan import Plan
from sweeps.ray_backend.assignment import AssignedTrial, Assignment, Terms
from sweeps.spec import load_spec
from sweeps.store import Store

SPEC = """\
name: light
datasets: [blobs-1.7]
model: {name: mlp, widths: [16]}
methods: {standard: {weight_decay: 0}}
training: {epochs: 2}
search: {sampler: random, trials: 2}
cohort: 2
"""
WORKER = """
import pickle, sys
from pathlib import Path
from sweeps.ray_backend.assignment import ASSIGNMENT
from sweeps.ray_backend.trainable import CalibrationTrial
worker = CalibrationTrial({ASSIGNMENT: pickle.loads(Path("assignment").read_bytes())})
while not (result := worker.step())["done"]:
    pass
sys.stderr.write("\\n" + " ".join(sys.modules))
"""


def test_a_worker_imports_no_tracking_search_plots_or_compiler(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    plan = Plan(load_spec(tmp_path / "spec.yaml"), Store(tmp_path / "runs"))
    plan.replay()
    members = [
        AssignedTrial(trial.config, trial.study_id, ()) for trial in plan.next_cohort(workers=1)
    ]
    assigned = Assignment(tuple(members), Terms.of(plan.spec, plan.store.root))
    (tmp_path / "assignment").write_bytes(pickle.dumps(assigned))
    command = [sys.executable, "-c", WORKER]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(plan.store.trial_keys()) == 2
    modules = done.stderr.splitlines()[-1].split()
    found = {name.partition(".")[0] for name in modules}
    assert {"calibration", "ray", "torch"} <= found
    assert found.isdisjoint({"matplotlib", "mlflow", "optuna", "sklearn"})
    assert "torch._dynamo" not in modules  # any TorchDispatchMode imports it unless told not to
