"""The machines that the tests of clusters run on are what they claim to be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Host, network
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

SERVER = """
import socket
with socket.create_server(("", 7000)) as server:
    print("up", flush=True)
    while True:
        connection, (peer, _) = server.accept()
        with connection:
            connection.sendall(peer.encode())
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000), timeout=float(sys.argv[2])) as server:
    print(server.recv(100).decode())
"""
FAMILY = "sleep 1000 & setsid sleep 1000 & echo up; wait"


@pytest.fixture
def pair() -> Iterator[list[Host]]:
    with network(2) as hosts:
        yield hosts


def serve(host: Host) -> subprocess.Popen[str]:
    process = host.start(sys.executable, "-c", SERVER, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def asked(server: Host, client: Host | None, patience: float = 60.0) -> str:
    """How the server saw the client; empty if it did not answer. None is this machine."""
    command = [sys.executable, "-c", CLIENT, server.address, str(patience)]
    if client is None:
        done = subprocess.run(command, capture_output=True, text=True)
    else:
        done = client.run(*command, capture_output=True, text=True)
    return done.stdout.strip()


def test_hosts_reach_each_other_until_the_link_is_cut(pair: list[Host]) -> None:
    one, other = pair
    serve(one)
    assert asked(one, other) == other.address
    assert asked(one, None) == one.gateway == other.gateway
    assert asked(one, one) == one.address
    one.cut()
    assert asked(one, other, 1.0) == ""
    assert asked(one, None, 1.0) == ""
    assert asked(one, one) == one.address, "a machine without a link reaches itself"
    one.mend()
    assert wait_for(lambda: asked(one, other, 1.0)) == other.address


def test_the_world_beyond_is_refused_at_once(pair: list[Host]) -> None:
    attempt = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=300)"
    done = pair[0].run(sys.executable, "-c", attempt, capture_output=True, text=True)
    assert "No route to host" in done.stderr


def test_kill_ends_everything_on_one_host_only(pair: list[Host]) -> None:
    one, other = pair
    for host in pair:
        process = host.start("sh", "-c", FAMILY, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        wait_for(lambda host=host: len(host.pids()) == 3)  # type: ignore[misc]
        assert process.pid in host.pids()
    one.kill()
    assert one.pids() == []
    assert len(other.pids()) == 3


class StopError(Exception):
    pass


def test_nothing_is_left_however_it_ends() -> None:
    def fail() -> None:
        with network(2) as hosts, network(1) as others:
            assert others[0].gateway != hosts[0].gateway
            processes.append(serve(hosts[0]))
            processes.append(others[0].start("unshare", "--pid", "--fork", "sleep", "1000"))
            names.extend(host.name for host in (*hosts, *others))
            names.extend(host.switch for host in (*hosts, *others))
            gateways.extend([hosts[0].gateway, others[0].gateway])
            raise StopError

    processes: list[subprocess.Popen[str]] = []
    names: list[str] = []
    gateways: list[str] = []
    with pytest.raises(StopError):
        fail()
    assert [process.poll() for process in processes] == [-9, -9]
    assert not [name for name in names if (Path("/run/netns") / name).exists()]
    addresses = subprocess.run(["ip", "address"], capture_output=True, text=True, check=True)
    assert not [gateway for gateway in gateways if gateway in addresses.stdout]
