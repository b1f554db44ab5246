"""A network or a calibrator that is no longer what was measured does not leave the store."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sweeps.engine.environment import environment
from sweeps.store import StoreError
from tests.exported import Swept

pytestmark = pytest.mark.slow

VALIDATION_ROWS = 75


class Steeper(torch.nn.Module):
    """Nearly tanh."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.tanh(1.0003 * inputs)


def fitting(factor: Callable[[int], float]) -> Callable[[Any, Tensor, Tensor], None]:
    def fit(self: Any, logits: Tensor, labels: Tensor) -> None:
        self.factor = factor(len(logits))

    return fit


def test_a_network_that_does_not_do_what_its_record_says_is_refused(
    swept: Swept, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr("own_model.bent", lambda: torch.nn.ReLU())
    assert swept.export("table", tmp_path / "model") == 1
    assert "has the code of 'own_model:network'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_small_difference_is_rounding_only_where_something_else_rounds(
    swept: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundredth of a percent is too much for the same torch on the same kind of machine."""
    monkeypatch.setattr("own_model.bent", Steeper)
    with pytest.raises(StoreError, match=r"by up to \S+; rounding allows 1e-05") as refused:
        swept.package("table", "standard")
    apart = re.search(r"by up to ([^;\s]+);", str(refused.value))
    assert apart is not None
    assert 1e-5 < float(apart[1]) < 1e-3
    other = environment() | {"torch": "1.0.0"}
    monkeypatch.setattr("sweeps.export.checks.environment", lambda: other)
    assert swept.package("table", "standard").chosen.label == "standard"
    monkeypatch.setattr("own_model.bent", torch.nn.ReLU)
    changed = rf"\(torch {re.escape(environment()['torch'])} then, 1\.0\.0 now\)"
    with pytest.raises(StoreError, match=rf"rounding allows 0\.001.*{changed}"):
        swept.package("table", "standard")


def test_a_map_whose_code_has_changed_is_refused(
    swept: Swept,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = ["--row", "standard + own_model:Halve"]
    monkeypatch.setattr("own_model.Halve._fit", fitting(lambda rows: 0.5 + 1e-4))
    assert swept.export("table", tmp_path / "model", *row) == 1
    said = capsys.readouterr().err
    assert "'own_model:Halve'" in said
    assert re.search(r"nll is [\d.]+, on record [\d.]+", said)
    assert "Its code or the environment has changed since the sweep" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", ["test", "validation"])
def test_both_the_map_and_those_behind_the_threshold_are_checked(
    swept: Swept, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calibrator is fitted on all validation rows, those behind the threshold on parts."""
    changed = fitting(lambda rows: 0.6 if (rows == VALIDATION_ROWS) == (part == "test") else 0.5)
    monkeypatch.setattr("own_model.Halve._fit", changed)
    with pytest.raises(StoreError, match=f"on {part} rows"):
        swept.package("table", "standard + own_model:Halve")
