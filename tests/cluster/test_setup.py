"""What prepares a machine (``cluster/setup.sh``) and what runs a sweep there (``sweep.py``)."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CLUSTER = Path(__file__).parents[2] / "cluster"
# A Python that makes an environment of itself and writes down what it is asked to install.
STUB = """#!/bin/sh
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip install "*) echo "$@" >> "$HOME/installed" && [ ! -e "$HOME/broken" ] ;;
esac
"""
COMMAND = """
import sys
def main(arguments):
    print(*arguments)
    return 7
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A machine to which the launcher has brought the project and the token."""
    project = tmp_path / "calsweep"
    (project / "cluster").mkdir(parents=True)
    shutil.copy(CLUSTER / "setup.sh", project / "cluster")
    for name in ("pyproject.toml", "constraints.txt"):
        (project / name).write_text(name)
    (tmp_path / ".ray").mkdir()
    token = tmp_path / ".ray" / "auth_token"
    token.write_text("0" * 64)
    token.chmod(0o644)
    stub = tmp_path / "stub"
    stub.write_text(STUB)
    stub.chmod(0o755)
    return tmp_path


def set_up(home: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    settings = {"HOME": str(home), "PATH": os.environ["PATH"]} | settings
    script = home / "calsweep" / "cluster" / "setup.sh"
    return subprocess.run(["bash", str(script)], env=settings, capture_output=True, text=True)


def settled(home: Path) -> list[str]:
    """Store, mode and the first place of the PATH in a login shell, as the launcher opens it."""
    shell = 'echo "$CALSWEEP_STORE" "$RAY_AUTH_MODE" "${PATH%%:*}"'
    done = subprocess.run(
        ["bash", "--login", "-i", "-c", f"source ~/.bashrc; {shell}"],
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


def test_an_environment_of_ones_own_is_used_as_it_is(home: Path) -> None:
    for store in ("/mnt/runs", "s3://bucket/some runs"):
        done = set_up(home, CALSWEEP_STORE=store, CALSWEEP_VENV=sys.prefix)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert settled(home) == [*store.split(), "token", f"{sys.prefix}/bin"]
    assert (home / ".bashrc").read_text().count(".calsweep.env") == 1
    assert stat.S_IMODE((home / ".ray" / "auth_token").stat().st_mode) == 0o600
    assert not (Path(sys.prefix) / ".calsweep").exists()


def test_a_new_environment_is_made_once_and_repaired_when_it_must_be(home: Path) -> None:
    def installed() -> list[str]:
        done = set_up(home, CALSWEEP_STORE="/runs", CALSWEEP_EXTRAS="s3", **python)
        outcomes.append(done.returncode)
        return (home / "installed").read_text().splitlines()

    outcomes: list[int] = []
    python = {"CALSWEEP_PYTHON": str(home / "stub"), "CALSWEEP_PIP": "boto3 gcsfs"}
    (home / "broken").touch()  # the network fails in the middle of the first attempt
    (first,) = installed()
    assert f"--constraint {home}/calsweep/constraints.txt" in first
    assert first.endswith(f"--editable {home}/calsweep[s3] boto3 gcsfs")
    (home / "broken").unlink()
    assert installed() == [first, first]
    assert installed() == [first, first], "all is there"
    (home / "calsweep" / "constraints.txt").write_text("another version")
    assert installed() == [first, first, first]
    assert outcomes == [1, 0, 0, 0]
    assert settled(home)[-1] == f"{home}/calsweep-venv/bin"


def test_what_is_missing_is_named(home: Path) -> None:
    assert "CALSWEEP_STORE is not set" in set_up(home).stderr
    (home / "bare" / "bin").mkdir(parents=True)
    (home / "bare" / "bin" / "python").symlink_to("/bin/false")
    bare = set_up(home, CALSWEEP_STORE="/runs", CALSWEEP_VENV=str(home / "bare"))
    assert f"{home}/bare has no calsweep" in bare.stderr
    (home / ".ray" / "auth_token").unlink()
    open_ = set_up(home, CALSWEEP_STORE="/runs")
    assert open_.returncode == 1
    assert "ray get-auth-token --generate" in open_.stderr


def sweep(home: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """The script, alone in the home directory as ``ray submit`` puts it there."""
    shutil.copy(CLUSTER / "sweep.py", home)
    package = home / "calsweep" / "sweeps" / "cli"
    package.mkdir(parents=True, exist_ok=True)
    for directory in (package.parent, package):
        (directory / "__init__.py").touch()
    (package / "main.py").write_text(COMMAND)
    return subprocess.run(
        [sys.executable, str(home / "sweep.py"), *arguments],
        env={"HOME": str(home), "PATH": os.environ["PATH"]} | settings,
        capture_output=True,
        text=True,
    )


def test_the_script_runs_the_project_that_was_brought(home: Path) -> None:
    done = sweep(home, "digits", "--extend", "3", CALSWEEP_STORE="s3://b/runs")
    assert done.stdout == "run digits --extend 3 --address auto --store s3://b/runs\n"
    assert done.returncode == 7
    done = sweep(home, "digits", "--store=/mnt", "--address=h:1", CALSWEEP_STORE="s3://b/runs")
    assert done.stdout == "run digits --store=/mnt --address=h:1\n"


def test_the_script_says_what_it_needs(home: Path) -> None:
    for arguments, complaint in [((), "usage: sweep.py SPEC"), (("digits",), "CALSWEEP_STORE")]:
        done = sweep(home, *arguments)
        assert done.returncode == 2
        assert complaint in done.stderr
