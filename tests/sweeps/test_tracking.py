"""The tracking database: there whole or not at all, whoever builds it and dies."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from mlflow.tracking import MlflowClient

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
