"""A dataset seen through a pretrained network: the same rows, with embeddings as inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from torch import Tensor

from calibration.data.dataset import Part
from calibration.data.fixed import FixedDataset


class EmbeddedDataset(FixedDataset):
    """The rows of ``rows``, split in the same way; ``embed`` is called when test rows are read.

    Its fingerprint is that of the rows: the embedding network is recorded elsewhere.
    """

    def __init__(
        self, rows: FixedDataset, embeddings: Tensor, embed: Callable[[Tensor], Tensor]
    ) -> None:
        self.name, self.kind, self.class_names = rows.name, rows.kind, rows.class_names
        self.fixed_split, self.test_groups, self.columns = rows.fixed_split, rows.test_groups, ()
        self._pool = rows.pool._replace(inputs=embeddings)
        self._rows, self._embed = rows, embed

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the rows before embedding."""
        return self._rows.fingerprint

    def test(self, seed: int) -> Part:
        """Embed the test part, the same for every seed."""
        part = self._rows.test(seed)
        return part._replace(inputs=self._embed(part.inputs))
