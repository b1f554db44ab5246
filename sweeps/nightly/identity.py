"""What a night was made with: code, libraries, machine, specs and data, each as a short text.

Two nights with the same identity should be identical to the bit; where they are not, the
entries that differ are the suspects.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import torch

import calibration
import sweeps
from sweeps.nightly.suite import LoadedSuite
from sweeps.trial import environment

FURTHER_VERSIONS = ("pandas", "scikit-learn", "torchopt")
MOST_COMMITS = 20
REVISION = re.compile(r"[0-9a-f]{7,40}")


class Change(NamedTuple):
    """An entry of the identity that is not what it was; empty where there was or is none."""

    what: str
    before: str
    now: str


def identity(suite: LoadedSuite) -> dict[str, str]:
    """All that should determine tonight's numbers, by name."""
    found = {name: value for name, value in environment().items() if name != "machine"}
    found |= {name: _version(name) for name in FURTHER_VERSIONS}
    found |= {
        "torch": f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}",
        "code": _code(),
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "suite": _digest(suite.text.encode()),
    }
    for name, sweep in suite.sweeps.items():
        found[f"spec {name}"] = _digest(sweep.text.encode())
        for dataset, data in sweep.datasets.items():
            found[f"data {dataset}"] = str(data.fingerprint)
    return {name: value for name, value in found.items() if value}


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[Change]:
    """What differs between two identities, in the order of the second."""
    names = dict.fromkeys((*now, *before))
    pairs = ((name, before.get(name, ""), now.get(name, "")) for name in names)
    return [Change(*each) for each in pairs if each[1] != each[2]]


def commits(before: str, now: str) -> list[str]:
    """The commits from one revision to another, newest first, where this is a checkout of both."""
    first, last = (REVISION.match(revision) for revision in (before, now))
    root = Path(sweeps.__file__).parent.parent
    if not (first and last) or first[0] == last[0] or not (root / ".git").exists():
        return []
    command = ["git", "log", "--format=%h %s", f"-{MOST_COMMITS}", f"{first[0]}..{last[0]}"]
    try:
        found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return found.stdout.splitlines()


def _code() -> str:
    """A digest of the two packages' sources: a revision says nothing of what is not committed."""
    summed = hashlib.sha256()
    for package in (calibration, sweeps):
        root = Path(str(package.__file__)).parent
        for file in sorted(root.rglob("*.py")):
            summed.update(f"{root.name}/{file.relative_to(root)}\n".encode())
            summed.update(file.read_bytes())
    return summed.hexdigest()[:12]


def _cpu() -> str:
    """The processor's name, as Linux tells it; elsewhere what Python knows."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
