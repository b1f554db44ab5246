"""The identity of a night: code, libraries, machine, specs and data, each as a short text.

Two nights with the same identity should be bit-identical; if they are not, the entries that
differ are the suspects.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

import torch

import calibration
import sweeps
from sweeps.engine.environment import environment
from sweeps.nightly.run.suite import LoadedSuite
from sweeps.ray_backend.user_code import OURS, import_paths, local_modules

FURTHER_VERSIONS = ("pandas", "scikit-learn", "torchopt")
COMMANDS = "calsweep.commands"
"""The one group of entry points that does not affect training."""


def identity(suite: LoadedSuite, *, elsewhere: bool = False) -> dict[str, str]:
    """Everything that should determine tonight's numbers, by name.

    If training runs ``elsewhere``, on a cluster, processor and system are only those of the
    driver's machine, and are named accordingly.
    """
    here = " of this machine" if elsewhere else ""
    recorded = environment()
    found = {n: v for n, v in recorded.items() if n not in ("cpu", "instructions", "machine")}
    found |= {name: _version(name) for name in FURTHER_VERSIONS}
    found |= {
        "torch": f"{torch.__version__}, {recorded['instructions']}",
        "code": _code(),
        "modules": _modules(suite),
        f"cpu{here}": recorded.get("cpu", ""),
        f"cores{here}": str(os.cpu_count()),
        f"system{here}": f"{platform.system()} {platform.machine()}",
        f"gpu{here}": _gpus(),
        f"gpu driver{here}": _gpu_driver(),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "site customisation": _site_customisation(),
        "suite": _digest(suite.text.encode()),
    }
    for name, sweep in suite.sweeps.items():
        found[f"spec {name}"] = _digest(sweep.text.encode())
        for dataset, data in sweep.datasets.items():
            found[f"data {name} {dataset}"] = str(data.fingerprint)
    return {name: value for name, value in found.items() if value}


def _code() -> str:
    """A digest of the two packages' sources: a revision does not cover uncommitted changes."""
    return _sources(Path(str(package.__file__)).parent for package in (calibration, sweeps))


def _modules(suite: LoadedSuite) -> str:
    """A digest of modules added by import path or entry point; empty if there are none."""
    written = [sweep.written for sweep in suite.sweeps.values()]
    groups = (each for each in entry_points().groups if each.startswith("calsweep."))
    names = [
        point.module for each in groups if each != COMMANDS for point in entry_points(group=each)
    ]
    for each in written:
        names += import_paths(each)
    places = {place for name in names for place in _places(name.partition(".")[0])}
    # Including modules that these import from their own directory.
    places |= {Path.cwd() / name for each in written for name in local_modules(each, Path.cwd())}
    return _sources(sorted(places)) if places else ""


def _gpus() -> str:
    """The names of this machine's GPUs."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ", ".join(torch.cuda.get_device_name(index) for index in range(count))


def _gpu_driver(place: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The driver's version, as reported by its kernel module."""
    try:
        found = re.search(r"Kernel Module.*?\s(\d[\d.]+)\s", place.read_text())
    except OSError:
        return ""
    return found[1] if found else ""


def _site_customisation() -> str:
    """A digest of code that Python runs at startup: customising modules and ``.pth`` files."""
    summed, found = hashlib.sha256(), False
    for name in ("sitecustomize", "usercustomize"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.has_location and spec.origin:
            summed.update(name.encode() + Path(spec.origin).read_bytes())
            found = True
    for directory in sorted({path for path in sys.path if path.endswith("-packages")}):
        for file in sorted(Path(directory).glob("*.pth")):
            code = [line for line in file.read_bytes().splitlines() if line.startswith(b"import")]
            if code:
                summed.update(file.name.encode() + b"\n".join(code))
                found = True
    return summed.hexdigest()[:12] if found else ""


def _places(package: str) -> Iterator[Path]:
    """The directory of a third-party package, or the file of a module."""
    found = None if package in OURS else importlib.util.find_spec(package)
    if found is None:
        return
    if found.submodule_search_locations:
        yield from map(Path, found.submodule_search_locations)
    elif found.has_location and found.origin:
        yield Path(found.origin)


def _sources(places: Iterable[Path]) -> str:
    """A digest of files, and of all modules below directories."""
    summed = hashlib.sha256()
    for place in places:
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            summed.update(f"{place.name}/{file.relative_to(place)}\n".encode())
            summed.update(file.read_bytes())
    return summed.hexdigest()[:12]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
