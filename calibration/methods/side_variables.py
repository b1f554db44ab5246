"""Small tensors that a method learns beside the network, each with Adam's state next to it.

Everything lies in ``TrainState.method`` as plain tensors: the variable under its name, the
optimiser's state under names that begin with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.optimisers import Adam

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


def _prefixed(name: str, optimiser: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}_{part}": value for part, value in optimiser.items()}
