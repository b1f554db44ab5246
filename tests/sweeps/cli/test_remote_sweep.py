"""A whole sweep whose store is a bucket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from sweeps.store import Store
from tests.sweeps.conftest import Raw
from tests.tracked import put_database

pytestmark = pytest.mark.slow

SPEC = """\
name: remote
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods: {standard: {lr: [0.01, 0.03, 0.1], weight_decay: 0}}
training: {epochs: 6, batch_size: full, evaluate_every: 3}
search: {sampler: grid}
confirm_seeds: 1
calibrators: [temperature]
resources: {cpu: 2}
"""
TRIALS = 3 + 1


def test_a_sweep_can_live_in_a_bucket(s3_root: str, tmp_path: Path) -> None:
    (tmp_path / "remote.yaml").write_text(SPEC)
    put_database(tmp_path)
    raw = Raw(s3_root)
    done = subprocess.run(
        [sys.executable, "-m", "sweeps.cli", "run", "remote.yaml", "--store", s3_root],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "140"},
    )
    assert done.returncode == 0, done.stderr
    records = [name for name in raw.names() if name.endswith("record.json")]
    assert f"{TRIALS} of {TRIALS} done" in done.stdout
    assert len(records) == TRIALS
    assert {"remote/report.html", "remote/optuna.log"} <= set(raw.names())
    assert not any(name.endswith((".lock", "live.json")) for name in raw.names())
    store = Store(s3_root)
    for name in records:
        key = name.split("/")[1]
        assert json.loads(raw.read(name))["status"] == "done"
        assert store.predictions(store.record(key))
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("remote")
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == TRIALS + 1
    assert {run.info.status for run in runs} == {"FINISHED"}
