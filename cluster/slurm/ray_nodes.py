"""Run ``calsweep run`` on all nodes of a Slurm job; started by the job's script on the first.

    python -m cluster.slurm.ray_nodes SPEC [options of calsweep run]

Ray's head is on the first node, beside the driver; ``srun`` starts a worker on each of the others.
They may come later or be lost: a sweep uses the available nodes. Their shared token is generated
at every start and passed on in the environment, which only this user can read.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from calibration.text import count
from sweeps.cli.main import INTERRUPTED
from sweeps.cli.main import main as calsweep
from sweeps.errors import UserError
from sweeps.host import allocation
from sweeps.host.console import complain
from sweeps.host.slurm import slurm_says
from sweeps.host.workspace import workspace
from sweeps.ray_backend.local_ray import BackendError

JOIN = "--join"
_TRIES = 10
_STARTED, _TOO_SLOW = "Ray runtime started", "timed out during startup"
"""Ray's messages when a node is up, and when it is not after the 30 s fixed in its code."""
_END_SECONDS = 30.0
_PATIENT = {
    # A busy machine starts processes slowly: those still starting are not given up.
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_agent_register_timeout_ms": "600000",
}


def main(arguments: Sequence[str]) -> int:
    """Run the sweep, or with ``--join ADDRESS`` be one of its nodes; returns the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    os.environ.update(_PATIENT)
    try:
        if arguments[0] == JOIN:
            return _join(arguments[1])
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
        return _run(arguments)
    except UserError as error:
        complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED[1]


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise KeyboardInterrupt


def _run(arguments: Sequence[str]) -> int:
    here = own_address(_address_of(_second_node(os.environ)))
    port = _free_port(here)
    address = f"{here}:{port}"
    with _ray(here, "--head", f"--port={port}", "--include-dashboard=false"):
        workers = subprocess.Popen(worker_command(os.environ, address))
        try:
            return calsweep(["run", *arguments, "--address", address])
        finally:
            workers.terminate()  # srun passes it on
            with contextlib.suppress(subprocess.TimeoutExpired):
                workers.wait(_END_SECONDS)


def _join(address: str) -> int:
    with _ray(own_address(address.partition(":")[0]), f"--address={address}") as process:
        return process.wait()


def worker_command(environment: Mapping[str, str], address: str) -> list[str]:
    """The ``srun`` that starts a worker on every node but the first."""
    others = int(environment["SLURM_JOB_NUM_NODES"]) - 1
    words = ["srun", "--relative=1", f"--nodes={others}", f"--ntasks={others}"]
    words += ["--ntasks-per-node=1", "--kill-on-bad-exit=0"]
    if cpus := environment.get("SLURM_CPUS_PER_TASK"):
        words.append(f"--cpus-per-task={cpus}")  # srun does not inherit it from its job
    if gpus := environment.get("SLURM_GPUS_PER_NODE"):
        words.append(f"--gpus-per-node={gpus}")
    return [*words, sys.executable, "-m", "cluster.slurm.ray_nodes", JOIN, address]


def own_address(other: str) -> str:
    """The address by which the machine ``other`` knows this one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))  # sends nothing: it only looks up the route
        return str(probe.getsockname()[0])


def _second_node(environment: Mapping[str, str]) -> str:
    names = slurm_says("scontrol", "show", "hostnames", environment["SLURM_JOB_NODELIST"]).split()
    return next(name for name in names if name != environment["SLURMD_NODENAME"])


def _address_of(node: str) -> str:
    said = slurm_says("scontrol", "--oneliner", "show", "node", node)
    found = re.search(r"\bNodeAddr=(\S+)", said)
    return found[1] if found else node


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


@contextmanager
def _ray(here: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run Ray on this node, with the allocated resources, for as long as the context lasts.

    Raises ``BackendError`` if it does not start.
    """
    words = [str(Path(sys.executable).parent / "ray"), "start", "--block", *options]
    words += [f"--node-ip-address={here}", f"--num-cpus={allocation.cpus().number}"]
    words += [f"--num-gpus={allocation.gpus() or 0}", "--disable-usage-stats"]
    with workspace() as place:
        log = place / "ray.log"
        for number in range(_TRIES):
            with log.open("w") as output:
                process = subprocess.Popen(
                    [*words, f"--temp-dir={place / f'r{number}'}"],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
            if _is_up(process, log):
                break
            if number + 1 == _TRIES or _TOO_SLOW not in log.read_text():
                raise BackendError(
                    f"Ray did not start on {socket.gethostname()} in "
                    f"{count(number + 1, 'attempt')}: "
                    f"{log.read_text().strip().rpartition(chr(10))[2][:300]}"
                )
        try:
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)


def _is_up(process: subprocess.Popen[str], log: Path) -> bool:
    """Wait until Ray has started; False if it has ended instead."""
    while _STARTED not in log.read_text():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
            return _STARTED in log.read_text()
    return True


if __name__ == "__main__":
    # At once: Ray's threads would hold the process for a while.
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
