"""The output of a network, and a wrapper for modules that return something else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor, nn

from calibration.models.dense import Dense


class Output(NamedTuple):
    """Logits (N, K) and the penultimate features (N, d) they were computed from."""

    logits: Tensor
    features: Tensor


class Network(nn.Module, ABC):
    """A module whose forward returns an ``Output``.

    ``rows_at_once`` limits the rows to predict at once, for layers that need much memory.
    """

    rows_at_once: int | None = None

    @property
    def dense_form(self) -> Dense | None:
        """The same function of all its parameters written by hand, if there is one."""
        return None

    @abstractmethod
    def forward(self, inputs: Tensor) -> Output:
        """Logits and penultimate features of a batch of inputs."""


class WithFeatures(Network):
    """Any module as a ``Network``.

    ``network``'s forward may return an ``Output``, a pair (logits, features), or plain logits.
    In the last case the features are the input of the ``nn.Linear`` that was called last among
    those with an output of the logits' width; if there is none, the logits themselves.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self._inputs_by_width: dict[int, Tensor] = {}
        for module in network.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(self._remember)

    def forward(self, inputs: Tensor) -> Output:
        """The network's result as an ``Output``.

        Raises ``TypeError`` if the network returns neither logits nor a pair.
        """
        try:
            result = self.network(inputs)
            if isinstance(result, Tensor):
                width = result.shape[-1] if result.dim() else 0
                return Output(result, self._inputs_by_width.get(width, result))
        finally:
            # Kept any longer, it would keep a batch's graph alive.
            self._inputs_by_width.clear()
        if isinstance(result, tuple) and len(result) == 2:
            logits, features = result
            return Output(logits, features.flatten(1))
        raise TypeError(
            "a model's forward must return logits or the pair (logits, features); "
            f"got {type(result).__name__}"
        )

    def _remember(self, _module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
        # Linear layers inside attention blocks see (N, length, d): no features of a sample.
        if output.dim() == 2:
            self._inputs_by_width[output.shape[-1]] = arguments[0]
