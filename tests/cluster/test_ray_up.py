"""From nothing to a running sweep and back, on machines over ssh, as the documentation says it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml

from tests.cluster.hosts import network
from tests.cluster.machines import Laptop, Machine
from tests.cluster.rays import ATTEMPTS, TOO_SLOW
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MOUNTED = ["calibration", "sweeps", "cluster"]
MOUNTED += ["pyproject.toml", "constraints.txt", "README.md", "LICENSE"]
SPEC = """
name: tiny
datasets: [blobs-1.7]
methods: {standard: {lr: 0.01, weight_decay: 0}}
training: {epochs: 3}
confirm_seeds: 2
calibrators: [temperature]
"""
ASK = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=300)
connection.request(*sys.argv[3:5])
print(connection.getresponse().status)
"""


@dataclass
class Place:
    """A laptop with a clone of the repository, and two machines: the documentation's cast."""

    laptop: Laptop
    head: Machine
    worker: Machine
    clone: Path
    store: Path

    def fill_in(self) -> None:
        """Edit the copy of ``local.yaml`` as its comments ask."""
        file = self.clone / "my-cluster.yaml"
        config = yaml.safe_load(file.read_text())
        worker_ips = [self.worker.address]
        config["provider"] |= {"head_ip": self.head.address, "worker_ips": worker_ips}
        config["auth"] |= {"ssh_user": self.head.user, "ssh_private_key": str(self.laptop.key)}
        (setup,) = config["setup_commands"]
        setup = setup.replace("/mnt/calsweep/runs", str(self.store))
        config["setup_commands"] = [setup.replace("~/calsweep-venv", sys.prefix)]
        file.write_text(yaml.safe_dump(config))

    def type(self, line: str) -> str:
        """What a line of the documentation says when it is typed, with this place's names."""
        known = (
            f"-o UserKnownHostsFile={self.laptop.home}/known -o StrictHostKeyChecking=accept-new"
        )
        line = line.replace("ssh -i ~/.ssh/calsweep", f"ssh {known} -i {self.laptop.key}")
        line = line.replace("ubuntu@192.0.2.11", f"{self.worker.user}@{self.worker.address}")
        for _ in range(ATTEMPTS):
            done = self.laptop.type(line, self.clone)
            if TOO_SLOW not in done.stdout:
                break  # else it is for whoever typed it to type it again
        assert done.returncode == 0, f"{line}\n{done.stdout}"
        return str(done.stdout)

    def status(self, port: int, method: str, path: str) -> str:
        """How the head answers the laptop, which shows no token: an HTTP status, or an error."""
        where = (self.head.address, str(port), method, path)
        command = (sys.executable, "-c", ASK, *where)
        done = self.laptop.host.run(*command, capture_output=True, text=True)
        return str(done.stdout.strip() or done.stderr.strip().splitlines()[-1])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    user = f"user-{secrets.token_hex(4)}"
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in MOUNTED:
        (clone / name).symlink_to(ROOT / name)
    with network(3) as (one, two, three):
        laptop = Laptop(one, user, tmp_path / "laptop")
        head = Machine(two, user, tmp_path / "head")
        worker = Machine(three, user, tmp_path / "worker")
        laptop.prepare()
        for machine in (head, worker):
            machine.serve(laptop.key)
        yield Place(laptop, head, worker, clone, tmp_path / "store")
    # Where Ray keeps its ssh connections open, named after the user.
    kept = f"/tmp/ray_ssh_{hashlib.sha256(user.encode()).hexdigest()[:10]}"
    shutil.rmtree(kept, ignore_errors=True)


def documented(section: str) -> list[str]:
    """The lines to be typed in a section of the documentation, without their remarks."""
    text = (ROOT / "cluster" / "README.md").read_text()
    (body,) = re.findall(rf"^## {section}\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```sh\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
    return [line.split("  #")[0].rstrip() for block in blocks for line in block.splitlines()]


def ray_processes(machine: Machine) -> list[str]:
    lines = []
    for pid in machine.host.pids():
        with contextlib.suppress(psutil.NoSuchProcess):
            lines.append(" ".join(psutil.Process(pid).cmdline()))
    return [line for line in lines if re.search(r"raylet|gcs_server|ray::|/ray/", line)]


def test_a_cluster_of_ones_own_machines_from_nothing_to_nothing(place: Place) -> None:
    make_token, protect, _mode = documented("One token for the cluster")
    keygen, copy_id, copy, up, status, bring, submit, down, stop = documented("Your own machines")
    assert [shlex.split(line)[0] for line in (keygen, copy_id)] == ["ssh-keygen", "ssh-copy-id"]

    for line in (make_token, protect, copy):
        place.type(line)
    token = (place.laptop.home / ".ray" / "auth_token").read_text()
    place.fill_in()
    place.type(up)
    assert ray_processes(place.head)
    (place.clone / "my-sweep.yaml").write_text(SPEC)
    place.type(bring)
    said = place.type(submit)
    assert "2 of 2 done, 2 trained now, 0 failed" in said
    records = list((place.store / "records").glob("*/record.json"))
    assert [json.loads(path.read_text())["status"] for path in records] == ["done", "done"]
    assert (place.store / "tiny" / "report.html").is_file()
    assert token not in said

    wait_for(lambda: "2 local.cluster.node" in place.type(status))
    for machine in (place.head, place.worker):
        held = machine.home / ".ray" / "auth_token"
        assert held.read_text() == token
        assert stat.S_IMODE(held.stat().st_mode) == 0o600
        assert (machine.home / "calsweep" / "sweeps" / "cli" / "main.py").is_file()
    compiled = place.head.home / "calsweep" / "sweeps" / "__pycache__"
    assert compiled.is_dir(), "the code that was brought is the code that ran"

    assert "refused" in place.status(8265, "GET", "/api/version")
    assert place.status(52365, "POST", "/api/job_agent/jobs/") == "401"
    assert place.status(6382, "POST", "/get_or_create_runtime_env") == "401"
    stranger = place.laptop.type(f"ray status --address {place.head.address}:6379", place.clone)
    assert "Authentication token is missing or incorrect" in stranger.stdout

    place.type(down)
    wait_for(lambda: not ray_processes(place.head))
    place.type(stop)
    wait_for(lambda: not ray_processes(place.worker))
