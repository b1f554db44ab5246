from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor


@dataclass(frozen=True)
class Problem:
    """Logits that are ``factor`` times the true log-posterior, and labels drawn from it."""

    logits: Tensor
    labels: Tensor
    posterior: Tensor


@pytest.fixture
def gaussians() -> Callable[..., Problem]:
    """Unit Gaussians around fixed centres μ: the posterior is softmax(μx − μ²/2)."""

    def draw(samples: int, classes: int, factor: float = 1.0, seed: int = 0) -> Problem:
        fixed = torch.Generator().manual_seed(0)
        centres = 1.2 * torch.randn(classes, 4, generator=fixed, dtype=torch.float64)
        generator = torch.Generator().manual_seed(seed + 1)
        labels = torch.randint(classes, (samples,), generator=generator)
        x = centres[labels] + torch.randn(samples, 4, generator=generator, dtype=torch.float64)
        logits = x @ centres.T - centres.square().sum(1) / 2
        return Problem(factor * logits, labels, logits.softmax(1))

    return draw


@pytest.fixture
def binary() -> Callable[..., tuple[Tensor, Tensor]]:
    """Two-class logits with log-odds s, and labels of probability ``truth(s)``."""

    def draw(truth: Callable[[Tensor], Tensor], samples: int, seed: int = 0, spread: float = 2.0):
        generator = torch.Generator().manual_seed(seed)
        s = spread * torch.randn(samples, generator=generator, dtype=torch.float64)
        labels = (torch.rand(samples, generator=generator) < truth(s)).long()
        return torch.stack([torch.zeros_like(s), s], dim=1), labels

    return draw


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``probmetrics.calibrators``, an independent implementation of many of the maps.

    It imports numba for a solver that is not used here; without numba a decorator that does
    nothing takes its place.
    """
    if importlib.util.find_spec("numba") is None:
        stand_in = ModuleType("numba")
        stand_in.njit = lambda *_, **__: lambda function: function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "numba", stand_in)
    return importlib.import_module("probmetrics.calibrators")
