"""Copies of nested values, bitwise equality, and where values differ."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor


def copied(values: Any) -> Any:
    """The same nesting with every tensor cloned; much faster than ``deepcopy`` on small tensors."""
    if isinstance(values, Tensor):
        return values.clone()
    if isinstance(values, dict):
        return {key: copied(value) for key, value in values.items()}
    if hasattr(values, "_make"):
        return values._make(copied(value) for value in values)
    if isinstance(values, list | tuple):
        return type(values)(copied(value) for value in values)
    return deepcopy(values)


def difference(one: Any, other: Any, at: str = "") -> str | None:
    """Where two nested values first differ ("state.method.weights"), or None if nowhere.

    Tensors must agree in type, shape and every number; NaN equals NaN.
    """
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return None if _same_tensor(one, other) else at
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return f"{at} (names {sorted(one)} and {sorted(other)})"
        found = (difference(one[key], other[key], _join(at, key)) for key in one)
        return next((place for place in found if place is not None), None)
    if hasattr(one, "_asdict") and type(one) is type(other):
        return difference(one._asdict(), other._asdict(), at)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return f"{at} (lengths {len(one)} and {len(other)})"
        found = (
            difference(*pair, _join(at, place))
            for place, pair in enumerate(zip(one, other, strict=True))
        )
        return next((place for place in found if place is not None), None)
    return None if _same_value(one, other) else f"{at} ({one!r} and {other!r})"


def _join(at: str, key: object) -> str:
    return f"{at}.{key}" if at else str(key)


def _same_tensor(one: Tensor, other: Tensor) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())


def _same_value(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other
