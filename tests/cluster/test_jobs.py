"""Sweeps through Ray's real Jobs API, with a token, on GPUs that only Ray believes in."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeps.cli.main import main
from tests.cluster.hosts import network
from tests.cluster.rays import Rays, rays
from tests.cluster.test_node_loss import table
from tests.executed import shown, unwrapped
from tests.faults.kit import Scene
from tests.pages import BLOCK, PAGES, example
from tests.ports import free_port
from tests.tracked import put_database
from tests.waiting import LIMIT, wait_for

pytestmark = pytest.mark.slow

EPOCHS = 30
SPEC = f"""\
datasets: [{{name: table, path: rows.csv, target: kind}}]
model: {{name: mlp, widths: [8]}}
methods:
  slow:
    method: "mine:Sharing"
    lr: {{loguniform: [0.01, 0.1]}}
    weight_decay: 0
    log: LOG
training: {{epochs: {EPOCHS}, batch_size: full, evaluate_every: 10}}
search: {{trials: 8, sampler: random}}
confirm_seeds: 1
calibrators: []
resources: {{cpu: 0.25, gpu: 0.5, device: cpu}}
"""
# A module that needs another one beside it, and says which GPU it was given. Trials wait until all
# that can run at once are there, and half of them once more in mid-training.
MINE = """
import os
import time

from paced import Paced


class Sharing(Paced):
    def loss(self, output, labels, numbers):
        with open(self.hyperparameters.log + ".gpu", "a") as log:
            words = (time.time(), os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
            log.write(" ".join(map(str, words)) + "\\\\n")
        self.wait_for(".all")
        if self.hyperparameters.lr > 0.03 and float(numbers["progress"]) > 0.5:
            self.wait_for(".go")
        return super().loss(output, labels, numbers)

    def wait_for(self, sign):
        while not os.path.exists(self.hyperparameters.log + sign):
            time.sleep(0.1)
""".replace("\\\\n", "\\n")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Rays]:
    with network(1) as hosts, rays(hosts) as made:
        made.add_head("--num-cpus", "2", "--num-gpus", "2", dashboard=True)
        yield made


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    directory = tmp_path_factory.mktemp("jobs")
    spec = SPEC.replace("LOG", str(directory / "steps.log"))
    made = Scene(directory / "project", spec, name="submitted", store="../runs")
    made.directory.joinpath("mine.py").write_text(MINE)
    table(made.directory / "rows.csv")
    # What must not travel: it is more than Ray takes.
    for name in (".git/objects", "data", "other_runs"):
        (made.directory / name).mkdir(parents=True)
        with (made.directory / name / "large.bin").open("wb") as large:
            large.truncate(200 * 2**20)
    return made


def calsweep(
    scene: Scene, cluster: Rays, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command on a machine that is not one of the cluster's."""
    return subprocess.run(
        [sys.executable, "-m", "sweeps.cli", *arguments, "--address", cluster.dashboard],
        cwd=scene.directory,
        env=env or cluster.environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def test_without_the_token_or_with_a_wrong_one_it_is_refused(cluster: Rays, scene: Scene) -> None:
    none = {k: v for k, v in cluster.environment.items() if not k.startswith("RAY_AUTH")}
    wrong = cluster.environment | {"RAY_AUTH_TOKEN": "0" * 64}
    for env, command in ((none, ("submit", "spec.yaml")), (wrong, ("stop", "submitted"))):
        done = calsweep(scene, cluster, *command, env=env | {"HOME": str(scene.directory)})
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert "token" in done.stderr
        assert "RAY_AUTH_TOKEN_PATH" in done.stderr


def test_a_sweep_is_submitted_stopped_and_taken_up_again(cluster: Rays, scene: Scene) -> None:
    runs = str(scene.root.resolve())
    submit = ("submit", "spec.yaml", "--store", runs)
    first = calsweep(scene, cluster, *submit)
    assert first.returncode == 0, first.stderr
    assert "submitted submitted-1" in first.stdout
    wait_for(lambda: len({pid for _, pid, _ in _at_work(scene)}) == 4)
    scene.directory.parent.joinpath("steps.log.all").touch()
    again = calsweep(scene, cluster, *submit, "--extend", "1")
    assert "submitted is already running as submitted-1" in again.stdout
    assert "changes since then take effect when" in again.stdout
    wait_for(lambda: len(scene.records()) >= 1)
    stopped = calsweep(scene, cluster, "stop", "submitted")
    assert stopped.returncode == 0, stopped.stderr
    assert "stopped submitted-1; nothing is lost" in stopped.stdout
    before = scene.attempts()
    assert len(before) < 8
    # In good order: no run is left as if it were still running.
    assert {run.info.status for run in scene.runs()} == {"FINISHED", "KILLED"}
    scene.directory.parent.joinpath("steps.log.go").touch()
    # The same sweep with fewer trials at once, which share a GPU by the size of their network.
    scene.write(scene.spec.replace("{cpu: 0.25, gpu: 0.5,", "{cpu: 1, gpu: auto,"))
    second = calsweep(scene, cluster, *submit, "--wait")
    assert second.returncode == 0, second.stdout + second.stderr
    assert "submitted submitted-2" in second.stdout
    assert "9 of 9 done" in second.stdout
    each = "each with 1 CPU and 0.125 GPU"
    assert f"1 node, 2 CPUs, 2 GPUs: 2 trials at once, {each}" in second.stdout
    assert set(before.items()) <= set(scene.attempts().items())
    shares = {k: record.resources["gpu"] for k, record in scene.records().items()}
    assert shares == dict.fromkeys(shares, 0.125) | dict.fromkeys(before, 0.5)
    scene.assert_exact(9, list(range(10, EPOCHS + 1, 10)), {"FINISHED"})


def test_trials_share_a_gpu_that_they_need_not_train_on(scene: Scene) -> None:
    at_work = _at_work(scene)
    assert {gpu for _, _, gpu in at_work} == {"0", "1"}
    assert _most_at_once(scene) == 4
    for gpu in ("0", "1"):
        assert _most_at_once(scene, gpu) == 2
    for record in scene.records().values():
        assert record.resources["device"] == "cpu"


def test_what_cannot_be_submitted_is_said_before_anything_is_sent(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(scene.directory)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def refused(*arguments: str) -> str:
        assert main(arguments) == 2
        said = capsys.readouterr().err.strip()
        assert len(said.splitlines()) == 1, said
        return said

    assert "--store: found 'runs'" in refused("submit", "spec.yaml", "--store", "runs")
    said = refused("submit", "spec.yaml", "--include", "data")
    assert "200 MB, but Ray accepts at most 100 MB; the largest: data/large.bin" in said
    said = refused("submit", "spec.yaml", "--tracking", "http://me:hunter2@host:5000")
    assert "hunter2" not in said
    assert "MLFLOW_TRACKING_PASSWORD" in said
    (scene.directory / "wrong.yaml").write_text("name: wrong\ndatasets: [iris]\n")
    assert "wrong.yaml" in refused("submit", "wrong.yaml")
    said = refused("submit", "spec.yaml", "--tracking", "sqlite:///here.db")
    assert "deleted with the job" in said
    assert "http://HOST:8265" in refused("stop", "x", "--address", "127.0.0.1:6379")
    nobody = f"http://127.0.0.1:{free_port()}"
    assert "no Ray cluster accepts jobs there" in refused("stop", "x", "--address", nobody)
    for module in ("mine", "paced"):
        sys.modules.pop(module, None)


def test_the_page_about_clusters_does_what_it_shows(cluster: Rays, tmp_path: Path) -> None:
    """Its command, up to the names of the cluster's head and of the shared directory."""
    (tmp_path / "remote.yaml").write_text(example("remote.yaml"))
    put_database(tmp_path / "runs")
    page = (PAGES / "how-to" / "elsewhere.md").read_text()
    here = page.replace("http://head:8265", cluster.dashboard).replace("/shared", str(tmp_path))
    blocks = dict(BLOCK.findall(here))
    command = ["-m", "sweeps.cli", *shlex.split(blocks["console"])[1:]]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(shown(blocks["text"]), unwrapped(done.stdout)), done.stdout


def _at_work(scene: Scene) -> list[tuple[float, str, str]]:
    path = scene.directory.parent / "steps.log.gpu"
    lines = path.read_text().splitlines() if path.exists() else []
    whole = [line.split() for line in lines if len(line.split()) == 3]
    return [(float(at), pid, gpu) for at, pid, gpu in whole]


def _most_at_once(scene: Scene, gpu: str | None = None) -> int:
    """How many processes were at work at the same time, from first to last step of each."""
    times: dict[str, list[float]] = defaultdict(list)
    for at, pid, given in _at_work(scene):
        if gpu in (None, given):
            times[pid].append(at)
    spans = [(min(each), max(each)) for each in times.values()]
    return max(sum(first <= begin <= last for first, last in spans) for begin, _ in spans)
