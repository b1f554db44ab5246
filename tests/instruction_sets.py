"""The numeric tests as older processors compute them: ``python -m tests.instruction_sets``.

torch, oneDNN, MKL, OpenBLAS, NumPy and the C library each choose their code by what the
processor can do. Told to do with less, they round differently, and the tests must hold all the
same. A processor can play an older one but not a newer one: only what lies below it is run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

LEGS = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_CBWR": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    },
    "default": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-FMA4",
    },
}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
BELOW = {"AVX512": ["avx2", "default"], "AVX2": ["default"]}

NUMERIC = [
    "tests/calibration",
    "tests/sweeps/analysis/test_statistics.py",
    "tests/sweeps/analysis/test_statistics_ranks.py",
    "tests/sweeps/analysis/test_statistics_trend.py",
]
# What reads files, draws, counts, or compares a computation with itself.
LEFT_OUT = [
    *("data", "learners", "plots", "calibrators/test_saving.py", "models/test_backbones.py"),
    *("test_complexity.py", "test_device_traffic.py", "test_method_contract.py"),
    *("test_registry.py", "test_text.py"),
]


def capability() -> str:
    """What torch computes with in this process."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def check(leg: str) -> None:
    """Fail where a library of this process does not do as it was told."""
    import numpy as np
    import scipy.linalg  # noqa: F401  (brings an OpenBLAS of its own)
    from threadpoolctl import threadpool_info

    expected = LEGS[leg]["OPENBLAS_CORETYPE"]
    cores = [i["architecture"] for i in threadpool_info() if i["internal_api"] == "openblas"]
    simd = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    found = {
        "torch": capability() == leg.upper(),
        "OpenBLAS": bool(cores) and set(cores) == {expected},
        "NumPy": not set(simd) & set(LEGS[leg]["NPY_DISABLE_CPU_FEATURES"].split()),
    }
    deaf = [library for library, obeys in found.items() if not obeys]
    if deaf:
        raise SystemExit(f"{leg}: {', '.join(deaf)} computes with other instructions than told")


def run(leg: str, processes: str) -> int:
    """The numeric tests with the leg's environment, which this process has."""
    import pytest

    check(leg)
    ignored = [f"--ignore=tests/calibration/{name}" for name in LEFT_OUT]
    shared = ["--numprocesses", processes, "--dist", "loadfile"]
    return pytest.main(["-q", "-p", "no:cacheprovider", *shared, *ignored, *NUMERIC])


def main() -> int:
    """Each instruction set below this machine's, all at the same time, two processes in all."""
    legs = BELOW.get(capability(), [])
    print(f"this machine computes with {capability()}; below it: {', '.join(legs) or 'nothing'}")
    processes = 1 if len(legs) > 1 else 2
    return max(ThreadPoolExecutor().map(partial(_report, processes), legs), default=0)


def _report(processes: int, leg: str) -> int:
    """Run a leg and print what it said when it is over."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.instruction_sets", leg, str(processes)],
        env=os.environ | ONE_THREAD | LEGS[leg],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(f"the numeric tests with {leg} instructions\n{done.stdout}", flush=True)
    return abs(done.returncode)


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]) if sys.argv[1:] else main())
