"""What every registered engine must do, whatever it computes."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibration.bilevel import ENGINES, Hypergradient, InnerProblem, make_engine
from calibration.models import FunctionalModel, build_model
from calibration.optimisers import SGD, Adam, Optimiser
from calibration.registry import UnknownNameError

every_engine = pytest.mark.parametrize("name", [*ENGINES])


def tensors(found: Hypergradient) -> list[Tensor]:
    return [*chain(found[:4], found.optimiser.values())]


def test_the_names() -> None:
    assert [*ENGINES] == [
        "adjoint",
        "conjugate_gradient",
        "flat_unroll",
        "neumann",
        "one_step",
        "truncated",
        "unroll",
    ]
    assert all(ENGINES[name].description for name in ENGINES)


def test_mistakes_are_named(make_case) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'unroll'"):
        make_engine("unrol")
    with pytest.raises(ValueError, match="terms must be at least 1; got 0"):
        make_engine("neumann", 0)
    with pytest.raises(ValueError, match="steps must be at least 1; got 0"):
        make_case("weights", Adam(), 0)


@every_engine
def test_it_works_with_gradients_enabled_or_not_and_gives_plain_values(
    make_case, name: str
) -> None:
    case = make_case("mixed", Adam(), 4)
    enabled = case.run(name, 2)
    with torch.no_grad():
        disabled = case.run(name, 2)
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    for one, other in zip(tensors(enabled), tensors(disabled), strict=True):
        assert torch.equal(one, other)
        assert not one.requires_grad
        assert not other.requires_grad


@every_engine
def test_arguments_are_neither_changed_nor_backed_into(make_case, name: str) -> None:
    case = make_case("mixed", Adam(), 3)
    given = [case.parameters, case.outer, *case.state.values()]
    before = [g.clone() for g in given]
    for g in given:
        g.requires_grad_()
    found = case.run(name)
    assert all(torch.equal(g, b) for g, b in zip(given, before, strict=True))
    assert all(g.grad is None for g in given)
    assert not any(t.requires_grad for t in tensors(found))


@every_engine
@pytest.mark.parametrize("steps", [1, 3])
def test_outer_variables_that_nothing_uses_get_zeros(name: str, steps: int) -> None:
    start, u = torch.ones(3), torch.ones(2)
    losses = {
        "curved": lambda theta, u, k: theta.pow(4).sum(),
        "linear": lambda theta, u, k: theta.sum(),
        "of u alone": lambda theta, u, k: u.sum(),
        "constant": lambda theta, u, k: torch.tensor(1.0),
    }
    outer_losses = {
        "of θ": lambda theta, u: theta.square().sum(),
        "constant": lambda theta, u: torch.tensor(2.0),
    }
    for inner in losses.values():
        for outer in outer_losses.values():
            problem = InnerProblem(inner, Adam(), torch.tensor(0.1), torch.tensor(0.0), steps)
            state = Adam().initial(start)
            found = make_engine(name).hypergradient(problem, outer, start, state, u)
            assert torch.equal(found.gradient, torch.zeros(2))


@every_engine
def test_outer_variables_that_only_some_steps_use(name: str) -> None:
    def inner(theta: Tensor, u: Tensor, number: int) -> Tensor:
        return theta.square().sum() if number % 2 else (u * theta).square().sum()

    problem = InnerProblem(inner, SGD(), torch.tensor(0.1), torch.tensor(0.0), 3)
    start, u = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 1.0])
    found = make_engine(name).hypergradient(
        problem, lambda theta, _: theta.square().sum(), start, SGD().initial(start), u
    )
    assert bool((found.gradient != 0).all())


@every_engine
@pytest.mark.parametrize("optimiser", [Adam(), SGD()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_dead_units_give_no_nan(name: str, optimiser: Optimiser, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = build_model("mlp", {"widths": [8, 8]}, (2,), 3).to(dtype)
    with torch.no_grad():
        module.body[1].bias[:4] = -1e3
        module.body[3].bias[:6] = -1e3
    model = FunctionalModel(module)
    theta, buffers = model.initial()
    inputs, labels = torch.randn(12, 2, dtype=dtype), torch.randint(3, (12,))

    def inner(parameters: Tensor, u: Tensor, number: int) -> Tensor:
        logits = model.apply(parameters, buffers, inputs, training=True)[0].logits
        return (u * F.cross_entropy(logits, labels, reduction="none")).mean()

    def outer(parameters: Tensor, u: Tensor) -> Tensor:
        logits = model.apply(parameters, buffers, -inputs, training=False)[0].logits
        return F.cross_entropy(logits, labels)

    problem = InnerProblem(
        inner, optimiser, torch.tensor(0.05, dtype=dtype), torch.zeros((), dtype=dtype), 4
    )
    found = make_engine(name).hypergradient(
        problem, outer, theta, optimiser.initial(theta), torch.ones(12, dtype=dtype)
    )
    assert all(bool(t.isfinite().all()) for t in tensors(found))
    assert float(found.gradient.norm()) > 0
    assert found.gradient.dtype == dtype


class Live:
    """Counts the elements that autograd holds on to, and the most there were at a time."""

    def __init__(self) -> None:
        self.now = self.peak = 0

    def pack(self, tensor: Tensor) -> Saved:
        return Saved(self, tensor)


class Saved:
    def __init__(self, live: Live, tensor: Tensor) -> None:
        # With its history, a saved output would hold on to the node that holds on to it.
        self.live, self.tensor = live, tensor.detach()
        live.now += tensor.numel()
        live.peak = max(live.peak, live.now)

    def __del__(self) -> None:
        self.live.now -= self.tensor.numel()


@pytest.mark.parametrize(("name", "grows"), [("adjoint", False), ("flat_unroll", True)])
def test_the_adjoint_holds_the_activations_of_one_step_only(
    make_case, name: str, grows: bool
) -> None:
    peaks = []
    for steps in (4, 16):
        case, live = make_case("weights", Adam(), steps), Live()
        with torch.autograd.graph.saved_tensors_hooks(live.pack, lambda saved: saved.tensor):
            case.run(name)
        assert live.now == 0
        peaks.append(live.peak)
    if grows:
        assert peaks[1] > 3 * peaks[0]
    else:
        assert peaks[1] == peaks[0]
