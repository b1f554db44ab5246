"""The tracking database: there whole or not at all, whoever builds it and dies."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from mlflow.tracking import MlflowClient

from sweeps.plan import Plan
from sweeps.spec import load_spec
from sweeps.store import Store
from sweeps.tracking import Publisher
from sweeps.trial import TrialRun

BUILD = "import sys; from sweeps.tracking import create_database; create_database(sys.argv[1])"


def build(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, f"sqlite:///{path}"], stderr=subprocess.DEVNULL
    )


def usable(path: Path) -> bool:
    client = MlflowClient(f"sqlite:///{path}")
    return client.get_experiment(client.create_experiment("x")).name == "x"


def test_several_processes_build_one_usable_database(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    builders = [build(path) for _ in range(4)]
    assert [builder.wait() for builder in builders] == [0] * 4
    assert usable(path)
    assert [p.name for p in tmp_path.iterdir()] == ["mlflow.db"]


def test_a_builder_killed_in_its_migrations_leaves_no_broken_database(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    builder = build(path)
    # The draft grows while its migrations run: kill it as soon as it has some of its tables.
    while not any(p.stat().st_size > 0 for p in tmp_path.glob(".mlflow-*/mlflow.db")):
        assert builder.poll() is None
        time.sleep(0.01)
    builder.kill()
    builder.wait()
    assert not path.exists()
    assert build(path).wait() == 0
    assert usable(path)


def test_a_run_can_be_completed_under_another_name_of_its_row(tmp_path: Path) -> None:
    """A row renamed in the spec keeps its records; later evaluations join the runs they belong to.

    MLflow refuses to change a parameter, and the run would stay unpublished for ever.
    """
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    store = Store(tmp_path / "runs")
    spec = tmp_path / "spec.yaml"
    keys = set()
    for row, maps in (("old name", ["identity"]), ("new name", ["identity", "temperature"])):
        spec.write_text(
            "name: s\ndatasets: [blobs-1.7]\nmodel: {name: mlp, widths: [4]}\n"
            f"methods:\n  {row}: {{method: standard, lr: 0.1, weight_decay: 0.0}}\n"
            "training: {epochs: 2, batch_size: full}\npost_hoc: [temperature]\nconfirm_seeds: 1\n"
        )
        plan = Plan(load_spec(spec), store)
        (entry,) = plan.confirmed("blobs-1.7", row)
        keys.add(entry.key)
        evaluation = plan.spec.evaluation
        TrialRun(entry.config, store, maps=maps, evaluation=evaluation, device="cpu").advance(60)
        publisher = Publisher(uri, plan, store)
        publisher.publish(entry)
    assert len(keys) == 1
    runs = publisher.client.search_runs([publisher.experiment])
    (run,) = (r for r in runs if r.data.tags["calsweep.key"] in keys)
    assert run.info.status == "FINISHED"
    assert {"test/ece", "test/temperature/ece"} <= run.data.metrics.keys()
    assert run.data.params["training.stop_on"] == "nll"
    assert run.data.tags["calsweep.row"] == "new name"
