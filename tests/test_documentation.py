"""The examples in docstrings do what they show."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import calibration.post_hoc
import sweeps
from calibration.metrics import top_label


@pytest.mark.parametrize("module", [top_label, calibration.post_hoc, sweeps])
def test_docstring_examples(
    module: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what an example writes goes there
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0
