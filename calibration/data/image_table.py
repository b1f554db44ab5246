"""Images in a column of a Parquet or Arrow file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]

from calibration.data.cache import file_identity
from calibration.data.dataset import DATASETS, Dataset, Part
from calibration.data.files import DataFileError
from calibration.data.frame_chunks import together
from calibration.data.image_cache import ImageSource, cached_images
from calibration.data.image_folder import ImageOptions, part_of
from calibration.data.labels import class_names_of, encode_labels
from calibration.data.parquet import rows_at_once
from calibration.data.paths import check_file

_ROWS_AT_ONCE = 256


@DATASETS.register("image_table")
class ImageTable(ImageOptions):
    """Images (JPEG, PNG, WebP) in a column of a Parquet or Arrow file, classes in another.

    The column ``image`` holds encoded images or, as written by Hugging Face's ``datasets``,
    records with a field ``bytes``; class names stored in such a file are used. ``test_path`` is
    a file of test rows; without it ``test_share`` is set aside. ``size``, ``fit``, ``colours``
    and ``on_error`` are those of ``image_folder``; images are decoded once, into
    $CALSWEEP_CACHE.
    """

    path: Path
    image: str = "image"
    target: str = "label"
    test_path: Path | None = None

    def load(self) -> Dataset:
        """Decode the images or read the cache. Raises ``ValueError`` naming file and row."""
        files = [self.path, *([self.test_path] if self.test_path is not None else [])]
        tables = [_File(path, self.image, self.target) for path in files]
        labels = [table.labels() for table in tables]
        where = [f"{path}, column {self.target!r}" for path in files]
        given = tables[0].class_names
        if given is None:
            class_names = class_names_of(labels[0], where[0])
        else:
            class_names = given
            labels = [values.map(dict(enumerate(given))) for values in labels]
        parts = [
            self._part(table, encode_labels(values, class_names, origin))
            for table, values, origin in zip(tables, labels, where, strict=True)
        ]
        return self.dataset(self.path.name.partition(".")[0], parts, class_names, self.path)

    def _part(self, table: _File, labels: Any) -> Part:
        identity = [*file_identity([table.path], table.path.parent, "look again"), self.image]
        found = cached_images(identity, table.images, self.form, on_error=self.on_error)
        return part_of(found, labels)


class _File:
    """A file with a column of images and a column of classes, read a few rows at a time."""

    def __init__(self, path: Path, image: str, target: str) -> None:
        self.path, self.image, self.target = path, image, target
        check_file(path)
        try:
            self.schema = self._schema()
        except (pa.ArrowException, OSError) as error:
            raise DataFileError(f"{path}: not a readable Parquet or Arrow file: {error}") from None
        for role, name in (("image", image), ("target", target)):
            if name not in self.schema.names:
                found = ", ".join(self.schema.names[:20])
                raise DataFileError(f"{path}: no {role} column {name!r}; columns: {found}")

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names that Hugging Face's ``datasets`` stores for numbered classes."""
        try:
            about = json.loads((self.schema.metadata or {})[b"huggingface"])
            names = about["info"]["features"][self.target]["names"]
        except (KeyError, TypeError, ValueError):
            return None
        return tuple(map(str, names))

    def labels(self) -> pd.Series[Any]:
        """The column of classes."""
        batches = (batch.to_pandas() for batch in self._batches(self.target))
        found = together(batches, f"{self.path}: the labels take")
        if found.empty:
            raise DataFileError(f"{self.path}: there are no rows")
        return found[self.target]

    def images(self) -> Iterator[tuple[str, ImageSource]]:
        """For every row, its name in messages and its encoded image."""
        row = 0
        for batch in self._batches(self.image):
            for value in batch.column(0).to_pylist():
                content = value.get("bytes") if isinstance(value, dict) else value
                # An empty value fails to decode, and is reported like any damaged image.
                encoded = content if isinstance(content, bytes) else b""
                yield f"{self.path}, row {row} (counted from 0)", encoded
                row += 1

    def _schema(self) -> pa.Schema:
        if self._is_parquet:
            import pyarrow.parquet as pq  # type: ignore[import-untyped]

            return pq.read_schema(self.path)
        return self._arrow().schema

    def _batches(self, column: str) -> Iterator[pa.RecordBatch]:
        if self._is_parquet:
            import pyarrow.parquet as pq

            with pq.ParquetFile(self.path) as file:
                rows = rows_at_once(self.path, [column], _ROWS_AT_ONCE)
                yield from file.iter_batches(rows, columns=[column])
            return
        for batch in self._arrow():
            whole = batch.select([column])
            for start in range(0, whole.num_rows, _ROWS_AT_ONCE):
                yield whole.slice(start, _ROWS_AT_ONCE)

    def _arrow(self) -> Any:
        """Record batches of either Arrow format (file or stream), memory-mapped."""
        source = pa.memory_map(str(self.path))
        try:
            file = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(pa.memory_map(str(self.path)))
        return _FileBatches(file)

    @property
    def _is_parquet(self) -> bool:
        return bool({suffix.lower() for suffix in self.path.suffixes} & {".parquet", ".pq"})


class _FileBatches:
    """An Arrow file's batches in order, with the interface of a stream."""

    def __init__(self, file: Any) -> None:
        self.file, self.schema = file, file.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return (self.file.get_batch(place) for place in range(self.file.num_record_batches))
