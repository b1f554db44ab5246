"""Workers are forked from the driver's template: they train the same, and it may be lost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeps.ray_backend import launch_worker
from sweeps.store import Store
from tests.faults.kit import MODULE
from tests.faults.leftovers import Trace, short_directory
from tests.tracked import put_database
from tests.waiting import wait_for

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


SERVER = """
import os, resource, sys
from pathlib import Path
import sweeps.ray_backend.trainable
from sweeps.ray_backend.template import _Server

if sys.argv[2] == "alone":
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    os.setuid(65534)  # root may fork all the same
_Server(-1, 0)._serve(Path(sys.argv[1]), dict(os.environ))
"""


class Served:
    """A template that runs, and a worker that tells whose child it is."""

    def __init__(self, directory: Path, manner: str) -> None:
        self.directory = directory
        self.socket = str(directory / "fork")
        self.environment = os.environ | {launch_worker.SOCKET: self.socket}
        (directory / "worker.py").write_text(
            "import os, sys\nopen(sys.argv[1], 'w').write(str(os.getppid()))\n"
        )
        command = [sys.executable, "-c", SERVER, str(directory), manner]
        self.process = subprocess.Popen(command, env=self.environment, start_new_session=True)
        wait_for(Path(self.socket).exists, self.process)

    def parent_of_a_worker(self) -> int:
        told = self.directory / "parent"
        words = [sys.executable, launch_worker.__file__, str(self.directory / "worker.py")]
        subprocess.run([*words, str(told)], env=self.environment, check=True)
        wait_for(lambda: told.exists() and told.read_text())
        return int(told.read_text())


@pytest.fixture
def directory() -> Iterator[Path]:
    found = short_directory()
    found.chmod(0o777)
    yield found
    Trace(found, found).remove()


def test_a_worker_that_is_killed_while_it_asks_does_not_end_the_template(directory: Path) -> None:
    served = Served(directory, "beside others")
    for said in (b"", b'{"arguments": ["wor'):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(served.socket)
            asking.sendall(said)
    assert served.parent_of_a_worker() == served.process.pid


def test_where_no_process_can_be_forked_ray_s_own_way_is_gone(directory: Path) -> None:
    """An answer would let the raylet wait ten minutes for a worker that nobody starts."""
    served = Served(directory, "alone")
    assert served.parent_of_a_worker() == os.getpid()
    assert served.process.poll() is None
