"""Hypergradients of sample weights by hand are those of the engines that differentiate."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibration.bilevel import Hypergradient, InnerProblem, make_engine
from calibration.bilevel.weighted import Rows, unrolled_by_hand
from calibration.methods.descent import columns, from_columns
from calibration.models import FunctionalModel, build_model
from calibration.optimisers import SGD, Adam, AdamW, Optimiser

MEMBERS, SAMPLES, CLASSES = 3, 30, 4
OPTIMISERS = [Adam(), AdamW(), SGD(momentum=0.9), SGD(momentum=0.8, nesterov=True)]


class Case:
    """Networks of two hidden layers, their rows, and weights of which some are negative."""

    def __init__(self, optimiser: Optimiser, steps: int) -> None:
        generator = torch.Generator().manual_seed(5)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.double)

        network = build_model("mlp", {"widths": (6, 5)}, (3,), CLASSES).double()
        self.model, self.optimiser = FunctionalModel(network), optimiser
        assert self.model.dense is not None
        self.dense = self.model.dense
        self.inputs, self.held_out = normal(MEMBERS, SAMPLES, 3), normal(MEMBERS, 12, 3)
        self.labels = torch.randint(CLASSES, (MEMBERS, SAMPLES), generator=generator)
        self.weights = 0.5 + normal(MEMBERS, SAMPLES)
        # Every step has its own rows, and the second one of them twice.
        self.rows = torch.stack(
            [
                torch.stack(
                    [torch.randperm(SAMPLES, generator=generator)[:10] for _ in range(MEMBERS)]
                )
                for _ in range(steps)
            ]
        )
        self.rows[:, :, 1] = self.rows[:, :, 0]
        self.parameters = 0.5 * normal(MEMBERS, self.model.size)
        self.lr = torch.linspace(0.01, 0.03, MEMBERS).double()
        self.decay = torch.linspace(0.0, 0.1, MEMBERS).double()
        # Amid a training: Adam's first step hardly depends on how long the gradient is.
        shapes = {name: slot.shape for name, slot in optimiser.initial(self.parameters[0]).items()}
        self.state = {
            name: 0.1 * normal(MEMBERS, *shape).square()
            if shape
            else torch.full((MEMBERS,), 3.0).double()
            for name, shape in shapes.items()
        }

    def by_engine(self, place: int) -> Hypergradient:
        def inner(theta: Tensor, weights: Tensor, step: int) -> Tensor:
            rows = self.rows[step, place]
            output, _ = self.model.apply(theta, {}, self.inputs[place][rows], training=True)
            labels = self.labels[place][rows]
            return (weights[rows] * F.cross_entropy(output.logits, labels, reduction="none")).mean()

        def outer(theta: Tensor, weights: Tensor) -> Tensor:
            output, _ = self.model.apply(theta, {}, self.held_out[place], training=False)
            return judged(output.logits)

        problem = InnerProblem(
            inner, self.optimiser, self.lr[place], self.decay[place], len(self.rows)
        )
        state = {name: values[place] for name, values in self.state.items()}
        return make_engine("flat_unroll", 1).hypergradient(
            problem, outer, self.parameters[place], state, self.weights[place]
        )

    def batches(self, place: int | slice) -> list[Rows]:
        return [
            Rows(
                self.inputs[place].take_along_dim(rows[place].unsqueeze(-1), -2),
                self.labels[place].take_along_dim(rows[place], -1),
                rows[place],
            )
            for rows in self.rows
        ]

    def outer_slope(self, place: int | slice) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        def slope(parameters: Tensor) -> tuple[Tensor, Tensor]:
            made = self.dense.forward(parameters, self.held_out[place])
            one = torch.func.grad_and_value(judged)
            bar, value = (torch.vmap(one) if made.logits.dim() > 2 else one)(made.logits)
            return made.backward(bar), value

        return slope

    def alone(self, place: int) -> Hypergradient:
        state = {name: values[place] for name, values in self.state.items()}
        return unrolled_by_hand(
            self.dense,
            self.optimiser,
            self.batches(place),
            (self.parameters[place], state),
            self.weights[place],
            {"lr": self.lr[place], "weight_decay": self.decay[place]},
            self.outer_slope(place),
        )

    def together(self, *, judge: bool = True) -> Hypergradient:
        every = slice(None)
        found = unrolled_by_hand(
            self.dense,
            self.optimiser,
            self.batches(every),
            (self.parameters, columns(self.state)),
            self.weights,
            {"lr": self.lr.unsqueeze(1), "weight_decay": self.decay.unsqueeze(1)},
            self.outer_slope(every) if judge else None,
        )
        return found._replace(optimiser=from_columns(found.optimiser))


def judged(logits: Tensor) -> Tensor:
    """An outer loss that is not linear in anything."""
    return logits.softmax(-1).square().sum(-1).mean() + 0.01 * logits.square().mean()


def of_member(found: Hypergradient, place: int) -> Hypergradient:
    state = {name: values[place] for name, values in found.optimiser.items()}
    return Hypergradient(*(values[place] for values in found[:4]), state)


@pytest.mark.parametrize("steps", [1, 2, 6])
@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=str)
def test_by_hand_alone_and_together_it_is_the_gradient_of_flat_unroll(
    optimiser: Optimiser, steps: int
) -> None:
    case = Case(optimiser, steps)
    together = case.together()
    for place in range(MEMBERS):
        expected = case.by_engine(place)
        assert float(expected.gradient.norm()) > 1e-5
        for found in (case.alone(place), of_member(together, place)):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-13)


def test_without_an_outer_loss_it_only_trains() -> None:
    case = Case(Adam(), 3)
    trained, judged_too = case.together(judge=False), case.together()
    assert torch.equal(trained.parameters, judged_too.parameters)
    assert not trained.gradient.any()
    assert judged_too.gradient.any()
