"""A network of a few parameters in float64, a batch for it, and one step of any method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from calibration.data import Part
from calibration.methods import Batch, Learner, Method, TrainState, make_method
from calibration.models import FunctionalModel
from calibration.optimisers import SGD, Optimiser

CLASSES = 3


class Tiny:
    """A learner, a state and a batch with held-out data; plain gradient descent by default."""

    def __init__(self, *, optimiser: Optimiser | None = None, batch_norm: bool = False) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            middle = nn.BatchNorm1d(5) if batch_norm else nn.Identity()
            module = nn.Sequential(nn.Linear(2, 5), middle, nn.Tanh(), nn.Linear(5, CLASSES))
        model = FunctionalModel(module.double())
        self.learner = Learner(model, optimiser or SGD(momentum=0.0), CLASSES, samples=24)
        self.parameters, self.buffers = model.initial()
        generator = torch.Generator().manual_seed(1)

        def part(size: int) -> Part:
            inputs = 2 * torch.randn(size, 2, generator=generator, dtype=torch.double)
            return Part(inputs, torch.randint(0, CLASSES, (size,), generator=generator))

        inputs, labels = part(24).inputs, part(24).labels
        self.batch = Batch(inputs, labels, torch.arange(24), part(18))

    def start(self, method: Method) -> TrainState:
        optimiser = self.learner.optimiser.initial(self.parameters)
        initial = method.initial(self.learner, self.parameters)
        return TrainState(self.parameters, self.buffers, optimiser, initial)

    def logits(self, parameters: Tensor, inputs: Tensor | None = None) -> Tensor:
        inputs = self.batch.inputs if inputs is None else inputs
        output, _ = self.learner.forward(parameters, self.buffers, inputs, training=True)
        return output.logits

    def gradient(
        self, loss: Callable[[Tensor], Tensor], parameters: Tensor, inputs: Tensor | None = None
    ) -> Tensor:
        """The gradient of a loss of the logits, by plain autograd."""
        leaf = parameters.detach().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(loss(self.logits(leaf, inputs)), leaf)
        return slope

    def numbers(self, method: Method, progress: float = 0.0) -> dict[str, Tensor]:
        numbers = method.numbers(dtype=torch.double, device=torch.device("cpu"))
        return numbers | {"progress": torch.tensor(progress, dtype=torch.double)}

    def step(
        self,
        name: str,
        hyperparameters: dict[str, Any] | None = None,
        *,
        state: TrainState | None = None,
        batch: Batch | None = None,
        progress: float = 0.0,
        seed: int = 0,
    ) -> tuple[TrainState, dict[str, Tensor]]:
        """One step as the trainer makes it."""
        method = make_method(name, hyperparameters or {})
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            return method.step(
                self.learner,
                state or self.start(method),
                batch or self.batch,
                self.numbers(method, progress),
                generator,
            )


@pytest.fixture
def tiny() -> Tiny:
    return Tiny()


@pytest.fixture
def make_tiny() -> type[Tiny]:
    return Tiny


@pytest.fixture
def rows() -> tuple[Tensor, Tensor]:
    """Logits (17, 4) and labels, uneven over the classes."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(17, 4, generator=generator, dtype=torch.double)
    return logits, torch.tensor([0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3])
