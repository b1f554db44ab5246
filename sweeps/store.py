"""The store: a directory of trial records filed under their keys, and one per sweep.

::

    ROOT/records/KEY/record.json      config, status, curve, timings, environment
                     predictions.npz  logits and labels (test part only after confirmation)
                     network.pt       the trained weights (confirmed trials)
                     history.npz      how a method's own state went, if it keeps one
                     maps/15-bins/NAME.json  the evaluation of one post-hoc map
                     checkpoint.pt    while the trial is unfinished
    ROOT/SWEEP/…                      spec, suggestions, leaderboard, figures, report

``record.json`` is written last and whole: a trial is done when it is there. Every file is
written beside its place and moved into it, so a reader sees all of it or nothing.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

RECORD_FORMAT = 1
RESERVED_NAMES = frozenset({"records", "mlartifacts", "mlflow.db"})


class StoreError(RuntimeError):
    """The store cannot be read or written; the message names the path and the cause."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all. Raises ``StoreError``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}; free space or choose --store"
        ) from error


def to_json(value: Any) -> bytes:
    """Stable, readable JSON; numbers that are infinite or NaN are written as strings."""
    return (json.dumps(_plain(value), indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def file_name(name: str) -> str:
    """``name`` as part of a path: everything unusual becomes an underscore."""
    return "".join(c if c.isalnum() or c in "-_.+" else "_" for c in name)


class Store:
    """Reads and writes the files of one store."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def sweep_directory(self, sweep: str) -> Path:
        """Where a sweep's own files lie."""
        return self.root / sweep

    def trial_directory(self, key: str) -> Path:
        """Where a trial's files lie."""
        return self.root / "records" / key

    def record(self, key: str) -> dict[str, Any] | None:
        """The complete record of a trial, or None while it is not done."""
        path = self.trial_directory(key) / "record.json"
        if not path.exists():
            return None
        loaded: dict[str, Any] = json.loads(path.read_text())
        return loaded

    def write_record(self, key: str, record: dict[str, Any]) -> None:
        """File a complete record. The first one stays: later attempts change nothing."""
        path = self.trial_directory(key) / "record.json"
        if not path.exists():
            write_atomically(path, to_json(record | {"format": RECORD_FORMAT, "key": key}))
        (self.trial_directory(key) / "checkpoint.pt").unlink(missing_ok=True)

    def maps(self, key: str, tag: str) -> dict[str, dict[str, Any]]:
        """The evaluations of a trial's post-hoc maps made in one way, by name."""
        files = (self.trial_directory(key) / "maps" / tag).glob("*.json")
        return {path.stem: json.loads(path.read_text()) for path in files}

    def write_map(self, key: str, tag: str, name: str, evaluation: dict[str, Any]) -> None:
        """File the evaluation of one post-hoc map."""
        directory = self.trial_directory(key) / "maps" / tag
        write_atomically(directory / f"{name}.json", to_json(evaluation))

    def predictions(self, key: str) -> dict[str, torch.Tensor]:
        """The stored logits and labels of a trial."""
        found = self.arrays(key, "predictions.npz")
        if found is None:
            raise StoreError(f"no predictions are stored for trial {key}")
        return found

    def arrays(self, key: str, file: str) -> dict[str, torch.Tensor] | None:
        """What ``write_arrays`` filed, or None."""
        path = self.trial_directory(key) / file
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}

    def write_arrays(self, key: str, file: str, arrays: Mapping[str, torch.Tensor]) -> None:
        """File tensors as compressed arrays that any tool can read."""
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer, allow_pickle=False, **{name: a.cpu().numpy() for name, a in arrays.items()}
        )
        write_atomically(self.trial_directory(key) / file, buffer.getvalue())

    def write_tensors(self, key: str, file: str, values: dict[str, Any]) -> None:
        """File tensors and plain values, readable without unpickling code."""
        buffer = io.BytesIO()
        torch.save(values, buffer)
        write_atomically(self.trial_directory(key) / file, buffer.getvalue())

    def tensors(self, key: str, file: str) -> dict[str, Any] | None:
        """What ``write_tensors`` filed, or None."""
        path = self.trial_directory(key) / file
        if not path.exists():
            return None
        loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return loaded

    def suggestions(self, sweep: str, study: str) -> Iterator[dict[str, Any]]:
        """The persisted suggestions of one study, in order."""
        number = 0
        while (path := self._suggestion(sweep, study, number)).exists():
            yield json.loads(path.read_text())
            number += 1

    def write_suggestion(
        self, sweep: str, study: str, number: int, suggestion: dict[str, Any]
    ) -> None:
        """Persist suggestion ``number`` of a study before its training starts."""
        write_atomically(self._suggestion(sweep, study, number), to_json(suggestion))

    def _suggestion(self, sweep: str, study: str, number: int) -> Path:
        return self.sweep_directory(sweep) / "suggestions" / study / f"{number:06d}.json"
