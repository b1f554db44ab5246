"""Machines with addresses of their own: one is killed in mid-sweep, another's cable is pulled."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cluster.hosts import Host, network
from tests.cluster.rays import SOON, rays
from tests.faults.kit import MODULE, Scene, retrained
from tests.waiting import output_of, wait_for

pytestmark = pytest.mark.slow

EPOCHS = 50
# No retries: only a process that died by itself would use them up.
SPEC = f"""\
datasets: [{{name: table, path: rows.csv, target: kind}}]
model: {{name: mlp, widths: [8]}}
methods:
  slow:
    method: "paced:Halting"
    lr: {{loguniform: [0.01, 0.1]}}
    weight_decay: 0
    log: LOG
training: {{epochs: {EPOCHS}, batch_size: full, evaluate_every: 10}}
search: {{trials: 6, sampler: random}}
confirm_seeds: 2
calibrators: []
retries: 0
"""
# A process waits in the middle of its first trial and of its second, until it may go on.
HALTING_MODULE = f"""{MODULE}
class Halting(Paced):
    trials = []

    def loss(self, output, labels, numbers):
        found = super().loss(output, labels, numbers)
        if self.hyperparameters.lr not in Halting.trials:
            Halting.trials.append(self.hyperparameters.lr)
        sign = f"{{self.hyperparameters.log}}.{{len(Halting.trials)}}"
        while numbers["progress"] >= 0.5 and len(Halting.trials) < 3 and not os.path.exists(sign):
            time.sleep(0.05)
        return found
"""


def table(path: Path, rows: int = 300) -> None:
    """A small file of rows that only the driver's side reads."""
    lines = [f"{i % 17},{(i * 7) % 23},{'ab'[(i % 17 + i % 3) % 2]}" for i in range(rows)]
    path.write_text("\n".join(["x,y,kind", *lines]) + "\n")


def test_a_sweep_outlives_a_killed_machine_and_a_cut_cable(tmp_path: Path) -> None:
    log = tmp_path / "steps.log"
    spec = SPEC.replace("LOG", str(log))
    scene = Scene(tmp_path / "driver", spec, name="nodes", module=HALTING_MODULE, database=True)
    table(scene.directory / "rows.csv")
    with network(3) as hosts, rays(hosts, **SOON) as cluster:
        cluster.add_head("--num-cpus", "1")
        cluster.add(hosts[1:], "--num-cpus", "1")
        process = cluster.calsweep(
            *("run", "spec.yaml", "--address", cluster.address, "--store", str(scene.root)),
            cwd=scene.directory,
        )
        # Away with what only the driver's machine has: workers must get it otherwise.
        assert process.stdout is not None
        assert process.stdout.readline().startswith("nodes · 1 dataset")
        (scene.directory / "rows.csv").rename(scene.directory / "away.csv")
        wait_for(lambda: all(_halfway(log, host) for host in hosts), process)
        (scene.directory / "paced.py").rename(scene.directory / "away.txt")
        (killed,) = _halfway(log, hosts[1])
        hosts[1].kill()
        Path(f"{log}.1").touch()
        wait_for(lambda: all(len(_halfway(log, host)) == 2 for host in (hosts[0], hosts[2])))
        before = scene.attempts()
        # A machine that is cut off does not reach the store either, which is a disk here.
        for pid in hosts[2].pids():
            os.kill(pid, signal.SIGSTOP)
        hosts[2].cut()
        cut = _halfway(log, hosts[2])[1]
        Path(f"{log}.2").touch()
        out, err = output_of(process)
    assert process.returncode == 0, out + err
    assert "3 nodes, 3 CPUs, 0 GPUs: 3 trials at once" in out
    assert "8 of 8 done, 8 trained now, 0 failed" in out
    scene.assert_exact(8, list(range(10, EPOCHS + 1, 10)), {"FINISHED"})
    assert len(before) == 2
    assert set(before.items()) <= set(scene.attempts().items())
    records = scene.records()
    assert {records[key].resources["node"] for key in before} == {
        *(hosts[0].address, hosts[2].address)
    }
    after = [record for key, record in records.items() if key not in before]
    assert {record.resources["node"] for record in after} == {hosts[0].address}
    # A trial that went on elsewhere has the result of a calm machine.
    (scene.directory / "away.csv").rename(scene.directory / "rows.csv")
    (scene.directory / "paced.py").write_text(HALTING_MODULE)
    search = {r.config["hyperparameters"]["lr"]: r for r in after if r.config["phase"] == "search"}
    for moved in (search[killed], search[cut]):
        assert retrained(moved, scene).curve == moved.curve


def _halfway(log: Path, host: Host) -> list[float]:
    """The learning rates of the trials that have come to their middle on a host, in order."""
    lines = log.read_text().splitlines() if log.exists() else []
    here = set(map(str, host.pids()))
    steps = [line.split() for line in lines]
    found = [float(lr) for lr, progress, pid in steps if pid in here and float(progress) >= 0.5]
    return list(dict.fromkeys(found))
