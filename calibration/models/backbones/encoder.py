"""A pretrained network with its preprocessing: from raw inputs to embeddings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from calibration.data.fingerprint import fingerprint

EMBEDDING_VERSION = 1
"""Part of every embedding's key: increase it when a change alters embeddings."""


class Encoder(ABC):
    """Embeds raw inputs with a network that is not trained itself; a copy of it may be.

    ``preprocessing`` consists of plain values that fully describe what precedes the network.
    """

    unused: ClassVar[tuple[str, ...]] = ()
    """Prefixes of tensors that an embedding does not depend on."""
    inside: ClassVar[str] = ""
    """The prefix of the network's tensors in the module that ``trainable`` returns."""

    def __init__(self, name: str, network: nn.Module, preprocessing: dict[str, Any]) -> None:
        self.name = name
        self._trainable = {n for n, p in network.named_parameters() if p.requires_grad}
        self.network = network.float().eval().requires_grad_(False)
        self.preprocessing = preprocessing

    @abstractmethod
    def prepared(self, inputs: Tensor) -> Tensor:
        """The network's inputs for raw inputs, on their device.

        Raises ``ValueError`` for inputs that are not of its kind.
        """

    def vectors(self, prepared: Tensor) -> Tensor:
        """The network's output (N, width) for prepared inputs."""
        found: Tensor = self.network(prepared)
        return found

    def blank(self, shape: tuple[int, ...]) -> Tensor:
        """One prepared input of this shape without content."""
        return torch.zeros(1, *shape, device="cpu")

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write the weights and all other files needed for ``weights: directory``."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the name, the preprocessing and the weights, whatever their file."""
        state = sorted(self.network.state_dict().items())
        used = [(name, tensor) for name, tensor in state if not name.startswith(self.unused)]
        description = [self.name, self.preprocessing, [name for name, _ in used]]
        return fingerprint(description, [tensor.cpu() for _, tensor in used])

    def vector_shape(self, vectors: Tensor) -> tuple[int, ...]:
        """The shape of one of the network's outputs; ``ValueError`` unless it is a vector."""
        if vectors.ndim != 2:
            raise ValueError(
                f"{self.name} gives outputs of shape {tuple(vectors.shape[1:])} for an input; a "
                "backbone gives one vector"
            )
        return tuple(vectors.shape[1:])

    def trainable(self) -> nn.Module:
        """A copy of the network that gives ``vectors``, whose parameters can be trained."""
        network = deepcopy(self.network)
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(name in self._trainable and not name.startswith(self.unused))
        return network

    def with_weights(self, weights: Mapping[str, Tensor]) -> Encoder:
        """The same encoder with trained weights."""
        made = copy(self)
        made.__dict__.pop("digest", None)
        made.network = deepcopy(self.network)
        kept = {name: weights[name] for name in made.network.state_dict() if name in weights}
        made.network.load_state_dict(kept, strict=False)  # tied tensors appear only once
        return made

    @torch.no_grad()
    def embed(
        self,
        inputs: Tensor,
        *,
        batch_size: int,
        device: str = "cpu",
        after_batch: Callable[[], None] = lambda: None,
    ) -> Tensor:
        """The embeddings of raw inputs as float32 on the CPU, computed batch by batch.

        ``after_batch`` is called now and then. Raises ``ValueError`` if one is not finite.
        """
        self.network.to(device)
        pieces = []
        try:
            for batch in inputs.split(batch_size):
                pieces.append(self.vectors(self.prepared(batch.to(device))).float().cpu())
                after_batch()
        finally:
            self.network.to("cpu")
        found = torch.cat(pieces)
        self.vector_shape(found)
        if not bool(found.isfinite().all()):
            row = int((~found.isfinite()).any(1).nonzero()[0])
            raise ValueError(
                f"{self.name}: the embedding of row {row} is not finite; are the weights damaged?"
            )
        return found
