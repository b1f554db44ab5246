"""Checks that stored values are those of a training run, before any of them is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from calibration.methods import TrainState


@contextmanager
def as_value_error(what: str) -> Iterator[None]:
    """Turn exceptions caused by malformed values into a ``ValueError`` that names ``what``."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise ValueError(f"not the {what} of a training run ({error!r})") from error


def check_fit(found: TrainState, own: TrainState) -> None:
    """Raise ``ValueError`` unless ``found`` can replace ``own``."""
    _check_alike({"parameters": found.parameters}, {"parameters": own.parameters})
    _check_alike(found.buffers, own.buffers)
    _check_alike(found.optimiser, own.optimiser)
    tensors(found.method)


def _check_alike(found: dict[str, Tensor], own: dict[str, Tensor]) -> None:
    if tensors(found).keys() != own.keys():
        raise ValueError(f"found {sorted(found)}, not {sorted(own)}")
    for name, mine in own.items():
        other = found[name]
        if (other.shape, other.dtype) != (mine.shape, mine.dtype):
            raise ValueError(
                f"{name}: found {other.dtype} of shape {tuple(other.shape)}, not {mine.dtype} of "
                f"shape {tuple(mine.shape)}"
            )


def tensors(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return ``values`` if all are tensors. Raises ``ValueError`` otherwise."""
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name}: found {type(value).__name__}, not a tensor")
    return values


def whole(number: Any) -> int:
    """Return a non-negative whole number as an int. Raises ``ValueError`` otherwise."""
    if isinstance(number, bool) or int(number) != number or number < 0:
        raise ValueError(f"epoch: found {number!r}, not a whole number")
    return int(number)
