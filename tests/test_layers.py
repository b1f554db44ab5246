"""Imports point one way: cluster → sweeps → calibration, and likewise between sweeps' rooms."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "calibration": {"sweeps", "cluster", "ray", "optuna", "mlflow"},
    "sweeps": {"cluster"},
}
LEAVES = {"errors", "host", "specs"}
# What each room of sweeps may import besides itself and the leaves. Rooms that present results
# import only values from the engine: what a trial is, and what it was made with.
ROOMS = {
    "errors": set(),
    "host": set(),
    "specs": set(),
    "store": set(),
    "search": {"store"},
    "spec": {"search", "store"},
    "engine": {"search", "spec", "store"},
    "ray_backend": {"engine", "search", "spec", "store"},
    "analysis": {"engine.identity", "spec", "store"},
    "tracking": {"analysis", "engine", "spec", "store"},
    "report": {"analysis", "engine.networks", "spec", "store"},
    "posthoc": {"analysis", "report"},
    "status": {"engine", "store"},
    # The object that users hold in Python; it passes its records on to report and export.
    "sweep": {"analysis", "engine", "export", "report", "spec", "store"},
    "export": {
        *("analysis", "engine.environment", "engine.identity", "engine.networks"),
        *("engine.predictions", "report", "spec", "store", "tracking"),
    },
    "runner": {
        *("analysis", "engine", "ray_backend", "report", "search", "spec", "status", "store"),
        *("sweep", "tracking"),
    },
    "nightly": {
        *("analysis", "engine.environment", "engine.reference_work", "ray_backend.user_code"),
        *("report", "search", "spec", "store", "sweep", "tracking"),
    },
    "cli": {
        *("analysis", "engine", "export", "nightly", "posthoc", "ray_backend", "report", "runner"),
        *("search", "spec", "status", "store", "sweep", "tracking"),
    },
    "__init__": {"runner", "sweep"},
}
NIGHTLY = {
    "archive": set(),
    "judge": {"archive"},
    "report": {"archive", "judge"},
    "run": {"archive", "judge", "report"},
    "schedule": {"report", "run"},
    "watch": {"archive", "run"},
}
"""What each room of the nightly may import besides itself."""
HOMES = {
    "ray": ("sweeps/ray_backend/", "cluster/"),
    "mlflow": ("sweeps/tracking/mlflow/", "sweeps/export/", "cluster/"),
    "optuna": ("sweeps/search/",),
}


@cache
def imports(path: Path) -> tuple[str, ...]:
    """The dotted names that a file imports, including lazily and for type checking."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: the rules are about absolute names"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def sources(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert found
    return found


def room_of(path: Path) -> str:
    first = path.relative_to(ROOT / "sweeps").parts[0]
    return first.removesuffix(".py")


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_point_one_way(package: str) -> None:
    wrong = {
        (str(path.relative_to(ROOT)), name)
        for path in sources(package)
        for name in imports(path)
        if name.split(".")[0] in FORBIDDEN[package]
    }
    assert wrong == set()


def test_every_room_has_its_rule() -> None:
    assert {room_of(path) for path in sources("sweeps")} == ROOMS.keys()


def test_the_rules_have_no_cycle() -> None:
    rules = {room: {each.split(".")[0] for each in may} for room, may in ROOMS.items()}
    for order in (rules, NIGHTLY):
        tuple(TopologicalSorter(order).static_order())  # raises CycleError, with the cycle


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_it_may(room: str) -> None:
    allowed = {room, *(LEAVES if room not in LEAVES else {"errors"}), *ROOMS[room]}
    wrong = {
        (str(path.relative_to(ROOT)), name)
        for path in sources("sweeps")
        if room_of(path) == room
        for name in imports(path)
        if name.startswith("sweeps.")
        and not any(f"{name}.".startswith(f"sweeps.{each}.") for each in allowed)
    }
    assert wrong == set()


def test_the_rooms_of_the_nightly_know_only_those_before_them() -> None:
    home = ROOT / "sweeps" / "nightly"
    wrong = set()
    for path in sorted(home.rglob("*.py")):
        room = path.relative_to(home).parts[0].removesuffix(".py")
        for name in imports(path):
            if name.startswith("sweeps.nightly."):
                allowed = {room, *NIGHTLY[room]}
                wrong |= set() if name.split(".")[2] in allowed else {(room, name)}
    assert wrong == set()


@pytest.mark.parametrize("library", HOMES)
def test_a_backend_is_imported_in_its_own_rooms(library: str) -> None:
    wrong = [
        name
        for package in ("calibration", "sweeps", "cluster")
        for path in sources(package)
        if library in {each.split(".")[0] for each in imports(path)}
        and not (name := str(path.relative_to(ROOT))).startswith(HOMES[library])
    ]
    assert wrong == []


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
