"""A small suite, and a machine that always has the same pace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweeps.nightly.kit import SEARCHED, Scene, reference_takes


@pytest.fixture
def one_second_of_reference_work(monkeypatch: pytest.MonkeyPatch) -> None:
    reference_takes(monkeypatch, 1.0)


@pytest.fixture
def quick(tmp_path: Path) -> Scene:
    """A suite of one sweep that trains in a moment; no night yet."""
    scene = Scene(tmp_path)
    scene.write_suite(searched=SEARCHED)
    return scene
