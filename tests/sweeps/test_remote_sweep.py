"""A whole sweep whose store is a bucket: killed, continued, repeated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from mlflow.tracking import MlflowClient

from sweeps.store import Store
from tests.faults.kit import kill, wait_for
from tests.sweeps.conftest import Raw

SPEC = """\
name: remote
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods: {standard: {lr: [0.01, 0.03, 0.1], weight_decay: 0}}
training: {epochs: 6, batch_size: full, evaluate_every: 3}
search: {sampler: grid}
confirm_seeds: 1
post_hoc: [temperature]
"""
TRIALS = 3 + 1


def start(directory: Path, root: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sweeps.cli", "run", "remote.yaml", "--store", root],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "140"},
    )


def test_a_sweep_in_a_bucket_survives_its_driver(s3_root: str, tmp_path: Path) -> None:
    (tmp_path / "remote.yaml").write_text(SPEC)
    raw = Raw(s3_root)

    def records() -> list[str]:
        return [name for name in raw.names() if name.endswith("record.json")]

    process = start(tmp_path, s3_root)
    wait_for(records, process)
    kill(process)
    before = {name: raw.read(name) for name in records()}
    process = start(tmp_path, s3_root)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert f"{TRIALS} of {TRIALS} done" in out
    assert len(records()) == TRIALS
    assert {name: raw.read(name) for name in before} == before
    assert {"remote/report.html", "remote/optuna.log"} <= set(raw.names())
    assert not any(name.endswith((".lock", "live.json")) for name in raw.names())
    for name in records():
        key = name.split("/")[1]
        assert json.loads(raw.read(name))["status"] == "done"
        assert Store(s3_root).predictions(key)
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("remote")
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == TRIALS + 1
    assert {run.info.status for run in runs} == {"FINISHED"}
