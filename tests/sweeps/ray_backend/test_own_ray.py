"""A local run's Ray: nobody else can reach it, and nothing of it outlives its driver."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sweeps.host.workspace import WORKSPACE_PREFIX, workspace
from tests.cluster.hosts import Host, network
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

# Ray was imported before, and the environment says things that are not to be followed.
DRIVER = """
import json, os, signal, stat, sys
import ray
from ray._private import ray_constants
from ray._raylet import AuthenticationMode, get_authentication_mode
from sweeps.ray_backend.local_ray import ensure_alive, own_ray
from sweeps.host.workspace import workspace

def caught():  # whether SIGTERM has a handler, as the system sees it
    status = open("/proc/self/status").read().split("SigCgt:")[1].split()[0]
    return bool(int(status, 16) >> (signal.SIGTERM - 1) & 1)

signal.signal(signal.SIGTERM, lambda *_: None)
before = dict(os.environ)
with workspace() as place, own_ray(place):
    ensure_alive()
    token = place / "token"
    print(json.dumps({
        "answer": ray.get(ray.remote(lambda: 7).remote()),
        "place": [str(place), stat.S_IMODE(place.stat().st_mode)],
        "token": stat.S_IMODE(token.stat().st_mode),
        "asked": get_authentication_mode() == AuthenticationMode.TOKEN,
    }), flush=True)
    sys.stdin.readline()
print(json.dumps({
    "changed": sorted(n for n in {**before, **os.environ} if before.get(n) != os.environ.get(n)),
    "many": ray_constants.ENABLE_RAY_CLUSTER,
    "caught": caught(),
    "asked": get_authentication_mode() == AuthenticationMode.TOKEN,
}), flush=True)
"""
KNOCK = """
import socket, sys
for port in map(int, sys.argv[2:]):
    try:
        socket.create_connection((sys.argv[1], port), timeout=10).close()
        print(port)
    except OSError:
        pass
"""


def listening(driver: psutil.Process) -> dict[int, str]:
    """The ports that a driver and its processes listen on, and where."""
    family = [driver, *driver.children(recursive=True)]
    found = [c for member in family for c in member.net_connections("tcp") if c.status == "LISTEN"]
    return {connection.laddr.port: connection.laddr.ip for connection in found}


def knock(host: Host, address: str, *ports: int) -> list[int]:
    """The ports of this machine that a host gets an answer from."""
    words = [sys.executable, "-c", KNOCK, address, *map(str, ports)]
    return [int(line) for line in host.run(*words, capture_output=True, text=True).stdout.split()]


def test_a_local_ray_answers_nobody_else_and_leaves_the_environment_as_it_was(
    tmp_path: Path,
) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("the user's own")
    told = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "x" * 32, "RAY_ADDRESS": "10.1.1.1:6379"}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | told | {"HOME": str(tmp_path)},
    )
    assert process.stdout is not None
    with network(1) as (host,):
        says = json.loads(process.stdout.readline())
        driver = psutil.Process(process.pid)
        commands = [" ".join(child.cmdline()) for child in driver.children(recursive=True)]
        assert [line for line in commands if "gcs_server" in line]
        assert [line for line in commands if re.search(r"/(dashboard|\w*monitor)\.py", line)] == []
        ports = listening(driver)
        assert {"::ffff:127.0.0.1", "127.0.0.1"} >= set(ports.values()), ports
        assert len(ports) > 5
        assert knock(host, host.gateway, *ports) == []
    out, _ = process.communicate("\n")
    assert process.returncode == 0
    says_then = json.loads(out)
    assert set(says_then.pop("changed")) <= {"PYTHONBREAKPOINT", "RAY_USAGE_STATS_ENABLED"}  # Ray's
    assert says_then == {"many": True, "asked": False, "caught": True}
    place, mode = says.pop("place")
    assert (mode, says.pop("token")) == (0o700, 0o600)
    assert says == {"answer": 7, "asked": True}
    assert not Path(place).exists()
    assert (tmp_path / ".ray" / "auth_token").read_text() == "the user's own"


HOLDER = """
import subprocess, sys, time
from sweeps.host.workspace import workspace
with workspace() as place:
    (place / "file").touch()
    child = subprocess.Popen(["sleep", "86400"], start_new_session=True, stdout=subprocess.DEVNULL)
    print(place, child.pid, flush=True)
    time.sleep(86400)
"""


def holder() -> tuple[subprocess.Popen[str], Path, psutil.Process]:
    """A process with a workspace, and the child that it has started for it."""
    words = [sys.executable, "-c", HOLDER]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    place, child = process.stdout.readline().split()
    return process, Path(place), psutil.Process(int(child))


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_driver_leaves_goes_by_itself(by: int) -> None:
    process, place, child = holder()
    process.send_signal(by)
    process.communicate()
    wait_for(lambda: not place.exists())
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_or_with_the_next_driver_and_never_a_live_ones() -> None:
    dead, left, child = holder()
    alive, kept, other = holder()
    reaper = next(p for p in psutil.Process(dead.pid).children() if "reaper" in str(p.cmdline()))
    reaper.kill()
    dead.kill()
    dead.communicate()
    with workspace() as place:
        assert place.name.startswith(WORKSPACE_PREFIX)
        assert not left.exists()
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
        assert (kept / "file").exists()
        assert other.is_running()
    assert not place.exists()
    alive.kill()
    alive.communicate()
    wait_for(lambda: not kept.exists())
