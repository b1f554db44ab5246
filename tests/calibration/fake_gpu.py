"""A GPU to count on: what is sent to it, and when the program would wait for it, without one.

Tensors on it are ordinary ones in a wrapper that names another device (``meta``, the one that
every build of torch knows): operations are computed on the CPU, and those that mix devices are
refused, as CUDA refuses them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

GPU = torch.device("meta")
WAITING = {
    "_local_scalar_dense",  # bool, int, float or item of a tensor
    "nonzero",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "equal",
    "bincount",
    "repeat_interleave",
    "_assert_async",
}


class OnGpu(Tensor):
    """A tensor of the fake GPU."""

    held: Tensor

    @staticmethod
    def __new__(cls: type[OnGpu], held: Tensor) -> OnGpu:
        made: OnGpu = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=GPU,
            requires_grad=held.requires_grad,
        )
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{func}: on the fake GPU, and nobody counts")


class Copy(NamedTuple):
    """A copy from the host to the GPU."""

    size: int
    pinned: bool
    non_blocking: bool

    @property
    def waits(self) -> bool:
        """Whether the program goes on only when the data are there."""
        return not (self.pinned and self.non_blocking)


class FakeGpu(TorchDispatchMode):
    """Computes, and counts: ``copies`` to the GPU, and ``waits`` for what it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[Copy] = []
        self.waits: Counter[str] = Counter()
        self.pinned: set[int] = set()

    def forget(self) -> None:
        """Count from here on."""
        self.copies.clear()
        self.waits.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        given = list(_tensors((args, tuple(kwargs.values()))))
        there = [leaf for leaf in given if isinstance(leaf, OnGpu)]
        asked = kwargs.get("device")
        if name == "_to_copy" and asked is not None:
            target = torch.device(asked)
        elif name == "copy_":
            target = given[0].device
        else:
            target = GPU if there or asked == GPU else torch.device("cpu")
            self._refuse_mixed(func, given, there)
            self._count_wait(name, args, there)
        if name in ("_to_copy", "copy_"):
            self._count_copy(name, given[-1], target, kwargs, args)
        if asked is not None:
            kwargs["device"] = torch.device("cpu")
        held = {key: _mapped(_held, value) for key, value in kwargs.items()}
        made = func(*_mapped(_held, args), **held)
        if torch.Tag.inplace_view in func.tags and there:
            with no_dispatch():  # the wrapper has a shape of its own
                func(*args, **kwargs)
        return _mapped(lambda value: _on_gpu(value, there), made) if target == GPU else made

    def _refuse_mixed(self, func: Any, given: list[Tensor], there: list[OnGpu]) -> None:
        strange = [leaf for leaf in given if not isinstance(leaf, OnGpu) and leaf.dim()]
        assert not (there and strange), f"{func}: tensors of two devices"

    def _count_wait(self, name: str, args: Any, there: list[OnGpu]) -> None:
        masks = name.startswith("index") and any(
            leaf.dtype == torch.bool for leaf in _tensors(args[1:2])
        )
        if there and (name in WAITING or masks):
            self.waits[name] += 1

    def _count_copy(
        self, name: str, source: Tensor, target: torch.device, kwargs: Any, args: Any
    ) -> None:
        if isinstance(source, OnGpu) and target != GPU:
            self.waits["to the host"] += 1
        if not isinstance(source, OnGpu) and target == GPU:
            non_blocking = bool(kwargs.get("non_blocking", name == "copy_" and args[2:] == (True,)))
            pinned = source.untyped_storage().data_ptr() in self.pinned
            size = source.numel() * source.element_size()
            self.copies.append(Copy(size, pinned, non_blocking))


class Constants(TorchFunctionMode):
    """``torch.tensor`` makes its tensor on the host and sends it: for ``meta`` it need not."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.tensor and kwargs.get("device") == GPU:
            del kwargs["device"]
            return function(*args, **kwargs).to(GPU)
        if function is Tensor.new_tensor and args[0].device == GPU:
            return torch.tensor(args[1], dtype=args[0].dtype).to(GPU)
        return function(*args, **kwargs)


@contextmanager
def fake_gpu() -> Iterator[FakeGpu]:
    """Count what is done in the block; ``GPU`` is the device."""
    gpu = FakeGpu()

    def pinned(values: Tensor) -> Tensor:
        copied = values.clone()
        gpu.pinned.add(copied.untyped_storage().data_ptr())
        kept.append(copied)  # so that no other storage is found at its place
        return copied

    kept: list[Tensor] = []
    # Of the class: other threads have no modes.
    with pytest.MonkeyPatch.context() as patch, gpu, Constants():
        patch.setattr(Tensor, "pin_memory", pinned)
        yield gpu


def _tensors(values: Any) -> Iterator[Tensor]:
    # Faster than torch's trees by far: operations take tensors and lists of them.
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_mapped(function, item) for item in value)
    return function(value)


def _held(value: Any) -> Any:
    return value.held if isinstance(value, OnGpu) else value


def _on_gpu(value: Any, there: list[OnGpu]) -> Any:
    if not isinstance(value, Tensor):
        return value
    for leaf in there:
        if leaf.held is value:  # changed in place
            return leaf
    return OnGpu(value)
