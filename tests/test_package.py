"""What ``pip install .`` brings: the command, the ready specs, templates, type information."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def test_the_wheel_has_the_command_the_specs_and_nothing_foreign(tmp_path: Path) -> None:
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(source)],
        check=True,
    )
    (wheel,) = tmp_path.glob("calsweep-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entry_points = next(n for n in names if n.endswith("entry_points.txt"))
        assert "calsweep = sweeps.cli.entry:main" in archive.read(entry_points).decode()
    assert "sweeps/specs/quickstart.yaml" in names
    templates = (ROOT / "sweeps" / "report" / "templates").iterdir()
    assert {f"sweeps/report/templates/{each.name}" for each in templates} <= set(names)
    assert "cluster/slurm/job.sh.j2" in names
    assert "calibration/py.typed" in names
    packages = {name.split("/")[0] for name in names if "dist-info" not in name}
    assert packages == {"calibration", "sweeps", "cluster"}
