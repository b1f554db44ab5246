"""The part of this machine that a sweep may use: the allocation of a scheduler or container.

A shared machine has more cores than each user is allocated. Ray counts them all, so a job
with four of 64 cores would start 64 trials.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_NO_GPU = re.compile(r"-\d+|NoDevFiles|none|void", re.IGNORECASE)
"""Entries of CUDA_VISIBLE_DEVICES at which CUDA stops reading: no GPU is visible."""


class Cpus(NamedTuple):
    """How many CPUs may be used, and which limit applies: empty if it is the machine itself."""

    number: int
    limit: str


def cpus() -> Cpus:
    """The CPUs that this process may use: the minimum of mask, control group and Slurm."""
    return fewest_cpus(os.cpu_count() or 1, affinity(), cpu_quota(), os.environ)


def gpus() -> int | None:
    """The GPUs of Slurm's allocation; None outside Slurm, where Ray may count."""
    return allocated_gpus(os.environ)


def fewest_cpus(
    machine: int, mask: int, quota: float | None, environment: Mapping[str, str]
) -> Cpus:
    """The minimum of all limits, at least 1; a fraction of a CPU is not counted."""
    slurm = _whole(environment.get("SLURM_CPUS_ON_NODE", ""))
    limits = {
        "": machine,
        "the CPU affinity mask": mask,
        "the control group's quota": machine if quota is None else int(quota),
        "Slurm's allocation": machine if slurm is None else slurm,
    }
    limit = min(limits, key=lambda name: limits[name])
    return Cpus(max(1, limits[limit]), limit)


def allocated_gpus(environment: Mapping[str, str]) -> int | None:
    """The GPUs that a Slurm job has on its node; None outside of jobs.

    A job that was allocated none has none, even if it can see those of others. If Slurm does
    not manage the GPUs, CUDA_VISIBLE_DEVICES says which may be used.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if "SLURM_JOB_ID" not in environment or "SLURMD_NODENAME" not in environment:
        return None
    counts = [] if visible is None else [_visible(visible)]
    listed = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS")
    on_node = _whole(environment.get("SLURM_GPUS_ON_NODE", ""))
    if listed:
        counts.append(len(listed.split(",")))
    elif on_node is not None:
        counts.append(on_node)
    return min(counts, default=0)


def affinity() -> int:
    """The CPUs of the process's mask; all of them where there are no masks."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The CPU quota of the process's control groups, version 1 or 2; None if unlimited.

    A group is also limited by those above it. In a container the paths of the groups above it
    do not exist, and the root of the file system is the container's own group.
    """
    return min(_quotas(root), default=None)


def _quotas(root: Path) -> Iterator[float]:
    top = root / "sys/fs/cgroup"
    for controllers, group in _groups(root):
        if controllers:  # version 1: one tree for each controller
            for mounted in {controllers, "cpu"}:
                for place in _upwards(top / mounted, group):
                    yield from _quota(place, "cpu.cfs_quota_us", "cpu.cfs_period_us")
        else:
            for mounted in ("", "unified"):  # the latter where version 1 is in use beside it
                for place in _upwards(top / mounted, group):
                    yield from _quota(place, "cpu.max")


def _groups(root: Path) -> Iterator[tuple[str, str]]:
    """The controllers and the path of every control group that may limit CPUs."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            yield controllers, group


def _upwards(top: Path, group: str) -> Iterator[Path]:
    place = top / group.strip("/")
    yield from (each for each in (place, *place.parents) if each.is_relative_to(top))


def _quota(place: Path, *files: str) -> Iterator[float]:
    words = " ".join(_text(place / name) for name in files).split()
    # Version 2 says "max" where there is no limit, version 1 says -1.
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
        yield int(words[0]) / int(words[1])


def _visible(devices: str) -> int:
    names = [name.strip() for name in devices.split(",") if name.strip()]
    return next((i for i, name in enumerate(names) if _NO_GPU.fullmatch(name)), len(names))


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
