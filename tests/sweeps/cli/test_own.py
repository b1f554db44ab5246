"""A user's own data, network, method and calibrators, as the documentation shows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.pages import example, typed_in
from tests.tracked import put_database

pytestmark = pytest.mark.slow

CALIBRATORS = """
from calibration.calibrators import Calibrator


class Broken(Calibrator):
    description = "raises"
    scaling = False
    keeps_argmax = True
    fast = True

    def _fit(self, logits, labels):
        raise LookupError("no such calibrator")

    def _apply(self, logits):
        return logits


class Halve(Calibrator):
    description = "halves all logits"
    scaling = False
    keeps_argmax = True
    fast = True

    def _fit(self, logits, labels):
        pass

    def _apply(self, logits):
        return (logits / 2).softmax(1)
"""


def calsweep(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "calsweep", *arguments]
    environment = os.environ | {"PYTHONPATH": str(directory / "installed"), "COLUMNS": "200"}
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, env=environment)


def records(directory: Path) -> list[dict]:
    return [json.loads(p.read_text()) for p in directory.glob("runs/records/*/record.json")]


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation's torch Dataset and module, swept."""
    directory = tmp_path_factory.mktemp("rings")
    for file in ("mine.py", "rings.yaml"):
        (directory / file).write_text(example(file))
    put_database(directory / "runs")
    done = calsweep(directory, "run", "rings.yaml")
    assert done.returncode == 0, done.stderr + done.stdout
    return directory


def test_a_torch_dataset_and_a_module_are_named_by_import_path(rings: Path) -> None:
    found = records(rings)
    assert len(found) == 2 * (2 + 2)
    assert {record["status"] for record in found} == {"done"}
    assert {record["config"]["model"]["name"] for record in found} == {"mine:Network"}
    # 2·16 + 16 weights and biases of the first layer, 16·2 + 2 of the last.
    assert {record["parameters"] for record in found} == {82}


def test_the_python_example_runs_on_it(rings: Path) -> None:
    code = typed_in("sweeps.run")
    code += "\nassert len(rings.results) == 2 * 2 * 2, rings.results"
    code += "\nassert set(rings.results['calibrator']) == {'identity', 'temperature'}"
    done = subprocess.run([sys.executable, "-c", code], cwd=rings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(records(rings)) == 2 * (2 + 2), "nothing is trained again"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A CSV through ``init`` and ``run``, with a method from an installed package."""
    directory = tmp_path_factory.mktemp("table")
    generator = np.random.default_rng(0)
    size = generator.normal(size=300)
    colour = generator.choice(["red", "green"], 300)
    label = np.where(size + (colour == "red") + generator.normal(size=300) > 0.5, "yes", "no")
    size[::20] = np.nan
    frame = {"id": np.arange(300), "size": size, "colour": colour, "label": label}
    pd.DataFrame(frame).to_csv(directory / "my.csv", index=False)
    package = directory / "package"
    (package / "poly").mkdir(parents=True)
    for file in ("poly/__init__.py", "pyproject.toml"):
        (package / file).write_text(example(file))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, directory / "installed", package], check=True)
    (directory / "maps.py").write_text(CALIBRATORS)
    put_database(directory / "runs")
    made = calsweep(directory, "init", "--data", "my.csv", "--target", "label")
    assert made.returncode == 0, made.stderr
    spec = (directory / "my.yaml").read_text()
    start, end = spec.index("methods: ["), spec.index("training:")
    spec = spec[:start] + "methods: [standard, poly]\n" + spec[end:]
    spec = spec.replace("epochs: 100", "epochs: 5").replace("trials: 12", "trials: 2")
    spec = spec.replace("confirm_seeds: 5", "confirm_seeds: 2")
    spec = spec.replace(
        "calibrators: fast", 'calibrators: [temperature, "maps:Broken", "maps:Halve"]'
    )
    (directory / "my.yaml").write_text(spec)
    done = calsweep(directory, "run", "my.yaml")
    assert done.returncode == 1, done.stderr + done.stdout
    return directory, done.stdout


def test_init_sees_what_is_in_a_table(table: tuple[Path, str]) -> None:
    spec = (table[0] / "my.yaml").read_text()
    assert "'id' is dropped: it looks like a row number" in spec
    assert "values are missing in: size" in spec
    assert "categories: colour" in spec


def test_a_method_of_another_package_is_one_like_any_other(table: tuple[Path, str]) -> None:
    found = records(table[0])
    assert len(found) == 2 * (2 + 2)
    assert {record["config"]["method"] for record in found} == {"standard", "poly"}
    assert {record["status"] for record in found} == {"done"}
    assert "│ poly" in calsweep(table[0], "methods").stdout


def test_a_map_that_raises_costs_its_own_row_and_nothing_else(table: tuple[Path, str]) -> None:
    directory, printed = table
    assert "maps:Broken failed and has no row: LookupError: no such calibrator" in printed
    leaderboard = (directory / "runs" / "my" / "leaderboard.csv").read_text()
    assert "poly,maps:Halve" in leaderboard
    assert "maps:Broken" not in leaderboard
    broken = list(directory.glob("runs/records/*/*/evaluations/*/maps:Broken.json"))
    assert len(broken) == 2 * 2
    assert all("LookupError: no such calibrator" in path.read_text() for path in broken)
