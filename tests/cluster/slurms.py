"""A real Slurm on the hosts of a network: munge, a controller, and one slurmd per node.

Everything is its own: configuration, key, sockets, spool and state lie in one directory, the
ports are those of the hosts' own network namespaces. Jobs run in their node's namespace, so that
killing a host ends them as a power cut does.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sweeps.host.slurm import ENDED
from tests.cluster.hosts import Host, network
from tests.waiting import LIMIT, wait_for

# No timeout may decide anything on a busy machine: a node is lost when it is declared so. The
# cgroup plugins are off: a container may not be allowed to make any.
CONFIGURATION = """\
ClusterName=calsweep
SlurmctldHost={hostname}({controller})
MailProg=/bin/true
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket,cred_expire=5
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmctldTimeout=3600
SlurmdTimeout=3600
MessageTimeout=100
KillWait=600
OverTimeLimit=600
MinJobAge=36000
GresTypes=gpu
BatchStartTimeout=600
CompleteWait=0
ReturnToService=2
{nodes}
PartitionName=normal Nodes=ALL Default=YES PriorityTier=1 MaxTime=INFINITE
PartitionName=urgent Nodes=ALL PriorityTier=10 MaxTime=INFINITE PreemptMode=OFF
"""
CPUS, GPUS = 2, 2


@dataclass
class Slurm:
    """A running Slurm: the controller's host, where commands are typed, and its nodes."""

    controller: Host
    nodes: Sequence[Host]
    place: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of whoever uses it: nothing of another Slurm or Ray."""
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("SLURM", "RAY_", "SBATCH")) and k != "PYTHONPATH"
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        return kept | {"SLURM_CONF": str(self.place / "slurm.conf"), "PATH": path, "COLUMNS": "140"}

    def do(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A command on the controller's machine, run to its end."""
        return self.controller.run(
            *command, cwd=cwd, env=self.environment, capture_output=True, text=True, timeout=LIMIT
        )

    def tell(self, *command: str) -> str:
        """What a command that must succeed says."""
        done = self.do(*command)
        assert done.returncode == 0, (command, done.stdout + done.stderr, self.logs())
        return str(done.stdout)

    def job(self, number: str) -> dict[str, str]:
        """What Slurm knows of a job."""
        said = self.tell("scontrol", "--oneliner", "show", "job", number)
        return dict(re.findall(r"(\S+?)=(\S*)", said))

    def wait_for(self, number: str, *states: str) -> dict[str, str]:
        """Wait until a job has come to one of these states."""
        found: dict[str, str] = {}

        def reached() -> bool:
            found.update(self.job(number))
            return found["JobState"] in states

        wait_for(reached)
        return found

    def started(self, number: str) -> None:
        """Wait until a job runs: one that starts again does so some seconds after its end."""

        def runs() -> bool:
            state = self.job(number)["JobState"]
            assert state not in ENDED, (state, self.logs())
            if state == "PENDING":  # a limit that was brought near is that of one turn
                self.do("scontrol", "update", f"JobId={number}", "TimeLimit=UNLIMITED")
            return state == "RUNNING"

        wait_for(runs)

    def shorten(self, number: str) -> None:
        """Bring a running job's time limit so near that it is warned; it is not killed there."""
        since = datetime.fromisoformat(self.job(number)["StartTime"])
        elapsed = int((datetime.now() - since).total_seconds() // 60)
        self.tell("scontrol", "update", f"JobId={number}", f"TimeLimit={elapsed + 3}")

    def logs(self) -> str:
        """The end of what every daemon has said."""
        return "\n".join(f"{p.name}: {p.read_text()[-2000:]}" for p in self.place.glob("*.log"))

    def start_node(self, host: Host) -> None:
        """Start a node's slurmd, again after its host was killed, and wait until it is there."""
        name = self.name(host)
        words = ("/usr/sbin/slurmd", "-D", "-N", name, "-f", str(self.place / "slurm.conf"))
        log = self.place / f"{name}.log"
        process = _start(host, log, *words, env=self.environment)
        wait_for(lambda: "idle" in self.tell("sinfo", "-hn", name, "-o", "%t"), process, log=log)

    def name(self, host: Host) -> str:
        """What a node's host is called."""
        return f"n{self.nodes.index(host) + 1}"


@contextmanager
def slurm(nodes: int = 2) -> Iterator[Slurm]:
    """A Slurm with so many nodes of ``CPUS`` CPUs; nothing of it is left afterwards."""
    place = Path(tempfile.mkdtemp(prefix="slurm-"))
    try:
        with network(nodes + 1) as hosts:
            made = Slurm(hosts[0], hosts[1:], place)
            _configure(made)
            _start_controller(made)
            for host in made.nodes:
                made.start_node(host)
            yield made
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _configure(made: Slurm) -> None:
    place = made.place
    (place / "state").mkdir()
    lines = []
    for host in made.nodes:
        name = made.name(host)
        (place / f"spool-{name}").mkdir()
        has = f"CPUs={CPUS} Gres=gpu:{GPUS}"
        lines.append(f"NodeName={name} NodeAddr={host.address} NodeHostname={name} {has}")
    text = CONFIGURATION.format(
        place=place,
        hostname=socket.gethostname(),
        controller=made.controller.address,
        nodes="\n".join(lines),
    )
    (place / "slurm.conf").write_text(text)
    (place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    # GPUs that only Slurm believes in: it counts them and sets CUDA_VISIBLE_DEVICES.
    devices = ("/dev/zero", "/dev/full")[:GPUS]
    lines = [f"Name=gpu File={device} Flags=nvidia_gpu_env" for device in devices]
    (place / "gres.conf").write_text("\n".join(lines) + "\n")
    key = place / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))


def _start_controller(made: Slurm) -> None:
    place, host = made.place, made.controller
    # --force: it would have others look into its directory, where nobody else has business.
    munge = ["/usr/sbin/munged", "--foreground", "--force", f"--key-file={place}/munge.key"]
    munge += [f"--socket={place}/munge.socket", f"--pid-file={place}/munged.pid"]
    munge += [f"--seed-file={place}/munge.seed"]
    process = _start(host, place / "munged.log", *munge)
    wait_for(lambda: (place / "munge.socket").exists(), process, log=place / "munged.log")
    words = ("/usr/sbin/slurmctld", "-D", "-f", str(place / "slurm.conf"))
    log = place / "slurmctld.log"
    process = _start(host, log, *words, env=made.environment)
    wait_for(lambda: "UP" in made.do("scontrol", "ping").stdout, process, log=log)


def _start(host: Host, log: Path, *command: str, **popen: Any) -> subprocess.Popen[Any]:
    with log.open("a") as out:
        return host.start(*command, stdout=out, stderr=subprocess.STDOUT, **popen)
