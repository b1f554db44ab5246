"""A method whose hooks are watched while it trains: purity and return values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from calibration.methods import Method, TrainState
from calibration.metrics import METRICS
from calibration.testing.contract import require
from calibration.testing.equality import copied, difference

Hook = Callable[..., Any]


def watch(method: Method, about: str) -> Method:
    """Make every call of ``method``'s hooks raise ``ContractError`` if it breaks a rule.

    No hook may change an argument in place or, once the network is initialised, draw from
    torch's global generator.
    """
    checks: dict[str, Callable[[Any, str], None]] = {
        "initial": _check_method_state,
        "steps": _check_step,
        "end_epoch": check_state,
        "map_logits": lambda result, about: None,
        "describe": _check_described,
        "snapshot": _check_snapshot,
    }
    for name, check in checks.items():
        setattr(method, name, _watched(getattr(method, name), name, check, about))
    return method


def check_state(state: TrainState, about: str) -> None:
    """All changing state must be plain tensors without a graph; parameters must be finite."""
    kind = type(state).__name__
    require(isinstance(state, TrainState), about, f"a state must be a TrainState, found {kind}")
    _check_method_state(state.method, about)
    tensors = {"parameters": state.parameters}
    for field, values in state._asdict().items():
        if field != "parameters":
            tensors |= {f"{field}.{name}": value for name, value in values.items()}
    for name, value in tensors.items():
        require(not value.requires_grad, about, f"state.{name} must be detached from its graph")
    require(bool(state.parameters.isfinite().all()), about, "parameters must stay finite")


def _watched(hook: Hook, name: str, check: Callable[[Any, str], None], about: str) -> Hook:
    def call(*positional: Any, **named: Any) -> Any:
        arguments = (*positional, *named.values())
        # The learner and functions are fixed; only values could be changed.
        given = [a for a in arguments if isinstance(a, Tensor | tuple | list | dict)]
        before = copied(given)
        stream = torch.default_generator.get_state()
        result = hook(*positional, **named)
        changed = difference(before, given) is not None
        require(not changed, about, f"{name} must change no argument in place")
        drawn = not torch.equal(stream, torch.default_generator.get_state())
        require(
            name == "initial" or not drawn,
            about,
            f"{name} must draw from the generator it is given, not from torch's global one",
        )
        check(result, about)
        return result

    return call


def _check_step(result: tuple[TrainState, dict[str, Tensor]], about: str) -> None:
    state, logged = result
    require("loss" in logged, about, f"steps must log 'loss', found {sorted(logged)}")
    _check_scalars(logged, about, "what steps logs")
    finite = bool(logged["loss"].isfinite())
    require(finite, about, f"the training loss must be finite, found {float(logged['loss'])}")
    check_state(state, about)


def _check_method_state(state: dict[str, Tensor], about: str) -> None:
    for name, value in state.items():
        rule = f"method state must be tensors only; {name!r} is a {type(value).__name__}"
        require(isinstance(name, str) and isinstance(value, Tensor), about, rule)


def _check_described(described: dict[str, Tensor], about: str) -> None:
    _check_scalars(described, about, "what describe gives")
    taken = sorted(described.keys() & set(METRICS.curve()))
    require(not taken, about, f"describe must leave the names of the curve's metrics: {taken}")


def _check_scalars(values: dict[str, Tensor], about: str, what: str) -> None:
    for name, value in values.items():
        plain = isinstance(value, Tensor) and value.dim() == 0 and not value.requires_grad
        require(plain, about, f"{what} must be 0-dim tensors without a graph; {name!r} is not")


def _check_snapshot(taken: dict[str, Tensor], about: str) -> None:
    for name, value in taken.items():
        rows = isinstance(value, Tensor) and value.dim() > 0 and name != "epoch"
        require(rows, about, f"a snapshot must be tensors of rows, none called 'epoch': {name!r}")
