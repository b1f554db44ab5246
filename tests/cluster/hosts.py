"""Machines of one's own: network namespaces with their own addresses, on one machine, as root.

A network is one namespace that is the switch and one per host. The switch has a namespace of
its own because a bridge beside Docker's would pass through Docker's firewall. It is the hosts'
way out too, and answers "unreachable" at once: a look-up that finds no internet fails, it does
not hang. Hosts share the file system (it stands for NFS) and the process table: a command that
looks for processes by name, as ``ray stop`` does, needs ``unshare --pid`` around it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import random
import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.waiting import wait_for


@dataclass
class Host:
    """One machine: a network namespace with an address and a link to the switch."""

    name: str
    address: str
    gateway: str
    switch: str
    port: str
    started: list[subprocess.Popen[Any]] = field(default_factory=list)

    def start(self, *command: str, **popen: Any) -> subprocess.Popen[Any]:
        """The command, running here; its pid is the command's own. It ends with the network."""
        popen.setdefault("start_new_session", True)
        process = subprocess.Popen(["ip", "netns", "exec", self.name, *command], **popen)
        self.started.append(process)
        return process

    def run(self, *command: str, **kwargs: Any) -> subprocess.CompletedProcess[Any]:
        """The command, run here to its end."""
        return subprocess.run(["ip", "netns", "exec", self.name, *command], **kwargs)

    def pids(self) -> list[int]:
        """Every process that runs here, whoever started it."""
        return [int(pid) for pid in _ip("netns", "pids", self.name).split()]

    def kill(self) -> None:
        """SIGKILL to every process at once, until none is left: the machine is gone."""

        def none_is_left() -> bool:
            pids = self.pids()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not pids

        wait_for(none_is_left)
        for process in self.started:
            process.wait()

    def cut(self) -> None:
        """Pull the cable: nothing arrives any more, and nobody is told."""
        _ip("-n", self.switch, "link", "set", self.port, "down")

    def mend(self) -> None:
        """Plug it in again."""
        _ip("-n", self.switch, "link", "set", self.port, "up")


@contextmanager
def network(count: int) -> Iterator[list[Host]]:
    """``count`` hosts that reach each other and this machine, and nothing else.

    At the end every process on them is killed and nothing of the network is left. Raises
    ``RuntimeError`` with what ``ip`` said where namespaces cannot be made (they need root).
    """
    token = secrets.token_hex(4)
    switch, uplink, subnet = f"cs-{token}", f"cs{token}", _free_subnet()
    hosts = [
        Host(f"{switch}-{i}", f"{subnet}.{i}", f"{subnet}.254", switch, f"port{i}")
        for i in range(1, count + 1)
    ]
    try:
        _make_switch(switch, uplink, subnet)
        for host in hosts:
            _plug_in(host, f"{subnet}.253")
        yield hosts
    finally:
        names = _ip("netns", "list").split()
        for host in hosts:
            if host.name in names:
                host.kill()
                _ip("netns", "delete", host.name)
        # A namespace lives until its last socket is gone; its links must not wait for that.
        with contextlib.suppress(RuntimeError):
            _ip("link", "delete", uplink)
        if switch in names:
            _ip("netns", "delete", switch)


def _make_switch(name: str, uplink: str, subnet: str) -> None:
    _ip("netns", "add", name)
    _ip("-n", name, "link", "add", "br0", "type", "bridge")
    _ip("-n", name, "address", "add", f"{subnet}.253/24", "dev", "br0")
    _ip("-n", name, "link", "set", "br0", "up")
    _ip("-n", name, "route", "add", "unreachable", "default")
    _ip("netns", "exec", name, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    _ip("link", "add", uplink, "type", "veth", "peer", "name", "uplink", "netns", name)
    _ip("address", "add", f"{subnet}.254/24", "dev", uplink)
    _ip("link", "set", uplink, "up")
    _ip("-n", name, "link", "set", "uplink", "master", "br0", "up")


def _plug_in(host: Host, router: str) -> None:
    _ip("netns", "add", host.name)
    _ip("-n", host.name, "link", "set", "lo", "up")
    ends = ("eth0", "netns", host.name, "type", "veth", "peer", "name", host.port)
    _ip("link", "add", *ends, "netns", host.switch)
    _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
    _ip("-n", host.name, "link", "set", "eth0", "up")
    _ip("-n", host.switch, "link", "set", host.port, "master", "br0", "up")
    _ip("-n", host.name, "route", "add", "default", "via", router)


def _free_subnet() -> str:
    """The first three numbers of a network that no route of this machine touches."""
    taken = [
        ipaddress.ip_network(route["dst"])
        for route in json.loads(_ip("-json", "-4", "route") or "[]")
        if route["dst"] != "default"
    ]
    while True:
        start = f"10.{random.SystemRandom().randrange(1, 255)}.{secrets.randbelow(255)}"
        mine = ipaddress.ip_network(f"{start}.0/24")
        if not any(mine.overlaps(other) for other in taken if other.prefixlen > 8):
            return start


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
