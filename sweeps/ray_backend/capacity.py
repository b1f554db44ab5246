"""What one trial occupies, and how many of them a cluster has room for now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sweeps.spec import SpecError

LOOK_AGAIN_SECONDS = 2.0


class Demand(NamedTuple):
    """CPUs and GPUs that one trial occupies; a share of a GPU lets several use it."""

    cpu: float
    gpu: float


class Machine(NamedTuple):
    """A node of the cluster, and its resources."""

    address: str
    cpus: float
    gpus: float

    def room(self, demand: Demand) -> int:
        """How many trials fit here at once.

        A share is taken from a single GPU: 0.4 fits twice into each.
        """
        by_cpu = int(self.cpus / demand.cpu + 1e-9)
        if not demand.gpu:
            return by_cpu
        if demand.gpu < 1:
            by_gpu = int(self.gpus) * int(1 / demand.gpu + 1e-9)
        else:
            by_gpu = int(self.gpus / demand.gpu)
        return min(by_cpu, by_gpu)


def machines(nodes: Sequence[Mapping[str, Any]]) -> list[Machine]:
    """The nodes of Ray's list that are alive."""
    return [
        Machine(
            str(node.get("NodeManagerAddress", "")),
            float(node["Resources"].get("CPU", 0)),
            float(node["Resources"].get("GPU", 0)),
        )
        for node in nodes
        if node["Alive"]
    ]


class Capacity:
    """How many trials run at once: as many as fit into the present nodes.

    Nodes come and go, so they are counted again every few seconds. ``concurrent`` is the number
    to request even without room for it: waiting trials make an autoscaling cluster grow. It is not
    larger than necessary, because a search learns more if fewer of its trials run at once.
    """

    def __init__(
        self,
        demand: Demand,
        look: Callable[[], list[Machine]],
        concurrent: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.demand = demand
        self.concurrent = concurrent
        self._look = look
        self._clock = clock
        self._count()
        if concurrent is None and not self._now:
            raise self._too_small()

    def __call__(self) -> int:
        """Trials at once, now; at least one, so that a lost node can come back."""
        if self._clock() - self._at > LOOK_AGAIN_SECONDS:
            self._count()
        return max(1, self.concurrent or 0, self._now)

    def _count(self) -> None:
        self.machines = self._look()
        self._now = sum(machine.room(self.demand) for machine in self.machines)
        self._at = self._clock()

    def describe(self) -> str:
        """The cluster in words."""
        cpus = sum(machine.cpus for machine in self.machines)
        gpus = sum(machine.gpus for machine in self.machines)
        there = ((len(self.machines), "node"), (cpus, "CPU"), (gpus, "GPU"))
        counted = ", ".join(f"{n:g} {unit}{'' if n == 1 else 's'}" for n, unit in there)
        share = f" and {self.demand.gpu:.3g} GPU" if self.demand.gpu else ""
        at_once = self()
        return (
            f"{counted}: {at_once} "
            f"trial{'' if at_once == 1 else 's'} at once, each with {self.demand.cpu:g} CPU{share}"
        )

    def _too_small(self) -> SpecError:
        most = (
            max((machine.cpus for machine in self.machines), default=0),
            max((machine.gpus for machine in self.machines), default=0),
        )
        return SpecError(
            f"resources: a trial needs {self.demand.cpu:g} CPU and {self.demand.gpu:g} GPU, but no "
            f"machine here has more than {most[0]:g} and {most[1]:g}; lower them, or, on a cluster "
            "that scales up, request room for N trials with --concurrent N"
        )
