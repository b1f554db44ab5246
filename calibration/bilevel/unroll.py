"""Exact, by autograd through torchopt's differentiable optimisers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from calibration.bilevel.engine import ENGINES, Engine, Hypergradient, InnerProblem, OuterLoss
from calibration.bilevel.trajectory import leaf, pull
from calibration.optimisers import SGD, Adam, AdamW, OptimiserState

if TYPE_CHECKING:
    from torchopt.typing import GradientTransformation

Chained = tuple[Any, ...]
"""The states of torchopt's chained transformations; one of them holds the moments."""


@ENGINES.register("unroll")
class Unroll(Engine):
    """One graph through all T steps, built by torchopt's ``adam`` or ``sgd``.

    torchopt computes Adam's bias correction in float32 whatever the parameters' type, so it
    agrees with the other exact engines only to about 2 · 10⁻⁵.
    """

    description = "exact, by autograd through torchopt's optimisers; an independent check"
    exact = True

    def hypergradient(
        self,
        problem: InnerProblem,
        outer_loss: OuterLoss,
        parameters: Tensor,
        optimiser: OptimiserState,
        outer: Tensor,
    ) -> Hypergradient:
        """d f(θ_T(u), u) / du; raises ``ValueError`` for optimisers that torchopt lacks."""
        transformation = _transformation(problem)
        theta, variables = leaf(parameters), leaf(outer)
        state = _to_torchopt(transformation.init((theta,)), problem.optimiser, optimiser)
        with torch.enable_grad():
            for number in range(problem.steps):
                before = theta
                loss = problem.loss(theta, variables, number)
                (slope,) = pull(loss, (theta,), create_graph=True)
                (update,), state = transformation.update(
                    (slope,), state, params=(theta,), inplace=False
                )
                theta = theta + update
            value = outer_loss(theta, variables)
        (gradient,) = pull(value, (variables,))
        with torch.no_grad():
            last = torch.addcmul(slope, problem.weight_decay, before)
        return Hypergradient(
            gradient,
            value.detach(),
            loss.detach(),
            theta.detach(),
            _to_ours(state, optimiser, last),
        )


def _transformation(problem: InnerProblem) -> GradientTransformation:
    # Only this engine needs it, and its import takes a tenth of a second.
    import torchopt

    lr, weight_decay = float(problem.lr), float(problem.weight_decay)
    match problem.optimiser:
        case Adam() as adam if not isinstance(adam, AdamW):
            return torchopt.adam(
                lr,
                (adam.beta1, adam.beta2),
                adam.eps,
                weight_decay,
                eps_root=adam.eps_root,
            )
        case SGD() as sgd:
            return torchopt.sgd(lr, sgd.momentum, weight_decay=weight_decay, nesterov=sgd.nesterov)
        case other:
            raise ValueError(
                "the engine 'unroll' knows the optimisers Adam and SGD; got "
                f"{type(other).__name__}: use flat_unroll or adjoint"
            )


def _to_torchopt(fresh: Chained, kind: object, ours: OptimiserState) -> Chained:
    def filled(state: Any) -> Any:
        if hasattr(state, "mu"):
            count = ours["step"].detach().to(torch.int64)
            return state._replace(
                mu=[ours["mean"].detach()], nu=[ours["square"].detach()], count=[count]
            )
        if hasattr(state, "trace"):
            assert isinstance(kind, SGD)
            # torchopt omits the momentum in a transformation's first call.
            return state._replace(trace=[kind.momentum * ours["velocity"].detach()])
        return state

    return tuple(filled(state) for state in fresh)


def _to_ours(theirs: Chained, ours: OptimiserState, last: Tensor) -> OptimiserState:
    for state in theirs:
        if hasattr(state, "mu"):
            (mean,), (square,), (count,) = state.mu, state.nu, state.count
            step = count.to(ours["step"].dtype)
            return {"step": step, "mean": mean.detach(), "square": square.detach()}
        if hasattr(state, "trace"):
            return {"velocity": state.trace[0].detach()}
    # Without momentum torchopt keeps no state, and the velocity is the last decayed gradient.
    return {"velocity": last}
