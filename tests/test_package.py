"""What is published: the wheel, and the source distribution that makes the same one."""

from __future__ import annotations

import email
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
# In an environment whose setuptools may build: nothing is fetched.
BUILD = """
import sys
from setuptools import build_meta
print(getattr(build_meta, "build_" + sys.argv[1])(sys.argv[2]))
"""
PACKAGES = ("calibration", "sweeps", "cluster")
NOT_IN_THE_WHEEL = {
    "cluster/Dockerfile",  # they build images of a clone
    "cluster/Dockerfile.dockerignore",
    "cluster/README.md",
    "cluster/SCALE.md",
    *(f"sweeps/specs/results/{path.name}" for path in ROOT.glob("sweeps/specs/results/*")),
}


def build(kind: str, source: Path, out: Path) -> Path:
    out.mkdir(exist_ok=True)
    command = [sys.executable, "-c", BUILD, kind, str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as it is committed."""
    place = tmp_path_factory.mktemp("source") / "calsweep"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(place)], check=True)
    return place


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return build("wheel", source, source.parent / "direct")


def test_the_wheel_has_what_it_needs_and_nothing_foreign(wheel: Path, source: Path) -> None:
    names = set(contents(wheel))
    listed = subprocess.check_output(["git", "ls-files", *PACKAGES], cwd=source, text=True)
    left_out = {name for name in listed.split() if name not in names}
    assert left_out == NOT_IN_THE_WHEEL
    assert {name for name in names if ".dist-info/" not in name} <= set(listed.split())


def test_the_source_distribution_makes_the_same_wheel(wheel: Path, source: Path) -> None:
    archive = build("sdist", source, source.parent / "sdist")
    unpacked = source.parent / "unpacked"
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    (inside,) = unpacked.iterdir()
    again = contents(build("wheel", inside, source.parent / "indirect"))
    direct = contents(wheel)
    assert set(again) == set(direct)
    assert [name for name in direct if again[name] != direct[name]] == []


def test_the_metadata_is_complete(wheel: Path) -> None:
    found = contents(wheel)
    about = email.message_from_bytes(found[next(n for n in found if n.endswith("/METADATA"))])
    for field in ("Summary", "Keywords", "License-Expression", "Classifier", "Requires-Python"):
        assert about[field], field
    assert "# calsweep" in str(about.get_payload())
    bounds = [each for each in about.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert [each for each in bounds if ">=" not in each] == []
