"""Fitted transforms as plain JSON values and back, bit for bit.

A transform is a dataclass of tensors, numbers, strings, tuples and other dataclasses. A user's
own is saved like those of the package, under its import path.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from calibration.data.dataset import Transform


def save_transform(transform: Transform) -> dict[str, Any]:
    """A transform as JSON values for ``load_transform``.

    Raises ``ValueError`` if it is not a dataclass, or holds values without an exact JSON form.
    """
    if not dataclasses.is_dataclass(transform) or isinstance(transform, type):
        raise ValueError(
            f"a transform of type {type(transform).__name__} cannot be saved; write it as a "
            "dataclass of tensors, numbers, texts and tuples"
        )
    saved: dict[str, Any] = _save(transform, type(transform).__name__)
    return saved


def load_transform(saved: Mapping[str, Any]) -> Transform:
    """The inverse of ``save_transform``.

    Raises ``ValueError`` for values that it did not write, ``ImportError`` or ``AttributeError``
    if the transform's class is not found.
    """
    transform: Transform = _load(saved)
    return transform


def _save(value: Any, place: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {
            "class": _import_path(type(value)),
            "fields": {name: _save(getattr(value, name), f"{place}.{name}") for name in fields},
        }
    if isinstance(value, Tensor):
        numbers = value.detach().cpu().flatten().tolist()
        content = [_save(number, place) for number in numbers]
        dtype = str(value.dtype).removeprefix("torch.")
        return {"tensor": content, "shape": list(value.shape), "dtype": dtype}
    if isinstance(value, tuple):
        return {"tuple": [_save(item, f"{place}[{i}]") for i, item in enumerate(value)]}
    if value is None or isinstance(value, bool | int | str):
        return value
    # Python writes a float with as many digits as are needed to read it back exactly.
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(f"{place} cannot be saved: found {value!r} of type {type(value).__name__}")


def _load(saved: Any) -> Any:
    match saved:
        case {"class": str(path), "fields": dict(fields)}:
            return _dataclass(path)(**{name: _load(value) for name, value in fields.items()})
        case {"tensor": list(content), "shape": list(shape), "dtype": str(dtype)}:
            return torch.tensor(content, dtype=getattr(torch, dtype)).reshape(shape)
        case {"tuple": list(items)}:
            return tuple(_load(item) for item in items)
        case None | bool() | int() | str() | float():
            return saved
    raise ValueError(f"not the values of a saved transform: {str(saved)[:100]}")


def _import_path(kind: type) -> str:
    if "<locals>" in kind.__qualname__ or kind.__module__ == "__main__":
        raise ValueError(
            f"the class {kind.__qualname__} cannot be imported from elsewhere; define it at the "
            "top of a module"
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def _dataclass(path: str) -> Any:
    module, _, name = path.partition(":")
    found = getattr(importlib.import_module(module), name)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise ValueError(f"{path} is not a dataclass")
    return found
