"""How much of a machine a sweep takes: never more than a scheduler or container leaves to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.host.allocation import affinity, allocated_gpus, cpu_quota, cpus, fewest_cpus

JOB = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}


@pytest.mark.parametrize(
    ("mask", "quota", "slurm", "count", "limit"),
    [
        (64, None, None, 64, ""),
        (4, None, None, 4, "mask"),
        (64, 2.5, None, 2, "quota"),
        (64, 0.5, None, 1, "quota"),
        (64, None, "4", 4, "Slurm"),
        (8, 6.0, "12", 6, "quota"),
        (8, 16.0, "12", 8, "mask"),
        (8, 16.0, "3", 3, "Slurm"),
        (64, None, "all", 64, ""),
    ],
)
def test_the_fewest_cpus_count(
    mask: int, quota: float | None, slurm: str | None, count: int, limit: str
) -> None:
    environment = {} if slurm is None else {"SLURM_CPUS_ON_NODE": slurm}
    found = fewest_cpus(64, mask, quota, environment)
    assert found.number == count
    assert limit in found.limit
    assert bool(limit) == bool(found.limit)


@pytest.mark.parametrize(
    ("environment", "gpus"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, None),
        ({"SLURM_JOB_ID": "7"}, None),  # salloc's shell, on the login node
        (JOB, 0),  # it may see the GPUs of others, and has none
        (JOB | {"CUDA_VISIBLE_DEVICES": "2,3"}, 2),  # Slurm does not manage them
        (JOB | {"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1"}, 2),
        (JOB | {"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "1"}, 1),
        (JOB | {"SLURM_JOB_GPUS": "2,3", "SLURM_STEP_GPUS": "3"}, 1),
        (JOB | {"SLURM_GPUS_ON_NODE": "4"}, 4),
        (JOB | {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 0),
        (JOB | {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,-1,1"}, 1),
        (JOB | {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": ""}, 0),
    ],
)
def test_gpus_are_those_of_the_allocation(environment: dict[str, str], gpus: int | None) -> None:
    assert allocated_gpus(environment) == gpus


def files(root: Path, contents: dict[str, str]) -> Path:
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_quota_of_a_group_of_version_2_and_of_those_above(tmp_path: Path) -> None:
    group = "system.slice/slurmstepd.scope/job_7"
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": f"0::/{group}\n",
            f"sys/fs/cgroup/{group}/cpu.max": "max 100000\n",
            "sys/fs/cgroup/system.slice/cpu.max": "350000 100000\n",
            "sys/fs/cgroup/user.slice/cpu.max": "100000 100000\n",
        },
    )
    assert cpu_quota(root) == 3.5


def test_quota_of_a_group_of_version_1(tmp_path: Path) -> None:
    lines = "9:memory:/other\n4:cpu,cpuacct:/slurm/uid_5/job_7\n3:cpuset:/x\n0::/\n"
    place = "sys/fs/cgroup/cpu,cpuacct/slurm/uid_5"
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": lines,
            f"{place}/job_7/cpu.cfs_quota_us": "400000\n",
            f"{place}/job_7/cpu.cfs_period_us": "200000\n",
            f"{place}/cpu.cfs_quota_us": "-1\n",
            f"{place}/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cpu_quota(root) == 2


def test_quota_of_a_container_whose_group_has_another_name_outside(tmp_path: Path) -> None:
    contents = {"proc/self/cgroup": "0::/kubepods/pod1\n", "sys/fs/cgroup/cpu.max": "150000 100000"}
    assert cpu_quota(files(tmp_path, contents)) == 1.5


def test_no_group_no_limit(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    contents = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "broken"}
    assert cpu_quota(files(tmp_path, contents)) is None


def test_this_machine_has_what_its_kernel_says() -> None:
    allowed = os.sched_getaffinity(0)
    assert affinity() == len(allowed)
    assert 1 <= cpus().number <= len(allowed)
    code = "from sweeps.host.allocation import cpus; print(*cpus(), sep='|')"
    one = ["taskset", "--cpu-list", str(min(allowed)), sys.executable, "-c", code]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    said = subprocess.run(one, capture_output=True, text=True, check=True, env=environment).stdout
    assert int(said.split("|")[0]) == 1
