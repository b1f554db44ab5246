"""Machines that are reached over ssh: a host with a home, a process table and a sshd of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.hosts import Host
from tests.waiting import wait_for

# What other machines have for themselves hides this machine's: the users, /run, Ray's files.
MACHINE = """
set -e
mount --bind "$1" /etc/passwd
mount -t tmpfs tmpfs /run
mkdir /run/sshd
mkdir -p /tmp/ray
mount -t tmpfs tmpfs /tmp/ray
exec /usr/sbin/sshd -D -e -f "$2"
"""
CONFIG = """
Port 22
HostKey {home}/host_key
AuthorizedKeysFile {key}.pub
AuthenticationMethods publickey
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
"""


@dataclass
class Machine:
    """A host with an ssh server; ``user`` has the directory ``home`` as home there."""

    host: Host
    user: str
    home: Path

    @property
    def address(self) -> str:
        return self.host.address

    def serve(self, key: Path) -> None:
        """Start the server; it lets in whoever has ``key``, and nobody else."""
        self.home.mkdir()
        _make_key(self.home / "host_key")
        passwd = self.home / "passwd"
        passwd.write_text(f"{self.user}:*:0:0::{self.home}:/bin/bash\nsshd:*:65534:65534:::\n")
        config = self.home / "sshd_config"
        config.write_text(CONFIG.format(home=self.home, key=key))
        unshared = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc")
        with (self.home / "sshd.log").open("w") as log:
            process = self.host.start(
                *unshared, "sh", "-c", MACHINE, "sh", str(passwd), str(config), stderr=log
            )
        said = self.home / "sshd.log"
        wait_for(lambda: "listening" in said.read_text(), process, log=said)


@dataclass
class Laptop:
    """The machine that commands are typed at, with a home and an ssh key of its own."""

    host: Host
    user: str
    home: Path

    @property
    def key(self) -> Path:
        return self.home / "key"

    def prepare(self) -> None:
        self.home.mkdir()
        _make_key(self.key)

    def type(self, line: str, directory: Path) -> subprocess.CompletedProcess[str]:
        """Run a line of shell in the environment that the tests run in."""
        environment = {
            "PATH": f"{sys.prefix}/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home),
            "LOGNAME": self.user,
            "TMPDIR": str(self.home),
            "COLUMNS": "140",
        }
        return self.host.run(
            "bash",
            "-c",
            line,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def _make_key(path: Path) -> None:
    keygen = shutil.which("ssh-keygen")
    assert keygen, "ssh-keygen is missing"
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
