"""Ray on the hosts of a network, with token authentication, as ``cluster/`` starts it."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.hosts import Host
from tests.waiting import wait_for

RAY = str(Path(sys.executable).parent / "ray")
ATTEMPTS = 10
TOO_SLOW = "timed out during startup"
"""What Ray says when a node is not up after 30 s, which are fixed in its code."""
AGENT_PORT = 52365
PATIENT = {
    # Workers that have not started by then are killed, and others begin where they began.
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "600",
}
SOON = {
    # A lost machine is noticed after seconds instead of a minute; one that answers once in 25 s
    # is not lost.
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "4000",
    "RAY_health_check_failure_threshold": "5",
}


@dataclass
class Rays:
    """A running cluster; its first host is the head."""

    hosts: Sequence[Host]
    token: str
    scratch: Path
    settings: dict[str, str]

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
        return kept | PATIENT | self.settings | token | {"PATH": path, "COLUMNS": "140"}

    def add_head(self, *options: str, dashboard: bool = False) -> None:
        """Start the first host's Ray; with its ``dashboard`` it takes jobs afterwards."""
        head = self.hosts[0]
        place = ["--head", "--port", "6379", "--temp-dir", str(self.scratch / "ray")]
        shown = ["--dashboard-host", head.address] if dashboard else ["--include-dashboard=false"]
        self._add([head], *place, *shown, *options)
        if dashboard:
            for address in (self.dashboard, f"http://{head.address}:{AGENT_PORT}"):
                wait_for(lambda address=address: _is_served(address))  # type: ignore[misc]

    def add(self, hosts: Sequence[Host], *options: str) -> None:
        """Let the hosts join, all at the same time, and wait until they have."""
        self._add(hosts, "--address", self.address, *options)

    def _add(self, hosts: Sequence[Host], *options: str) -> None:
        for _ in range(ATTEMPTS):
            processes = [self._start(host, *options) for host in hosts]
            joined = [self._joins(*each) for each in zip(hosts, processes, strict=True)]
            hosts = [host for host, has in zip(hosts, joined, strict=True) if not has]
            if not hosts:
                return
            for host in hosts:
                host.kill()
        raise AssertionError(f"Ray did not start within 30 s, in {ATTEMPTS} attempts")

    def _start(self, host: Host, *options: str) -> subprocess.Popen[Any]:
        command = [RAY, "start", "--block", "--node-ip-address", host.address]
        command += ["--disable-usage-stats", "--object-store-memory", str(100 * 2**20), *options]
        with self._log(host).open("w") as out:
            return host.start(*command, env=self.environment, stdout=out, stderr=subprocess.STDOUT)

    def _joins(self, host: Host, process: subprocess.Popen[Any]) -> bool:
        """Wait until it has; False if that took longer than Ray allows."""

        def known() -> bool:
            return process.poll() is not None or "Ray runtime started" in log.read_text()

        log = self._log(host)
        wait_for(known, log=log)
        said = log.read_text()
        if "Ray runtime started" in said:
            return True
        assert TOO_SLOW in said, said[-3000:]
        return False

    def _log(self, host: Host) -> Path:
        return self.scratch / f"{host.name}.log"

    def calsweep(self, *arguments: str, cwd: Path, **popen: Any) -> subprocess.Popen[str]:
        """The command on the head, with the token."""
        command = [sys.executable, "-m", "sweeps.cli", *arguments]
        popen.setdefault("env", self.environment)
        pipe = subprocess.PIPE
        return self.hosts[0].start(*command, cwd=cwd, stdout=pipe, stderr=pipe, text=True, **popen)


@contextmanager
def rays(hosts: Sequence[Host], **settings: str) -> Iterator[Rays]:
    """A cluster without nodes yet, with Ray's ``settings``. Ends with the network of its hosts."""
    # Not in pytest's directories: the paths of Ray's sockets may have 107 characters.
    scratch = Path(tempfile.mkdtemp(prefix="rays-"))
    try:
        yield Rays(hosts, secrets.token_hex(32), scratch, settings)
    finally:
        for host in hosts:
            host.kill()
        shutil.rmtree(scratch, ignore_errors=True)


def _is_served(address: str) -> bool:
    """Whether anybody answers there, if only that they want a token."""
    try:
        urllib.request.urlopen(address, timeout=30).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
