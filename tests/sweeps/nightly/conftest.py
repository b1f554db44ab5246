"""A small suite, and a machine that always has the same pace."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.sweeps.nightly.kit import FIRST, SEARCHED, Scene, reference_takes


@pytest.fixture(autouse=True)
def _outside_of_workflows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the tests run in one, messages would link to it."""
    monkeypatch.delenv("GITHUB_RUN_ID", raising=False)


@pytest.fixture
def one_second_of_reference_work(monkeypatch: pytest.MonkeyPatch) -> None:
    reference_takes(monkeypatch, 1.0)


@pytest.fixture
def quick(tmp_path: Path) -> Scene:
    """A suite of one sweep that trains in a moment; no night yet."""
    scene = Scene(tmp_path)
    scene.write_suite(searched=SEARCHED)
    return scene


@pytest.fixture(scope="session")
def first_night(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The same suite after its first night; to be copied."""
    scene = Scene(tmp_path_factory.mktemp("first"))
    scene.write_suite(searched=SEARCHED)
    with pytest.MonkeyPatch.context() as patch:
        reference_takes(patch, 1.0)
        assert scene.run(FIRST).first
    return scene


@pytest.fixture
def begun(first_night: Scene, tmp_path: Path) -> Scene:
    """A suite of one sweep, with one complete night."""
    scene = Scene(Path(shutil.copytree(first_night.directory, tmp_path / "copy")))
    scene.trained = list(first_night.trained)
    return scene
