"""Fitted calibrators as plain JSON values and back, bit for bit; nothing is unpickled.

A calibrator is saved as its class and its attributes. Numbers, strings, lists, tuples, dicts,
tensors and arrays are written as values; objects inside it only if their class belongs to this
package or to the calibrator's own module, so that only known classes can be instantiated from a
file.
A class with other attributes converts them to plain ones in ``__getstate__`` and back in
``__setstate__``, as for pickling.
"""

from __future__ import annotations

import base64
import importlib
import math
import zlib
from collections.abc import Mapping
from enum import Enum
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibration.calibrators.calibrator import CALIBRATORS, Calibrator
from calibration.memory import check_fits

_FORMAT = 2
PACKAGE = "calibration"
ABOUT = "about"
"""An entry that users of a saved calibrator may add; loading ignores it."""
_DEEPEST = 50
PLAIN = (type(None), bool, int, str)
ROW_BYTES = 64
"""Bytes that a calibrator needs per class for a row that it is tried on."""


def save_calibrator(calibrator: Calibrator) -> dict[str, Any]:
    """A fitted calibrator as JSON values; ``load_calibrator`` is the inverse.

    {"format": 2, "calibrator": its registered name or "module:Class", "classes": K,
    "state": its attributes}. Raises ``ValueError`` if it is not fitted or holds something that
    cannot be saved, naming the attribute.
    """
    if calibrator._classes is None:
        raise ValueError(f"{type(calibrator).__name__} is not fitted: call fit(logits, labels)")
    kind = type(calibrator)
    name = next((name for name in CALIBRATORS if CALIBRATORS[name] is kind), None)
    return {
        "format": _FORMAT,
        "calibrator": name or _class_path(kind, "the calibrator"),
        "classes": calibrator._classes,
        "state": _encode(calibrator.__getstate__(), kind, kind.__name__),
    }


def load_calibrator(saved: Mapping[str, Any]) -> Calibrator:
    """The calibrator that ``save_calibrator`` turned into these values.

    If it has "module:Class" instead of a registered name, that module is imported.
    Raises ``ValueError`` naming the entry that is missing, unknown or damaged.
    """
    if not isinstance(saved, Mapping):
        raise ValueError(
            f"not a saved calibrator: found {_kind(saved)}, expected an object with entries"
        )
    entries = ("format", "calibrator", "classes", "state")
    for name in entries:
        if name not in saved:
            raise ValueError(f"not a saved calibrator: there is no entry {name!r}")
    if unknown := sorted(set(saved) - {*entries, ABOUT}):
        raise ValueError(f"not a saved calibrator: the entry {unknown[0]!r} is unknown")
    if saved["format"] != _FORMAT:
        raise ValueError(
            f"format: found {saved['format']!r}, but this version reads {_FORMAT}; "
            "was it saved by another version of calsweep?"
        )
    kind = _calibrator_class(saved["calibrator"])
    classes = saved["classes"]
    if not isinstance(classes, int) or classes < 2:
        raise ValueError(f"classes: found {classes!r}, expected a whole number of at least 2")
    loaded: Calibrator = object.__new__(kind)
    check_fits(ROW_BYTES * classes, f"classes: a row of {classes} takes")
    try:
        _give_state(loaded, _decode(saved["state"], kind, "state"), "state")
    except ValueError:
        raise
    except Exception as error:  # too deep, an invalid key, a number out of range
        raise ValueError(f"state: damaged: {type(error).__name__}: {error}") from error
    if loaded._classes != classes:
        raise ValueError(f"classes: found {classes}, but the state is for {loaded._classes}")
    try:
        loaded(torch.zeros(1, classes))
    except Exception as error:  # attributes of the wrong type may raise anything
        raise ValueError(f"state: not that of a working {saved['calibrator']}: {error}") from error
    return loaded


def _calibrator_class(name: object) -> type[Calibrator]:
    if not isinstance(name, str):
        raise ValueError(f"calibrator: found {_kind(name)}, expected a name or 'module:Class'")
    kind = CALIBRATORS[name]
    if not (isinstance(kind, type) and issubclass(kind, Calibrator)):
        raise ValueError(f"calibrator: {name!r} is not a subclass of Calibrator")
    return kind


def _encode(value: Any, kind: type, at: str, depth: int = 0) -> Any:
    """``value`` as JSON; types unknown to JSON become an object with one entry, the type."""
    if depth > _DEEPEST:
        raise ValueError(f"{at}: nested deeper than {_DEEPEST}, or it holds itself")

    def inner(part: Any, name: str) -> Any:
        return _encode(part, kind, f"{at}{name}", depth + 1)

    exact = type(value)
    if exact in PLAIN or (exact is float and math.isfinite(value)):
        return value
    if exact is float:
        return {"float": repr(value)}
    if exact is list:
        return [inner(part, f"[{place}]") for place, part in enumerate(value)]
    if exact is tuple:
        return {"tuple": [inner(part, f"[{place}]") for place, part in enumerate(value)]}
    if exact is dict and all(type(key) is str for key in value):
        return {"dict": {key: inner(part, f".{key}") for key, part in value.items()}}
    if exact is dict:
        return {"pairs": [[inner(k, ""), inner(part, f"[{k!r}]")] for k, part in value.items()]}
    if isinstance(value, Tensor):
        return {"tensor": _numbers(_as_array(value, at), at)}
    if exact is np.ndarray:
        return {"array": _numbers(value, at)}
    if isinstance(value, np.generic):
        return {"scalar": _numbers(np.asarray(value), at)}
    _check_allowed(exact, kind, at)
    path = _class_path(exact, at)
    if hasattr(exact, "_make"):
        return {"object": path, "fields": [inner(part, f"[{i}]") for i, part in enumerate(value)]}
    return {"object": path, "state": inner(value.__getstate__(), "")}


def _decode(value: Any, kind: type, at: str) -> Any:
    """The inverse of ``_encode``. Raises ``ValueError`` for anything it cannot have written."""
    if type(value) in (*PLAIN, float):
        return value
    if isinstance(value, list):
        return [_decode(part, kind, f"{at}[{place}]") for place, part in enumerate(value)]
    if not isinstance(value, dict) or not value:
        raise ValueError(f"{at}: found {_kind(value)}, which no saved calibrator holds")
    tag, content = next(iter(value.items()))
    if tag == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if tag == "tuple" and isinstance(content, list):
        return tuple(_decode(content, kind, at))
    if tag == "dict" and isinstance(content, dict):
        return {key: _decode(part, kind, f"{at}.{key}") for key, part in content.items()}
    if tag == "pairs" and isinstance(content, list) and all(_is_pair(pair) for pair in content):
        return {_decode(k, kind, at): _decode(v, kind, f"{at}[{k!r}]") for k, v in content}
    if tag in ("tensor", "array", "scalar"):
        array = _array(content, at)
        if tag == "tensor":
            return torch.from_numpy(array)
        return array if tag == "array" else array[()]
    if tag == "object" and isinstance(content, str):
        return _object(content, value, kind, at)
    raise ValueError(f"{at}: found an entry {tag!r}, which no saved calibrator holds like this")


def _is_pair(value: object) -> bool:
    """Whether it is a key and its value; lists, dicts and arrays cannot be keys."""
    if not isinstance(value, list) or len(value) != 2:
        return False
    return not isinstance(value[0], list | dict) or next(iter(value[0]), "") in ("float", "tuple")


def _object(path: str, value: dict[str, Any], kind: type, at: str) -> Any:
    found = _class_of(path, kind, at)
    if "fields" in value and hasattr(found, "_make"):
        try:
            return found._make(_decode(value["fields"], kind, at))
        except TypeError as error:
            raise ValueError(f"{at}: not the fields of {path}: {error}") from error
    if "state" not in value:
        raise ValueError(f"{at}: there is no state of the {path}")
    try:
        made = object.__new__(found)
    except TypeError as error:
        raise ValueError(f"{at}: {path} is not a class of plain objects: {error}") from error
    _give_state(made, _decode(value["state"], kind, at), at)
    return made


def _give_state(made: object, state: Any, at: str) -> None:
    try:
        if hasattr(made, "__setstate__"):
            made.__setstate__(state)
            return
        # Python's own form: attributes, or a pair of those in the dict and those in slots.
        for attributes in state if isinstance(state, tuple) else (state,):
            for name, value in (attributes or {}).items():
                object.__setattr__(made, name, value)
    except Exception as error:  # a user's __setstate__ may raise anything
        raise ValueError(f"{at}: not the attributes of a {type(made).__name__}: {error}") from error


def _as_array(tensor: Tensor, at: str) -> np.ndarray[Any, Any]:
    try:
        array: np.ndarray[Any, Any] = tensor.detach().cpu().numpy()
    except TypeError as error:  # bfloat16, sparse, …
        raise ValueError(f"{at}: this tensor cannot be saved: {error}") from error
    return array


def _numbers(array: np.ndarray[Any, Any], at: str) -> dict[str, Any]:
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{at}: an array of type {array.dtype} cannot be saved, only numbers")
    raw = np.ascontiguousarray(array).tobytes()
    text = base64.b64encode(zlib.compress(raw, 1)).decode()
    return {"type": array.dtype.str, "shape": list(array.shape), "zlib": text}


def _array(stored: Any, at: str) -> np.ndarray[Any, Any]:
    try:
        kind, shape = np.dtype(stored["type"]), tuple(int(size) for size in stored["shape"])
        size = math.prod(shape) * kind.itemsize
        if kind.kind not in "biuf" or any(length < 0 for length in shape):
            raise ValueError(f"no numbers of type {kind} and shape {shape}")
        unpacked = zlib.decompressobj()
        # One byte more than expected shows that there is too much, however much that is.
        raw = unpacked.decompress(base64.b64decode(stored["zlib"], validate=True), size + 1)
        if len(raw) != size or not unpacked.eof:
            raise ValueError(f"{len(raw)} bytes where {size} are expected")
    except Exception as error:  # types, sizes, base64 and zlib each fail in their own way
        raise ValueError(f"{at}: damaged numbers: {error}") from error
    # A copy: the result of frombuffer is read-only, and torch expects writable arrays.
    return np.frombuffer(raw, kind).reshape(shape).copy()


def _class_path(kind: type, at: str) -> str:
    if "<locals>" in kind.__qualname__:
        raise ValueError(
            f"{at}: the class {kind.__qualname__} is defined inside a function, from where it "
            "cannot be imported; move it to the top of its module"
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def _check_allowed(found: type, kind: type, at: str) -> None:
    """Raise ``ValueError`` unless the class is ours or from the calibrator's module."""
    module = found.__module__
    ours = module.split(".")[0] == PACKAGE or module == kind.__module__
    # Python's own containers and members of an enumeration are more than their attributes.
    plain = hasattr(found, "_make") or getattr(found, "__new__", None) is object.__new__
    if not (ours and plain and not issubclass(found, Enum)):
        raise ValueError(
            f"{at}: a {module}.{found.__qualname__} cannot be saved; numbers, texts, lists, dicts, "
            f"tensors, arrays and objects of classes of {PACKAGE} or {kind.__module__} can "
            "(or give such values by __getstate__ and take them back by __setstate__)"
        )


def _class_of(path: str, kind: type, at: str) -> Any:
    module, _, name = path.partition(":")
    if module.split(".")[0] != PACKAGE and module != kind.__module__:
        raise ValueError(f"{at}: {path!r} is not a class of {PACKAGE} or {kind.__module__}")
    try:
        found: Any = reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{at}: there is no {path!r}: {error}") from error
    # A class that one of our modules only imports is not ours.
    if not isinstance(found, type) or found.__module__ != module:
        raise ValueError(f"{at}: {path!r} is not a class defined there")
    return found


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
