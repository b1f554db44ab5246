"""Small tensors that a method learns besides the network, each with its Adam state.

Everything is in ``TrainState.method`` as plain tensors: the variable under its name, the
optimiser's state under names that begin with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from calibration.optimisers import Adam

LEAST_RATIO = 0.5
LEAST_REACH = 0.05
_ADAM = Adam()


def side_variable(name: str, value: Tensor) -> dict[str, Tensor]:
    """The entries of ``TrainState.method`` for a variable that starts at ``value``."""
    return {name: value} | _prefixed(name, _ADAM.initial(value))


def adam_step(
    method_state: dict[str, Tensor],
    name: str,
    gradient: Tensor,
    lr: Tensor,
    *,
    beta2: float = _ADAM.beta2,
) -> dict[str, Tensor]:
    """``method_state`` with the variable ``name`` moved by one Adam step along ``gradient``.

    ``lr`` is one rate, or one for every entry of the variable.
    """
    value = method_state[name]
    optimiser = {part: method_state[f"{name}_{part}"] for part in _ADAM.initial(value)}
    value, optimiser = Adam(beta2=beta2).update(
        value, gradient, optimiser, lr=lr, weight_decay=torch.zeros_like(lr)
    )
    return method_state | {name: value} | _prefixed(name, optimiser)


def concern(name: str, values: Sequence[float], tried: int, steps: int, rate: str) -> str:
    """What is wrong with the movement of a positive variable in a short try; empty if nothing.

    ``values``: its initial value, and its mean over each of the equally long parts of the try;
    ``rate``: the hyperparameter to change.
    It explodes if it doubles or halves within so few steps, and is frozen if even at its
    fastest it could not change by 5 % in the full training.
    """
    first, last = values[0], values[-1]
    if not LEAST_RATIO < last / first < 1 / LEAST_RATIO:
        return (
            f"{name} goes from {first:.3g} to {last:.3g} within {tried} steps and would explode; "
            f"lower {rate}"
        )
    fastest = max(abs(math.log(after / before)) for before, after in pairwise(values))
    reach = math.expm1(min(fastest * (len(values) - 1) / tried * steps, 1.0))
    if reach < LEAST_REACH:
        return (
            f"{name} is frozen at {last:.3g}, all {steps} steps could change it by {reach:.1%}; "
            f"raise {rate}"
        )
    return ""


def _prefixed(name: str, optimiser: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}_{part}": value for part, value in optimiser.items()}
