"""Whether stored values are those of a training run: checked before any of them is taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from calibration.methods import TrainState


@contextmanager
def as_value_error(what: str) -> Iterator[None]:
    """Turn what a value of the wrong form raises into a ``ValueError`` that says so."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise ValueError(f"not the {what} of a training run ({error!r})") from error


def check_fit(found: TrainState, own: TrainState) -> None:
    """Raise ``ValueError`` unless ``found`` can take the place of ``own``."""
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
    """``values``, if they are tensors by name. Raises ``ValueError``."""
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name}: found {type(value).__name__}, not a tensor")
    return values


def whole(number: Any) -> int:
    """A whole number that is not negative. Raises ``ValueError``."""
    if isinstance(number, bool) or int(number) != number or number < 0:
        raise ValueError(f"epoch: found {number!r}, not a whole number")
    return int(number)
