"""Embedded data in a store: write-once, with a claim of the process that makes it.

::

    ROOT/embeddings/KEY.bin      the embeddings of one part of a dataset
    ROOT/embeddings/KEY.claim    while a process makes them: rewritten as a sign of life
"""

from __future__ import annotations

from torch import Tensor

from calibration.leftovers import token
from sweeps.store.codec import DamagedError, encode_checkpoint
from sweeps.store.layout import checked_key
from sweeps.store.opened import OpenedStore
from sweeps.store.sealed import PLACE, place

_CONTENT = "embeddings"


class EmbeddingFiles(OpenedStore):
    """Embeddings by their keys, whichever sweeps use them."""

    def embeddings(self, key: str) -> Tensor | None:
        """The stored embeddings (N, width), or None while there are none."""
        path = _path(key)

        def decode(content: bytes) -> Tensor:
            found = self._sealed.checkpoint(path, content).get(_CONTENT)
            if not isinstance(found, Tensor) or found.ndim != 2:
                raise DamagedError("it does not contain embeddings")
            return found

        return self._sealed.read(path, f"embeddings-{key}", decode)

    def file_embeddings(self, key: str, embeddings: Tensor) -> bool:
        """Store embeddings; False, with nothing changed, if there already are some."""
        path = _path(key)
        content = encode_checkpoint({_CONTENT: embeddings, PLACE: place(path)})
        return self._sealed.create(path, content, lambda: self.embeddings(key))

    def claim_embeddings(self, key: str, *, anew: bool = False) -> bool:
        """Claim to make them; False if another process already does.

        With ``anew`` the claim is replaced: as a sign of life, or since the other shows none.
        """
        sign = token().encode()
        if anew:
            self._files.write(_claim(key), sign)
            return True
        return self._files.create(_claim(key), sign)

    def embeddings_claim(self, key: str) -> bytes | None:
        """The last sign of life of the process that makes them, a token; None if none does."""
        return self._files.read(_claim(key))

    def release_embeddings(self, key: str) -> None:
        """Remove the claim: they are stored, or making them has failed."""
        self._files.delete(_claim(key))


def _path(key: str) -> str:
    return f"embeddings/{checked_key(key)}.bin"


def _claim(key: str) -> str:
    return f"embeddings/{checked_key(key)}.claim"
