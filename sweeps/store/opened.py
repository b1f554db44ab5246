"""An opened store: the only access to its files."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from sweeps.store.files import Files, LocalFiles, StoreError, open_files
from sweeps.store.format import check_format
from sweeps.store.sealed import SealedFiles


class OpenedStore:
    """A path or an fsspec URI; nothing is read or written until it is needed."""

    def __init__(self, root: str | Path) -> None:
        self._unchecked = open_files(root)
        self.root = self._unchecked.root
        self.local = self._unchecked.path if isinstance(self._unchecked, LocalFiles) else None
        if self.local is not None and self.local.exists() and not self.local.is_dir():
            raise StoreError(f"{root}: not a directory; a store is a directory or a URI")

    @cached_property
    def _files(self) -> Files:
        """All access goes through here, so that the format is checked first."""
        check_format(self._unchecked)
        return self._unchecked

    @cached_property
    def _sealed(self) -> SealedFiles:
        return SealedFiles(self._files)
