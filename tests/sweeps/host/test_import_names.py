"""Another distribution's package of our name is named instead of failing strangely."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUN = "import sys; from sweeps.cli.entry import main; sys.exit(main())"


def calsweep(directory: Path, installed: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """``calsweep metrics`` with ``installed`` as the place of the packages."""
    return subprocess.run(
        [sys.executable, "-P", "-c", RUN, "metrics"],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("name", ["calibration", "cluster"])
@pytest.mark.parametrize("form", ["{}.py", "{}/__init__.py"])
def test_a_module_of_that_name_in_the_working_directory_is_named(
    tmp_path: Path, name: str, form: str
) -> None:
    place = tmp_path / form.format(name)
    place.parent.mkdir(exist_ok=True)
    place.write_text("raise ImportError('strange')\n")
    done = calsweep(tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"calsweep: the package {name!r} would be imported from {place}")


def test_files_that_another_distribution_has_replaced_are_named(tmp_path: Path) -> None:
    for package in ("calibration", "cluster", "sweeps"):
        shutil.copytree(ROOT / package, tmp_path / "site" / package)
    replaced = tmp_path / "site" / "calibration" / "__init__.py"
    replaced.write_text("from calibration.binary import PlattCalibrator\n")
    done = calsweep(tmp_path, installed=tmp_path / "site")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"from {replaced}" in done.stderr
    assert "'uncertainty-calibration'" in done.stderr


def test_a_directory_without_such_modules_changes_nothing(tmp_path: Path) -> None:
    done = calsweep(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ece" in done.stdout
