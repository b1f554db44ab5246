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
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

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
DEFAULT, MOST_TIME, LEAST_STEPS = "flat_unroll", 0.8, 5
PEER = "torchopt.MetaAdam"


class Data(NamedTuple):
    inputs: Tensor
    labels: Tensor
    held_out_inputs: Tensor
    held_out_labels: Tensor
    weights: Tensor


class Line(NamedTuple):
    """One engine at one T; the target binds our default engine only."""

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


class Contender(Protocol):
    """Something to be timed; ``reset`` is not."""

    def reset(self) -> None: ...

    def hypergradient(self, steps: int) -> Tensor: ...


class Peer:
    """The problem in torchopt's own words; where it starts, the engines start."""

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
            torchopt.extract_state_dict(part, by="copy") for part in (self.network, self.optimiser)
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
        (gradient,) = torch.autograd.grad(value, weights)
        # The next outer step goes on from here, without this one's graph.
        torchopt.stop_gradient(self.network)
        torchopt.stop_gradient(self.optimiser)
        return gradient

    def start(self) -> tuple[Tensor, OptimiserState]:
        """The parameters and Adam's moments as flat vectors in our order."""
        named = dict(self.network.named_parameters())
        groups = self.optimiser.param_containers_groups
        theirs = [id(parameter) for parameter in torchopt.pytree.tree_leaves(groups)]
        order = [theirs.index(id(named[name])) for name in self.functional.names]

        def flat(tensors: Sequence[Tensor]) -> Tensor:
            return torch.cat([tensors[place].detach().flatten() for place in order])

        (state,) = self.optimiser.state_dict()
        moments = next(part for part in state if hasattr(part, "mu"))
        parameters = torch.cat([named[n].detach().flatten() for n in self.functional.names])
        step = torch.tensor(float(WARM_STEPS))
        return parameters, {"step": step, "mean": flat(moments.mu), "square": flat(moments.nu)}


class Ours:
    """One engine on the same problem, in float32 or, for reference, in float64."""

    def __init__(self, peer: Peer, engine: str, dtype: torch.dtype = torch.float32) -> None:
        self.engine = make_engine(engine)
        self.model, self.dtype = peer.functional, dtype
        self.data = Data(*(t.to(dtype) if t.is_floating_point() else t for t in peer.data))
        parameters, state = peer.start()
        self.parameters = parameters.to(dtype)
        self.state = {name: value.to(dtype) for name, value in state.items()}

    def reset(self) -> None:
        pass

    def hypergradient(self, steps: int) -> Tensor:
        data = self.data

        def logits(parameters: Tensor, inputs: Tensor) -> Tensor:
            return self.model.apply(parameters, {}, inputs, training=True)[0].logits

        problem = InnerProblem(
            lambda parameters, weights, _: weighted_loss(
                logits(parameters, data.inputs), data.labels, weights
            ),
            Adam(),
            lr=torch.tensor(LR, dtype=self.dtype),
            weight_decay=torch.tensor(0.0, dtype=self.dtype),
            steps=steps,
        )
        # Kept like the peer's network and optimiser, for an outer step to go on from.
        self.end = self.engine.hypergradient(
            problem,
            lambda parameters, _: confidence_bce(
                logits(parameters, data.held_out_inputs), data.held_out_labels
            ),
            self.parameters,
            self.state,
            data.weights,
        )
        return self.end.gradient


class Allocations(TorchDispatchMode):
    """Counts the bytes of the storages that operations return, until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.live: set[int] = set()
        self.now = self.peak = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.live:
            self.live.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self.live.discard(key)
        self.now -= size


def draw() -> Data:
    generator = torch.Generator().manual_seed(0)
    rows = TRAINING + HELD_OUT
    labels = torch.randint(CLASSES, (rows,), generator=generator)
    angles = labels * (2 * math.pi / CLASSES)
    noise = torch.randn(rows, 2, generator=generator)
    inputs = torch.stack([angles.cos(), angles.sin()], dim=1) * 1.5 + noise * 0.7
    weights = 0.5 + torch.rand(TRAINING, generator=generator)
    return Data(inputs[:TRAINING], labels[:TRAINING], inputs[TRAINING:], labels[TRAINING:], weights)


def weighted_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    return (weights * F.cross_entropy(logits, labels, reduction="none")).mean()


def peak_memory(contender: Contender, steps: int) -> int:
    contender.reset()
    with Allocations() as allocations:
        contender.hypergradient(steps)
    return allocations.peak


def alternating_times(contenders: dict[str, Contender], steps: int) -> dict[str, list[float]]:
    """CPU seconds of every contender in every round; they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    for _ in range(9 + 60 // steps):
        for name, contender in contenders.items():
            contender.reset()
            start = time.process_time()
            contender.hypergradient(steps)
            seconds[name].append(time.process_time() - start)
    return seconds


def lines_at(contenders: dict[str, Contender], reference: Contender, steps: int) -> list[Line]:
    exact = reference.hypergradient(steps)
    seconds = alternating_times(contenders, steps)
    lines = []
    for name, contender in contenders.items():
        contender.reset()
        cosine = F.cosine_similarity(contender.hypergradient(steps).double(), exact, dim=0)
        ratios = [own / peer for own, peer in zip(seconds[name], seconds[PEER], strict=True)]
        lines.append(
            Line(
                steps,
                name,
                statistics.median(seconds[name]),
                statistics.median(ratios),
                peak_memory(contender, steps),
                float(cosine),
            )
        )
    return lines


def main() -> int:
    """Print the table; return 1 if the target is missed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    peer = Peer(draw())
    contenders: dict[str, Contender] = {PEER: peer} | {name: Ours(peer, name) for name in ENGINES}
    reference = Ours(peer, DEFAULT, torch.float64)
    lines = [line for steps in STEPS for line in lines_at(contenders, reference, steps)]
    print(f"hypergradients of {TRAINING} sample weights, MLP 2-64-64-{CLASSES}, T Adam steps")
    print(
        f"{'T':>3} {'':20} {'CPU time':>10} {'ratio':>6} {'peak':>10} {'cosine':>8} {'target':>7}"
    )
    for line in lines:
        target, verdict = (f"≤ {MOST_TIME:g}", "pass") if line.bound else ("", "")
        verdict = verdict if line.passed else "FAIL"
        print(
            f"{line.steps:3} {line.engine:20} {line.seconds * 1e3:7.1f} ms {line.ratio:6.2f} "
            f"{line.peak / 1e6:7.1f} MB {line.cosine:8.4f} {target:>7} {verdict}"
        )
    torch.set_num_threads(threads)
    return int(not all(line.passed for line in lines))


if __name__ == "__main__":
    sys.exit(main())
