"""The examples in docstrings do what they show."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import calibration.calibrators
import sweeps
from calibration.metrics import top_label


@pytest.mark.parametrize(
    "module",
    [top_label, calibration.calibrators, pytest.param(sweeps, marks=pytest.mark.slow)],
)
def test_docstring_examples(
    module: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what an example writes goes there
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0
