"""Imports point one way: cluster → sweeps → calibration, which knows no Ray, Optuna or MLflow."""

from __future__ import annotations

import ast
import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "calibration": {"sweeps", "cluster", "ray", "optuna", "mlflow"},
    "sweeps": {"cluster"},
}


def imported_packages(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_point_one_way(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert files
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in files
        if (found := imported_packages(path) & FORBIDDEN[package])
    }
    assert wrong == {}


@pytest.mark.parametrize("package", ["statistics", "analysis", "search", "store", "spec"])
def test_what_is_reported_knows_nothing_of_the_report(package: str) -> None:
    later = re.compile(r"^\s*(?:from|import) sweeps\.(report|tracking|commands)\b", re.MULTILINE)
    files = list((ROOT / "sweeps" / package).rglob("*.py"))
    assert files
    assert [path.name for path in files if later.search(path.read_text())] == []


def test_the_search_knows_nothing_of_the_spec() -> None:
    below = re.compile(
        r"^\s*(?:from|import) sweeps\.(?!search\b|errors\b|host\b|store\b)", re.MULTILINE
    )
    files = list((ROOT / "sweeps" / "search").rglob("*.py"))
    assert files
    assert [path.name for path in files if below.search(path.read_text())] == []


def test_every_direct_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[\[<>=]", line)[0].lower() for line in wanted}
    pinned = {
        line.split("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    }
    assert names <= pinned
