"""Sweeps as jobs of a real Slurm: preempted, out of time, their node lost, stopped, and counted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.slurms import CPUS, Slurm, slurm
from tests.cluster.test_node_loss import table
from tests.faults.kit import MODULE, Scene
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

Halted = set[tuple[float, str]]
EPOCHS = 20
RATES = [0.01, 0.02, 0.03, 0.04, 0.05]
SPEC = f"""\
datasets: [{{name: table, path: rows.csv, target: kind}}]
model: {{name: mlp, widths: [8]}}
methods:
  gated:
    method: "paced:Gated"
    lr: {RATES}
    weight_decay: 0
    log: LOG
training: {{epochs: {EPOCHS}, batch_size: full, evaluate_every: 10}}
search: {{sampler: grid}}
confirm_seeds: 1
calibrators: []
retries: 0
"""
# Every trial waits in its middle until its learning rate may pass.
GATED = f"""{MODULE}
class Gated(Paced):
    def loss(self, output, labels, numbers):
        found = super().loss(output, labels, numbers)
        gate = f"{{self.hyperparameters.log}}.{{self.hyperparameters.lr}}"
        while numbers["progress"] >= 0.5 and not os.path.exists(gate):
            time.sleep(0.05)
        return found
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm() as made:
        yield made


def scene_in(directory: Path, name: str) -> Scene:
    spec = SPEC.replace("LOG", str(directory / "steps.log"))
    made = Scene(directory / "project", spec, name=name, module=GATED)
    table(made.directory / "rows.csv")
    return made


def pass_on(scene: Scene, rate: float) -> None:
    """Let the trials of a learning rate go on, and wait until the search has one more record."""
    before = len(scene.records())
    (scene.directory.parent / f"steps.log.{rate}").touch()
    wait_for(lambda: len(scene.records()) > before)


def halted(scene: Scene) -> Halted:
    """The trials, by learning rate and process, that have come to their gate."""
    log = scene.directory.parent / "steps.log"
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return {(float(lr), pid) for lr, progress, pid in lines if float(progress) >= 0.5}


def at_gates(cluster: Slurm, scene: Scene, job: str, before: Halted, trials: int = CPUS) -> None:
    """Wait until a job that has started again has brought new processes to their gates."""
    cluster.started(job)

    def come() -> bool:
        assert cluster.job(job)["JobState"] == "RUNNING", output(scene, job)
        return len(halted(scene) - before) >= trials

    wait_for(come)


def output(scene: Scene, job: str) -> str:
    """What a job has printed."""
    return (scene.directory / f"calsweep-{scene.name}-{job}.out").read_text()


def calsweep(cluster: Slurm, scene: Scene, *words: str) -> str:
    """What the command, typed on the login node, says if it succeeds."""
    done = cluster.do("calsweep", *words, cwd=scene.directory)
    assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()
    return done.stdout


def submitted(cluster: Slurm, scene: Scene, *options: str) -> str:
    said = calsweep(cluster, scene, "submit", "spec.yaml", "--slurm", "--cpus", str(CPUS), *options)
    assert "submitted Slurm job" in said, said
    return said.partition("submitted Slurm job ")[2].split()[0]


def occupied(cluster: Slurm) -> str:
    """A job that has both nodes to itself, whoever was there before."""
    urgent = cluster.tell(
        *("sbatch", "--parsable", "--partition=urgent", "--nodes=2", "--exclusive"),
        *("--output=/dev/null", "--wrap", "exec sleep 3600"),
    ).strip()
    cluster.wait_for(urgent, "RUNNING")
    return urgent


@contextmanager
def preempted(cluster: Slurm, job: str) -> Iterator[None]:
    """While this lasts, a more urgent job has taken the job's nodes."""
    urgent = occupied(cluster)
    about = cluster.job(job)
    assert (about["JobState"], about["Restarts"]) == ("PENDING", "1")
    yield
    cluster.tell("scancel", urgent)
    cluster.wait_for(urgent, "CANCELLED")


def test_a_sweep_outlives_preemption_time_limit_lost_node_and_stop(
    cluster: Slurm, tmp_path: Path
) -> None:
    scene = scene_in(tmp_path, "queued")
    job = submitted(cluster, scene)
    at_gates(cluster, scene, job, set())
    said = calsweep(cluster, scene, "status", "queued")
    assert f"Slurm job {job}: running on n" in said
    said = calsweep(cluster, scene, "submit", "spec.yaml", "--slurm")
    assert f"queued is already submitted: Slurm job {job}" in said

    # Preempted: Slurm ends it and puts it back into the queue.
    pass_on(scene, RATES[0])
    before = halted(scene)
    with preempted(cluster, job):
        assert f"Slurm job {job}: pending" in calsweep(cluster, scene, "status", "queued")

    # Out of time: the script ends the sweep and asks for another turn.
    at_gates(cluster, scene, job, before)
    pass_on(scene, RATES[1])
    before = halted(scene)
    cluster.shorten(job)
    wait_for(lambda: cluster.job(job)["Restarts"] == "2")

    # The node is lost with everything on it.
    at_gates(cluster, scene, job, before)
    pass_on(scene, RATES[2])
    before = halted(scene)
    node = cluster.job(job)["NodeList"]
    host = next(host for host in cluster.nodes if cluster.name(host) == node)
    host.kill()
    cluster.tell("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")
    wait_for(lambda: cluster.job(job)["Restarts"] == "3")

    # Stopped: it does not come back.
    at_gates(cluster, scene, job, before)
    assert cluster.job(job)["NodeList"] != node
    pass_on(scene, RATES[3])
    said = calsweep(cluster, scene, "stop", "queued")
    assert f"stopped Slurm job {job}; nothing is lost" in said
    about = cluster.job(job)
    assert (about["JobState"], about["Restarts"]) == ("CANCELLED", "3")
    kept = scene.attempts()
    assert len(kept) == 4
    assert {run.info.status for run in scene.runs()} == {"FINISHED", "KILLED"}

    (tmp_path / f"steps.log.{RATES[4]}").touch()
    said = calsweep(cluster, scene, "submit", "spec.yaml", "--slurm", "--wait", "--cpus", "1")
    assert "6 of 6 done, 2 trained now, 0 failed" in said
    assert set(kept.items()) <= set(scene.attempts().items())
    scene.assert_exact(6, [10, 20], {"FINISHED"})
    cluster.start_node(host)


def test_several_nodes_work_on_one_sweep_and_come_back_after_preemption(
    cluster: Slurm, tmp_path: Path
) -> None:
    scene = scene_in(tmp_path, "wide")
    scene.write(scene.spec + "resources: {cpu: 1, gpu: 0.5, device: cpu}\n")
    job = submitted(cluster, scene, "--nodes", "2", "--gpus", "1")
    at_gates(cluster, scene, job, set(), trials=4)  # two on each node
    pass_on(scene, RATES[0])
    with preempted(cluster, job):
        kept = scene.attempts()
        for rate in RATES:
            (tmp_path / f"steps.log.{rate}").touch()
    cluster.started(job)
    about = cluster.wait_for(job, "COMPLETED", "FAILED", "CANCELLED")
    said = output(scene, job)
    assert (about["JobState"], about["Restarts"]) == ("COMPLETED", "1"), said
    # What is allocated, not what the machines have; the second may have joined a little later.
    seen = re.findall(r"(\d) nodes?, (\d) CPUs?, (\d) GPUs?: (\d) trials at once", said)
    assert len(seen) == 2, said
    assert set(seen) <= {("1", "2", "1", "2"), ("2", "4", "2", "4")}
    assert set(kept.items()) <= set(scene.attempts().items())
    nodes = {record.resources["node"] for record in scene.records().values()}
    assert nodes <= {host.address for host in cluster.nodes}
    scene.assert_exact(6, [10, 20], {"FINISHED"})


def test_bad_input_is_no_reason_to_come_back(cluster: Slurm, tmp_path: Path) -> None:
    scene = scene_in(tmp_path, "changed")
    urgent = occupied(cluster)
    job = submitted(cluster, scene)
    said = calsweep(cluster, scene, "status", "changed")
    assert f"changed: not started; Slurm job {job}: pending" in said
    scene.write(scene.spec.replace("confirm_seeds: 1", "confirm_seeds: 2"))
    cluster.tell("scancel", urgent)
    about = cluster.wait_for(job, "FAILED", "COMPLETED", "CANCELLED")
    assert (about["JobState"], about["ExitCode"], about["Restarts"]) == ("FAILED", "2:0", "0")
    assert "spec.yaml has changed since it was submitted" in output(scene, job)
    assert scene.records() == {}
