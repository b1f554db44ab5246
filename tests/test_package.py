"""What is published: the wheel, installed and tried, and the source distribution that makes it."""

from __future__ import annotations

import email
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.exported import make_rows
from tests.tracked import put_database
from tests.trained import train_sweep

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


def files_of_the_tree(*under: str) -> set[str]:
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *under]
    listed = subprocess.check_output(listing, cwd=ROOT, text=True).split("\0")
    return {name for name in listed if name and (ROOT / name).is_file()}


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What would be committed now, and nothing that was built here."""
    place = tmp_path_factory.mktemp("source") / "calsweep"
    for name in files_of_the_tree():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place / name)
    return place


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return build("wheel", source, source.parent / "direct")


def test_the_wheel_has_what_it_needs_and_nothing_foreign(wheel: Path) -> None:
    names, listed = set(contents(wheel)), files_of_the_tree(*PACKAGES)
    assert listed - names == NOT_IN_THE_WHEEL
    assert {name for name in names if ".dist-info/" not in name} <= listed


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


SPEC = """\
name: tiny
datasets: [{name: blobs-1.7, points: 300, test_points: 200}]
model: {name: mlp, widths: [4]}
methods: {standard: {lr: 0.05, weight_decay: 0}}
training: {epochs: 3, batch_size: full}
confirm_seeds: 2
calibrators: [temperature]
"""


class Call(NamedTuple):
    """A command in its cheapest form that does something, and a piece of what it then prints."""

    line: str
    prints: str
    code: int = 0


# In this order: some go on with what earlier ones have made. Where a command would start a server
# or needs a cluster, it is called without: the message comes from its own code.
CALLS = (
    Call("init --data rows.csv --target label", "rows.yaml: "),
    Call("check tiny.yaml", "trials"),
    Call("schema", '"$defs"'),
    Call("run tiny.yaml", "0 trained now, 0 failed"),
    Call("sync tiny.yaml", "mlflow.db"),
    Call("status", "tiny: "),
    Call("show KEY", "validation"),
    Call("report tiny --format markdown", "| standard"),
    Call("compare tiny tiny", "blobs-1.7: tiny → tiny"),
    Call("ui --store elsewhere", "run a sweep first", 2),
    Call("export tiny --out model", "model"),
    Call("posthoc val.npz test.npz --calibrators temperature --save best.json", "best.json"),
    Call("apply best.json test.npz --out calibrated.npz", "calibrated.npz"),
    Call("nightly --print cron", "* * * "),
    Call("baseline show", "no baseline yet"),
    Call("methods", "bo4sc"),
    Call("datasets", "digits"),
    Call("models", "mlp"),
    Call("calibrators", "temperature"),
    Call("metrics", "nll"),
    Call("samplers", "tpe"),
    Call("specs quickstart", "name: quickstart"),
    Call("completion bash", "complete"),
    Call("submit tiny.yaml --slurm --write job.sh", "job.sh"),
    Call("stop tiny --address http://127.0.0.1:1", "127.0.0.1:1", 2),
    Call("tracking up", "MLFLOW_AUTH_ADMIN_PASSWORD is not set", 2),
)
LISTED = re.compile(r"^ {4}([a-z]+)(?: |$)", re.MULTILINE)
"""A command in the help."""


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel, which borrows all other packages from this one."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    install = ["--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([sys.executable, "-m", "pip", *install, str(wheel)], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    borrowed = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed))
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a finished sweep, a table and stored predictions; nothing of the tree."""
    place = tmp_path_factory.mktemp("place")
    train_sweep(place, SPEC)
    (place / "spec.yaml").rename(place / "tiny.yaml")
    put_database(place / "runs")
    make_rows(200, seed=1).to_csv(place / "rows.csv", index=False)
    draw = np.random.default_rng(0)
    for name in ("val", "test"):
        labels = draw.integers(0, 3, 300)
        logits = 3 * np.eye(3)[labels] + 2 * draw.normal(size=(300, 3))
        np.savez(place / f"{name}.npz", logits=logits, labels=labels)
    return place


def test_every_command_of_the_installed_wheel_works(environment: Path, place: Path) -> None:
    key = next(path.parent.name for path in (place / "runs").rglob("record.json"))
    lines = ["--help", *(call.line.replace("KEY", key) for call in CALLS)]
    asked = {"commands": [shlex.split(line) for line in lines], "packages": PACKAGES}
    done = subprocess.run(
        # Isolated: of the current directory and PYTHONPATH nothing may be imported.
        [str(environment / "bin" / "python"), "-I", str(ROOT / "tests" / "installed.py")],
        input=json.dumps(asked),
        cwd=place,
        env={"PATH": os.defpath, "HOME": str(place), "COLUMNS": "140"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    usage, *results = answer["results"]
    assert set(LISTED.findall(usage["output"])) == {call.line.split()[0] for call in CALLS}
    for call, found in zip(CALLS, results, strict=True):
        assert found["code"] == call.code, f"calsweep {call.line}\n{found['output']}"
        assert call.prints in found["output"], f"calsweep {call.line}\n{found['output']}"
    assert [name for name, file in answer["files"].items() if not inside(file, environment)] == []
    assert {name.partition(".")[0] for name in answer["files"]} == set(PACKAGES)
    for made in (
        "runs/tiny/report.html",
        "model/MLmodel",
        "posthoc/report.html",
        "calibrated.npz",
        "job.sh",
    ):
        assert (place / made).is_file(), made


def inside(file: str, directory: Path) -> bool:
    return Path(file).is_relative_to(directory)


def test_the_script_that_users_type_is_installed(environment: Path, place: Path) -> None:
    command = [str(environment / "bin" / "calsweep"), "--version"]
    assert subprocess.check_output(command, cwd=place, text=True).startswith("calsweep ")
