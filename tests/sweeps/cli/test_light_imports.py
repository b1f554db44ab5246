"""Commands that only look at something start without what only a sweep needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import SPEC

SWEEPING = {"matplotlib", "mlflow", "ray"}
COMPUTING = {"pandas", "pydantic", "scipy", "sklearn", "torch"}
LISTINGS = ("methods", "datasets", "models", "calibrators", "metrics", "samplers", "schema")
CODE = """
import sys
from sweeps.cli.main import main
codes = []
for line in sys.argv[1:]:
    try:
        codes.append(main(line.split()))
    except SystemExit as stop:
        codes.append(stop.code)
sys.stderr.write(f"\\n{codes} {' '.join(sys.modules)}")
"""


def imported(directory: Path, *lines: str, code: int) -> set[str]:
    """The packages that these commands, one after the other, have imported."""
    command = [sys.executable, "-c", CODE, *lines]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    codes, _, modules = done.stderr.splitlines()[-1].partition("] ")
    assert codes == f"{[code] * len(lines)}"[:-1], done.stderr
    assert "sweeps.cli.main" in modules
    assert "cluster.job_commands" in modules, "the plug-ins belong to it"
    return {name.partition(".")[0] for name in modules.split()}


def test_the_help_imports_nothing_that_computes(tmp_path: Path) -> None:
    lines = ("--help", "run --help", "posthoc --help", "submit --help")
    assert imported(tmp_path, *lines, code=0).isdisjoint(SWEEPING | COMPUTING)


def test_a_bad_file_of_predictions_is_refused_by_numpy_alone(tmp_path: Path) -> None:
    scores, labels = np.full((20, 2), np.nan), np.arange(20) % 2
    np.savez(tmp_path / "unlabelled.npz", logits=scores)
    np.savez(tmp_path / "infinite.npz", logits=scores, labels=labels)
    (tmp_path / "junk.npz").write_text("junk")
    names = ("unlabelled.npz", "infinite.npz", "junk.npz", "none.npz", "none.csv")
    lines = [f"posthoc {name}" for name in names]
    assert imported(tmp_path, *lines, code=2).isdisjoint(SWEEPING | COMPUTING)


def test_a_table_of_predictions_is_read_without_torch(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("label,prob_a,prob_b\na,0.5,0.6\n")
    found = imported(tmp_path, "posthoc bad.csv", code=2)
    assert found.isdisjoint({"torch", "sklearn", *SWEEPING})


@pytest.mark.slow
def test_what_trains_nothing_imports_neither_ray_nor_mlflow_nor_matplotlib(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SPEC)
    rows = "".join(f"{number / 7},{'ab'[number % 2]}\n" for number in range(60))
    (tmp_path / "mine.csv").write_text(f"x,kind\n{rows}")
    lines = ("check tiny.yaml", "init --data mine.csv --target kind", "status", *LISTINGS)
    found = imported(tmp_path, *lines, code=0)
    assert found.isdisjoint(SWEEPING)
    assert "torch" in found
