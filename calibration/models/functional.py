"""A network as a pure function of its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from calibration.models.batch_norm import assign_statistics, assigns_statistics
from calibration.models.fine_tuned import FineTuned
from calibration.models.output import Network, Output, WithFeatures

# A module's table of parameters or buffers, and a name in it.
_Place = tuple[dict[str, Any], str]


class FunctionalModel:
    """A module as a pure function of one flat parameter vector and a dict of buffers.

    Works under plain autograd (of any order), torch.func's transforms and ``torch.vmap`` over
    stacked parameters. The module it was made from is copied and never changes.

    Tied parameters appear once, under the first of their names. Parameters that need no
    gradient (a frozen backbone) are among the buffers, so that no optimiser of the flat
    vector can change them.

    ``names`` lists the parameters in the order of the vector, ``slices`` gives their positions,
    ``size`` is the vector's length and ``head`` names the parameters of the last layer: the
    last ``nn.Linear`` or, without one, the last module with trainable parameters of its own.
    ``dense`` is the same function written by hand, for networks of linear layers and ReLUs. In
    a fine-tuned network, the first ``backbone`` entries of the vector are the backbone's.

    Raises ``ValueError`` if the module has no trainable parameters, parameters of several dtypes
    or on several devices, or lazy layers that have not seen a batch yet.
    """

    def __init__(self, module: nn.Module) -> None:
        skeleton = deepcopy(module)
        assign_statistics(skeleton)
        trainable = {n: p for n, p in skeleton.named_parameters() if p.requires_grad}
        _check_trainable(skeleton, trainable)
        frozen = {n: p for n, p in skeleton.named_parameters() if not p.requires_grad}
        buffers = dict(skeleton.named_buffers()) | frozen

        self.names = tuple(trainable)
        self.head = _head(skeleton, trainable)
        self._shapes = [p.shape for p in trainable.values()]
        self._sizes = [p.numel() for p in trainable.values()]
        self.size = sum(self._sizes)
        self.slices = dict(zip(self.names, _consecutive(self._sizes), strict=True))
        self._parameters = torch.cat([p.detach().flatten() for p in trainable.values()])
        self._buffers = {name: buffer.detach().clone() for name, buffer in buffers.items()}

        places = _places(skeleton)
        self._parameter_places = [places[id(p)] for p in trainable.values()]
        self._buffer_places = {name: places[id(b)] for name, b in buffers.items()}
        # Other layers with buffers may change them in place, so they are given copies.
        safe = {id(b) for m in skeleton.modules() if assigns_statistics(m) for b in m.buffers()} | {
            id(p) for p in frozen.values()
        }
        self._exposed = {name for name, buffer in buffers.items() if id(buffer) not in safe}
        self._placeholders = _hollow_out([*self._parameter_places, *self._buffer_places.values()])
        self._network = skeleton if isinstance(skeleton, Network) else WithFeatures(skeleton)
        self._mode: tuple[bool, bool] | None = None
        self._of_backbone = (
            sum(name.startswith("backbone.") for name in self.names)
            if isinstance(self._network, FineTuned)
            else 0
        )
        self.backbone = sum(self._sizes[: self._of_backbone])
        self.rows_at_once = self._network.rows_at_once
        # Frozen parameters are not in the vector.
        self.dense = self._network.dense_form if not buffers else None

    def initial(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The module's original flat parameters and buffers, as detached copies."""
        return self._parameters.clone(), {n: b.clone() for n, b in self._buffers.items()}

    def unflatten(self, parameters: Tensor) -> dict[str, Tensor]:
        """Views of the flat vector by name and in shape.

        With the buffers they make a state for the original module:
        ``module.load_state_dict(unflatten(parameters) | buffers, strict=False)``.
        """
        return dict(zip(self.names, self._views(parameters), strict=True))

    def apply(
        self,
        parameters: Tensor,
        buffers: dict[str, Tensor],
        inputs: Tensor,
        *,
        training: bool,
        held: bool = False,
    ) -> tuple[Output, dict[str, Tensor]]:
        """The network's output on ``inputs`` and the buffers after it.

        Neither ``buffers`` nor its tensors are changed; new buffers carry no gradient. With
        ``held``, a backbone is constant and runs in evaluation mode.
        Raises ``ValueError`` if parameters or buffers are not this model's.
        """
        if buffers.keys() != self._buffer_places.keys():
            raise ValueError(
                f"buffers must be {sorted(self._buffer_places)}; got {sorted(buffers)}"
            )
        if (training, held) != self._mode:
            if isinstance(self._network, FineTuned):
                self._network.held = held
            self._network.train(training)
            self._mode = training, held
        views = list(self._views(parameters))
        if held:  # nothing is differentiated there, so autograd can skip it
            views[: self._of_backbone] = [view.detach() for view in views[: self._of_backbone]]
        try:
            for places, value in zip(self._parameter_places, views, strict=True):
                for container, key in places:
                    container[key] = value
            for name, places in self._buffer_places.items():
                value = buffers[name].clone() if name in self._exposed else buffers[name]
                for container, key in places:
                    container[key] = value
            output = self._network(inputs)
            after = {name: _read(places) for name, places in self._buffer_places.items()}
        finally:
            # Values left here would keep graphs alive and make this object uncopyable.
            for container, key, placeholder in self._placeholders:
                container[key] = placeholder
        return output, after

    def _views(self, parameters: Tensor) -> Iterator[Tensor]:
        if parameters.shape != (self.size,):
            raise ValueError(
                f"parameters must be a vector of {self.size}; got shape {tuple(parameters.shape)}"
            )
        # One split, because its gradient is one concatenation; the gradient of each separate
        # slice would be a vector of full length.
        parts = torch.split(parameters, self._sizes)
        pairs = zip(parts, self._shapes, strict=True)
        # A view is an autograd node of its own; vectors need none.
        return (part if len(shape) == 1 else part.view(shape) for part, shape in pairs)


def _check_trainable(module: nn.Module, trainable: dict[str, nn.Parameter]) -> None:
    lazy = [n for n, p in trainable.items() if isinstance(p, nn.parameter.UninitializedParameter)]
    if lazy:
        raise ValueError(
            f"{type(module).__name__} has lazy parameters without a shape ({', '.join(lazy)}); "
            "run one batch through the module first"
        )
    if not trainable:
        raise ValueError(f"{type(module).__name__} has no trainable parameters")
    kinds = {(p.dtype, p.device) for p in trainable.values()}
    if len(kinds) > 1:
        found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise ValueError(
            f"{type(module).__name__} must have its trainable parameters in one dtype on one "
            f"device; found {found}"
        )


def _head(module: nn.Module, trainable: dict[str, nn.Parameter]) -> tuple[str, ...]:
    owners = [m for m in module.modules() if any(p.requires_grad for p in m.parameters(False))]
    linear = [m for m in owners if isinstance(m, nn.Linear)]
    own = {id(p) for p in (linear or owners)[-1].parameters(recurse=False)}
    return tuple(name for name, p in trainable.items() if id(p) in own)


def _places(module: nn.Module) -> dict[int, list[_Place]]:
    """Every place in ``module`` that holds a parameter or buffer, by the tensor's identity."""
    places: dict[int, list[_Place]] = {}
    for owner in module.modules():
        tables: tuple[dict[str, Any], ...] = (owner._parameters, owner._buffers)
        for table in tables:
            for name, tensor in table.items():
                if tensor is not None:
                    places.setdefault(id(tensor), []).append((table, name))
    return places


def _hollow_out(all_places: list[list[_Place]]) -> list[tuple[dict[str, Any], str, Tensor]]:
    """Replace the tensors by placeholders without storage, and return which were where.

    A layer that keeps its own reference to a tensor then fails instead of silently using it.
    """
    placeholders = []
    for places in all_places:
        container, key = places[0]
        tensor = container[key]
        hollow = torch.empty_like(tensor, device="meta")
        for container, key in places:
            container[key] = hollow
            placeholders.append((container, key, hollow))
    return placeholders


def _read(places: list[_Place]) -> Tensor:
    container, key = places[0]
    value: Tensor = container[key]
    return value.detach()


def _consecutive(sizes: list[int]) -> Iterator[slice]:
    start = 0
    for size in sizes:
        yield slice(start, start + size)
        start += size
