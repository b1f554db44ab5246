"""Ray on the hosts of a network, with token authentication, as ``cluster/`` starts it."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.hosts import Host

RAY = str(Path(sys.executable).parent / "ray")
PATIENCE = 90.0
SOON = {
    # A lost machine is noticed after seconds instead of a minute.
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "4",
}


@dataclass
class Rays:
    """A running cluster; its first host is the head."""

    hosts: Sequence[Host]
    token: str
    scratch: Path

    @property
    def address(self) -> str:
        return f"{self.hosts[0].address}:6379"

    @property
    def dashboard(self) -> str:
        return f"http://{self.hosts[0].address}:8265"

    @property
    def environment(self) -> dict[str, str]:
        """Of whoever may use the cluster."""
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RAY_ADDRESS")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}
        return kept | SOON | token | {"PATH": path, "COLUMNS": "140"}

    def add(self, host: Host, *options: str) -> None:
        """Let the host join, or be the head if it is the first, and wait until it has."""
        head = host is self.hosts[0]
        log = self.scratch / f"{host.name}.log"
        command = [RAY, "start", "--block", "--node-ip-address", host.address]
        command += ["--disable-usage-stats", "--object-store-memory", str(100 * 2**20), *options]
        if head:
            command += ["--head", "--port", "6379", "--temp-dir", str(self.scratch / "ray")]
        else:
            command += ["--address", self.address]
        with log.open("w") as out:
            process = host.start(
                *command, env=self.environment, stdout=out, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + PATIENCE
        while "Ray runtime started" not in log.read_text():
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.05)

    def calsweep(self, *arguments: str, cwd: Path, **popen: Any) -> subprocess.Popen[str]:
        """The command on the head, with the token."""
        command = [sys.executable, "-m", "sweeps.cli", *arguments]
        popen.setdefault("env", self.environment)
        pipe = subprocess.PIPE
        return self.hosts[0].start(*command, cwd=cwd, stdout=pipe, stderr=pipe, text=True, **popen)


@contextmanager
def rays(hosts: Sequence[Host]) -> Iterator[Rays]:
    """A cluster without nodes yet. Ends with the network of its hosts."""
    # Not in pytest's directories: the paths of Ray's sockets may have 107 characters.
    scratch = Path(tempfile.mkdtemp(prefix="rays-"))
    try:
        yield Rays(hosts, secrets.token_hex(32), scratch)
    finally:
        for host in hosts:
            host.kill()
        shutil.rmtree(scratch, ignore_errors=True)
