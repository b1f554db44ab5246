"""What a trial was made with: versions of libraries, the machine, the revision of the code."""

from __future__ import annotations

import platform
import re
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from sweeps.host.nvidia import driver_version

RECORDED_VERSIONS = (
    *("calsweep", "mlflow", "numpy", "optuna", "ray", "scikit-learn", "scipy", "torch"),
)


@cache
def environment(device: str = "cpu", library: str = "") -> dict[str, str]:
    """Versions and machine, recorded with every trial: where they agree, so do results, to the bit.

    ``library`` is the package of an estimator or a backbone.
    """
    found = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "gpu": _gpu(device),
        "driver": driver_version() if device.startswith("cuda") else "",
        "cuda": str(torch.version.cuda or "") if device.startswith("cuda") else "",
        "git": _git_revision(),
    } | {name: version(name) for name in RECORDED_VERSIONS}
    found["torch"] = str(torch.__version__)  # with its build: +cpu, +cu126
    with suppress(PackageNotFoundError):  # a user's own module, not an installed package
        found |= {library: version(library)} if library else {}
    return {name: value for name, value in found.items() if value or name == "git"}


def _gpu(device: str) -> str:
    """The name of the device, if it is a GPU that can be queried."""
    try:
        return torch.cuda.get_device_name(device) if device.startswith("cuda") else ""
    except (RuntimeError, AssertionError):  # the trial's record will say what is wrong with it
        return ""


def _cpu() -> str:
    """The processor's name, as Linux reports it; elsewhere as Python does."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor()


def _git_revision() -> str:
    """The revision of the checkout this package runs from; empty when it is installed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()
