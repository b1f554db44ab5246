"""Machines with addresses of their own: one is killed in mid-sweep, another's cable is pulled."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.cluster.hosts import network
from tests.cluster.rays import rays
from tests.faults.kit import MODULE, Scene, retrained, wait_for

EPOCHS = 50
# No retries: only a process that died by itself would use them up.
SPEC = f"""\
datasets: [{{name: table, path: rows.csv, target: kind}}]
model: {{name: mlp, widths: [8]}}
methods:
  slow:
    method: "paced:Paced"
    lr: {{loguniform: [0.01, 0.1]}}
    weight_decay: 0
    pause: 0.1
    log: LOG
training: {{epochs: {EPOCHS}, batch_size: full, evaluate_every: 10}}
search: {{trials: 6, sampler: random}}
confirm_seeds: 2
post_hoc: []
retries: 0
"""


def table(path: Path, rows: int = 300) -> None:
    """A small file of rows that only the driver's side reads."""
    lines = [f"{i % 17},{(i * 7) % 23},{'ab'[(i % 17 + i % 3) % 2]}" for i in range(rows)]
    path.write_text("\n".join(["x,y,kind", *lines]) + "\n")


def test_a_sweep_outlives_a_killed_machine_and_a_cut_cable(tmp_path: Path) -> None:
    log = tmp_path / "steps.log"
    scene = Scene(tmp_path / "driver", SPEC.replace("LOG", str(log)), name="nodes")
    table(scene.directory / "rows.csv")
    with network(3) as hosts, rays(hosts) as cluster:
        for host in hosts:
            cluster.add(host, "--num-cpus", "1", *_dashboard(host is hosts[0]))
        process = cluster.calsweep(
            *("run", "spec.yaml", "--address", cluster.address, "--store", str(scene.root)),
            cwd=scene.directory,
        )
        # Away with what only the driver's machine has: workers must get it otherwise.
        assert process.stdout is not None
        assert process.stdout.readline().startswith("nodes · 1 dataset")
        (scene.directory / "rows.csv").rename(scene.directory / "away.csv")
        wait_for(lambda: len(_steps_by_pid(log)) == 3, process)
        (scene.directory / "paced.py").rename(scene.directory / "away.txt")
        before = scene.attempts()
        hosts[1].kill()
        wait_for(lambda: len(scene.records()) > len(before) + 1, process)
        hosts[2].cut()
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    assert "3 nodes, 3 CPUs, 0 GPUs: 3 trials at once" in out
    assert "8 of 8 done, 8 trained now, 0 failed" in out
    scene.assert_exact(8, list(range(10, EPOCHS + 1, 10)), {"FINISHED"})
    assert set(before.items()) <= set(scene.attempts().items())
    records = scene.records().values()
    assert hosts[0].address in {record["resources"]["node"] for record in records}
    assert len({record["resources"]["node"] for record in records}) > 1
    # A trial that went on elsewhere has two processes and the result of a calm machine.
    (scene.directory / "away.csv").rename(scene.directory / "rows.csv")
    (scene.directory / "paced.py").write_text(MODULE)
    processes = _pids_by_trial(log)
    moved = next(r for r in records if len(processes[r["config"]["hyperparameters"]["lr"]]) > 1)
    assert retrained(moved, scene, pause=0.0, log="")["curve"] == moved["curve"]


def _dashboard(head: bool) -> list[str]:
    return ["--include-dashboard", "false"] if head else []


def _steps(log: Path) -> list[tuple[float, float, str]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [(float(lr), float(at), pid) for lr, at, pid in (line.split() for line in lines)]


def _steps_by_pid(log: Path) -> set[str]:
    return {pid for _, _, pid in _steps(log)}


def _pids_by_trial(log: Path) -> dict[float, set[str]]:
    found: dict[float, set[str]] = defaultdict(set)
    for lr, _, pid in _steps(log):
        found[lr].add(pid)
    return found
