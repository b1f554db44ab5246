"""Hand-written hypergradients of sample weights in dense networks, for K networks at once.

Equivalent to ``flat_unroll``, without autograd. The inner loss is the weighted cross-entropy
mean w_i CE_i, so with p = softmax(z), e = p − one-hot and N rows, the gradient at the logits is
w_i e_i / N. Its derivative along ż is w_i (p_i ż_i − p_i (p_i · ż_i)) / N, and the derivative by
w_i of the gradient's product with a direction is e_i · ż_i / N: one tangent pass gives both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from calibration.bilevel.engine import Hypergradient
from calibration.models.dense import Dense, DensePass
from calibration.optimisers import Optimiser, OptimiserState, Pullback, Rates

OuterSlope = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Parameters → the gradient of the outer loss there, and its value."""


class Rows(NamedTuple):
    """Inputs, labels and positions in the weights, of one network or stacked for K."""

    inputs: Tensor
    labels: Tensor
    positions: Tensor


class WeightedStep(NamedTuple):
    """One inner step for the backward sweep; ``p`` and ``error`` are (…, C, N)."""

    made: DensePass
    bars: list[Tensor]
    p: Tensor
    error: Tensor
    share: Tensor
    positions: Tensor
    pullback: Pullback

    def product_by_weight(self, logits_along: Tensor) -> Tensor:
        """∂(∇θ loss · v)/∂w of the step's rows."""
        return (self.error * logits_along.mT).sum(-2) / self.error.shape[-1]

    def bar_along(self, logits_along: Tensor) -> Tensor:
        """The derivative of the gradient at the logits."""
        pushed = self.p * logits_along.mT
        bent = pushed - self.p * pushed.sum(-2, keepdim=True)
        return (bent * self.share).mT


@torch.no_grad()
def unrolled_by_hand(
    dense: Dense,
    optimiser: Optimiser,
    batches: Sequence[Rows],
    begin: tuple[Tensor, OptimiserState],
    weights: Tensor,
    rates: Rates,
    outer_slope: OuterSlope | None,
) -> Hypergradient:
    """Train with these batches, one after the other, and differentiate by the weights.

    All arguments are those of one network, or stacked for K along a first dimension (rates and the
    optimiser's counters as columns; the optimiser must be ``elementwise``). Without an
    ``outer_slope``, the network is only trained, and the gradient is zero.
    """
    parameters, state = begin
    steps: list[WeightedStep] = []
    loss = parameters.new_zeros(())
    for batch in batches:
        made = dense.forward(parameters, batch.inputs)
        at = batch.labels.unsqueeze(-2)
        log_p = made.logits.mT.contiguous().log_softmax(-2)
        own = weights.gather(-1, batch.positions)
        chosen = log_p.gather(-2, at)
        loss = (own * chosen.squeeze(-2)).mean(-1).neg()
        p = log_p.exp_()
        error = p.scatter_add(-2, at, torch.full_like(chosen, -1))
        share = own.unsqueeze(-2) / own.shape[-1]
        bars = made.bars((error * share).mT)
        parameters, state, pullback = optimiser.linearise(
            parameters, made.gradient(bars), state, **rates
        )
        if outer_slope is not None:
            steps.append(WeightedStep(made, bars, p, error, share, batch.positions, pullback))
    gradient = torch.zeros_like(weights)
    if outer_slope is None:
        return Hypergradient(gradient, torch.zeros_like(loss), loss, parameters, state)
    parameters_bar, value = outer_slope(parameters)
    state_bar = {name: torch.zeros_like(values) for name, values in state.items()}
    while steps:
        step = steps.pop()
        parameters_bar, slope_bar, state_bar = step.pullback(parameters_bar, state_bar)
        tangent = step.made.tangent(slope_bar)
        gradient.scatter_add_(-1, step.positions, step.product_by_weight(tangent.logits))
        if steps:  # the starting point does not depend on the weights
            bent = step.bar_along(tangent.logits)
            parameters_bar = parameters_bar + step.made.gradient_along(step.bars, tangent, bent)
    return Hypergradient(gradient, value, loss, parameters, state)
