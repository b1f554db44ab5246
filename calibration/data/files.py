"""Finding and checking the files of public datasets."""

from __future__ import annotations

import hashlib
import os
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from calibration.data.checksums import MD5
from calibration.data.dataset import Dataset, DatasetOptions
from calibration.data.fixed import FixedDataset

_Rows = Annotated[int, Field(ge=10)]


class DataFileError(ValueError):
    """Raised when a dataset's files are absent, incomplete or damaged."""


class AbsentDataError(DataFileError):
    """Raised when none of a dataset's files is found."""


class DownloadedOptions(DatasetOptions):
    """Where the files are: ``data_dir``, else $CALSWEEP_DATA, else ./data.

    ``train_rows`` and ``test_rows`` take a fixed, class-balanced subset of each part.
    """

    data_dir: Path | None = None
    train_rows: _Rows | None = None
    test_rows: _Rows | None = None

    def load(self) -> Dataset:
        """Read the files and select the requested rows. Raises ``DataFileError``."""
        return self.read().subset(self.train_rows, self.test_rows)

    @abstractmethod
    def read(self) -> FixedDataset:
        """Read the files. Raises ``DataFileError`` if they are absent or damaged."""

    @property
    def folder(self) -> Path:
        """The data directory in effect."""
        return self.data_dir or Path(os.environ.get("CALSWEEP_DATA") or "data")


def absent(
    dataset: str, folder: Path, expected: Sequence[str], also: Sequence[Path], remedy: str
) -> AbsentDataError:
    """Return the error for files not found: where it looked, for what, and what to do."""
    elsewhere = f" (nor in {', '.join(map(str, also))})" if also else ""
    return AbsentDataError(
        f"{dataset}: not found in {folder.absolute()}{elsewhere}; expected "
        f"{', or '.join(expected)}. {remedy} Or name another folder with the "
        "option data_dir or $CALSWEEP_DATA."
    )


def verify(dataset: str, path: Path, file: str, content: bytes) -> None:
    """Compare a file's (uncompressed) content with the official MD5.

    An unknown checksum only warns: the file may be a legitimate subset or variant. Raises
    ``DataFileError`` if the checksum is that of another known file.
    """
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found == MD5.get(dataset, {}).get(file):
        return
    for other, sums in MD5.items():
        for other_file, known in sums.items():
            if found == known:
                raise DataFileError(f"{path}: this is {other_file} of {other}, not {dataset}")
    warnings.warn(
        f"{path}: the content is not the official {file} of {dataset} (MD5 {found})", stacklevel=2
    )
