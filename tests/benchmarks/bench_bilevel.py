"""Every hypergradient engine beside torchopt's MetaAdam: time, memory and direction, in one run.

    python -m tests.benchmarks.bench_bilevel

BO4SC's problem: 700 samples of five Gaussian classes weighted one by one, T Adam steps of an MLP
2-64-64-5, the binary cross-entropy of confidence on 300 others; float32, one thread, CPU time.
All start from the same network and Adam state after some training. Their calls alternate, so
that a busy machine slows all alike; times and ratios to the peer are medians over the rounds.
Memory is the most that tensors occupied at a time, direction the cosine to the exact gradient
(flat_unroll in float64).
"""

from __future__ import annotations

import gc
import math
import statistics
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torchopt
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from calibration.bilevel import ENGINES, InnerProblem, make_engine
from calibration.models import FunctionalModel, build_model
from calibration.objectives import confidence_bce
from calibration.optimisers import Adam, OptimiserState

TRAINING, HELD_OUT, CLASSES = 700, 300, 5
STEPS = (1, 5, 10, 20, 50)
WARM_STEPS, LR = 100, 0.01
ROUNDS = 11
DEFAULT, MOST_TIME, LEAST_STEPS = "flat_unroll", 0.8, 5
PEER = "torchopt.MetaAdam"


class Data(NamedTuple):
    inputs: Tensor
    labels: Tensor
    held_out_inputs: Tensor
    held_out_labels: Tensor
    weights: Tensor


class Line(NamedTuple):
    """One engine at one T; a target binds our default engine only."""

    steps: int
    engine: str
    seconds: float
    ratio: float
    peak: int
    cosine: float

    @property
    def bound(self) -> bool:
        return self.engine == DEFAULT and self.steps >= LEAST_STEPS

    @property
    def passed(self) -> bool:
        return not self.bound or self.ratio <= MOST_TIME


def draw() -> Data:
    generator = torch.Generator().manual_seed(0)
    rows = TRAINING + HELD_OUT
    labels = torch.randint(CLASSES, (rows,), generator=generator)
    angles = labels * (2 * math.pi / CLASSES)
    noise = torch.randn(rows, 2, generator=generator)
    inputs = torch.stack([angles.cos(), angles.sin()], dim=1) * 1.5 + noise * 0.7
    weights = 0.5 + torch.rand(TRAINING, generator=generator)
    (x, held_x), (y, held_y) = inputs.split([TRAINING, HELD_OUT]), labels.split([TRAINING, HELD_OUT])
    return Data(x, y, held_x, held_y, weights)


def weighted_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    return (weights * F.cross_entropy(logits, labels, reduction="none")).mean()


class Peer:
    """The same in torchopt's own words; what it starts from is what the engines start from."""

    def __init__(self, data: Data) -> None:
        self.data = data
        torch.manual_seed(0)
        self.network = build_model("mlp", {"widths": [64, 64]}, (2,), CLASSES)
        self.functional = FunctionalModel(self.network)
        self.optimiser = torchopt.MetaAdam(self.network, lr=LR, eps_root=Adam().eps_root)
        for _ in range(WARM_STEPS):
            self.optimiser.step(F.cross_entropy(self.network(data.inputs).logits, data.labels))
            torchopt.stop_gradient(self.network)
            torchopt.stop_gradient(self.optimiser)
        self.saved = [
            torchopt.extract_state_dict(part, by="copy", detach_buffers=True)
            for part in (self.network, self.optimiser)
        ]

    def reset(self) -> None:
        for part, saved in zip((self.network, self.optimiser), self.saved, strict=True):
            torchopt.recover_state_dict(part, saved)

    def hypergradient(self, steps: int) -> Tensor:
        data = self.data
        weights = data.weights.clone().requires_grad_()
        for _ in range(steps):
            logits = self.network(data.inputs).logits
            self.optimiser.step(weighted_loss(logits, data.labels, weights))
        value = confidence_bce(self.network(data.held_out_inputs).logits, data.held_out_labels)
        return torch.autograd.grad(value, weights)[0]

    def start(self) -> tuple[Tensor, OptimiserState]:
        """The parameters and Adam's moments as flat vectors."""
        self.reset()
        (state,) = self.optimiser.state_dict()
        moments = next(part for part in state if hasattr(part, "mu"))

        def flat(tensors: Any) -> Tensor:
            return torch.cat([t.detach().flatten() for t in tensors])

        step = torch.tensor(float(WARM_STEPS))
        named = dict(self.network.named_parameters()) | vars_of(self.network)
        parameters = flat(named[name] for name in self.functional.names)
        return parameters, {"step": step, "mean": flat(moments.mu), "square": flat(moments.nu)}
