"""A trial's part of the store: record and files, evaluations, checkpoint and live curve."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from calibration.leftovers import token
from calibration.metrics.row_scores import RowScores
from sweeps.store.codec import DamagedError, decode_arrays, decode_tensors, digest
from sweeps.store.files import StoreError
from sweeps.store.layout import (
    attempt_directory,
    attempt_parts,
    file_name,
    part,
    trial_directory,
    trial_file,
)
from sweeps.store.opened import OpenedStore
from sweeps.store.records import (
    EvaluationRecord,
    StoredFile,
    TrialOutcome,
    TrialRecord,
    checked_scores,
)
from sweeps.store.sealed import sealed
from sweeps.store.validation import checked_evaluation, checked_record

ATTEMPT = re.compile(rb'"attempt": "([0-9a-f]{32})"')

T = TypeVar("T")


class TrialFiles(OpenedStore):
    """Trials by key, independent of the sweeps they belong to."""

    def record(self, key: str) -> TrialRecord | None:
        """The complete record of a trial, or None while there is none."""
        path = f"{trial_directory(key)}/record.json"
        content = self._files.read(path)
        if content is None:
            return None
        try:
            return checked_record(key, self._sealed.content(path, content))
        except DamagedError as error:
            self._sealed.set_aside(key, path, content, error, attempt_parts(key, _attempt(content)))
            return None

    def file_record(
        self, key: str, outcome: TrialOutcome, files: Mapping[str, bytes] | None = None
    ) -> bool:
        """Write the record and files of a finished trial; False if a record already exists.

        The files go to a directory of this attempt, so that those of several attempts
        never mix. The trial's checkpoint and live curve are removed.
        """
        files = files or {}
        attempt = token()
        entries = {trial_file(name): _entry(file) for name, file in files.items()}
        path = f"{trial_directory(key)}/record.json"
        record = {**outcome.model_dump(), "key": key, "attempt": attempt, "files": entries}
        content = sealed(path, record)
        created = False
        try:
            if self.record(key) is None:
                for name, file in files.items():
                    self._files.write(f"{attempt_directory(key, attempt)}/{name}", file)
                created = self._sealed.create(path, content, lambda: self.record(key))
        finally:
            if files and not created:
                self._withdraw(key, attempt)
        self._forget(key)
        return created

    def trial_location(self, key: str) -> str:
        """The location of a trial's files, for display."""
        return f"{self.root}/{trial_directory(key)}"

    def intact(self, record: TrialRecord) -> bool:
        """Whether all files of a record exist and are undamaged.

        On a remote store the files are not fetched for this: each is verified when it is read.
        """
        if self.local is None:
            return True
        try:
            for name in record.files:
                self._verified(record, name)
        except DamagedError:
            return False
        return True

    def file(self, record: TrialRecord, name: str) -> bytes | None:
        """One of a record's files, or None. A damaged trial is set aside: ``StoreError``."""
        return self._file(record, name, lambda content: content)

    def arrays(self, record: TrialRecord, file: str) -> dict[str, torch.Tensor] | None:
        """One of a record's files, made by ``encode_arrays``; see ``file``."""
        return self._file(record, file, decode_arrays)

    def predictions(self, record: TrialRecord) -> dict[str, torch.Tensor]:
        """The stored logits and labels of a trial. Raises ``StoreError`` if there are none."""
        found = self.arrays(record, "predictions.npz")
        if found is None:
            raise self._missing(record.key, "no predictions are stored")
        return found

    def tensors(self, record: TrialRecord, file: str) -> dict[str, Any] | None:
        """One of a record's files, made by ``encode_tensors``; see ``file``."""
        return self._file(record, file, decode_tensors)

    def write_extra(self, key: str, name: str, content: bytes) -> None:
        """Add a reproducible file, such as a figure, to a trial that is done."""
        record = self._done(key)
        if trial_file(name) in record.files:
            raise ValueError(f"name: found {name!r}, which belongs to the record; use another")
        self._files.write(f"{_home(record)}/{name}", content)

    def extra(self, record: TrialRecord, name: str) -> bytes | None:
        """A file added by ``write_extra``, or None."""
        return self._files.read(f"{_home(record)}/{trial_file(name)}")

    def evaluations(self, record: TrialRecord, tag: str) -> dict[str, EvaluationRecord]:
        """The newest evaluations of a trial's calibrators under one tag, by name.

        Impossible ones are set aside.
        """
        directory = f"{_home(record)}/evaluations/{part(tag, 'tag')}"
        return self._sealed.read_all(directory, record.key, checked_evaluation)

    def evaluation_tags(self, record: TrialRecord) -> list[str]:
        """The tags under which a trial's calibrators were evaluated."""
        return self._files.directories(f"{_home(record)}/evaluations")

    def row_scores(
        self, record: TrialRecord, tag: str, name: str, evaluation: EvaluationRecord
    ) -> RowScores | None:
        """The scores of each test row under a calibrator; None if they were not recorded.

        Scores that are damaged or do not belong to the evaluation are set aside with it: the
        next run of the sweep makes both again.
        """
        path = _row_scores(record, tag, name)
        content = self._files.read(path)
        try:
            if content is None:
                return None
            values = self._sealed.checkpoint(path, content)
            if values.get("version") != evaluation.version:
                return None  # about to be evaluated again, or evaluated before scores were stored
            return checked_scores(values, evaluation)
        except DamagedError as error:
            paths = [path, _evaluation(record, tag, name)]
            self._sealed.set_aside(record.key, path, content, error, paths)
            return None

    def write_evaluation(
        self,
        key: str,
        tag: str,
        name: str,
        evaluation: EvaluationRecord,
        rows: RowScores | None = None,
    ) -> None:
        """Write the evaluation of one calibrator of a finished trial, and its rows' scores.

        An evaluation made by another version is kept beside it.
        """
        record = self._done(key)
        home = _home(record)
        if rows is not None:  # first: an evaluation that exists must have its scores
            values = {**rows._asdict(), "version": evaluation.version}
            self._sealed.write_checkpoint(_row_scores(record, tag, name), values)
        path = _evaluation(record, tag, name)
        before = self._sealed.read(
            path, key, lambda content: checked_evaluation(self._sealed.content(path, content))
        )
        if before is not None and before.version != evaluation.version:
            older = f"{part(name)}.{file_name(before.version)}.json"
            self._sealed.write(f"{home}/older-evaluations/{tag}/{older}", before.model_dump())
        self._sealed.write(path, evaluation.model_dump())

    def retire(self, record: TrialRecord) -> None:
        """Move a trial's record and files aside, so that it can be retried.

        A record that another attempt has written since then stays.
        """
        now = self.record(record.key)
        if now is None or now.attempt != record.attempt:
            return
        parts = attempt_parts(record.key, record.attempt)
        self._sealed.move_aside("retired", record.key, "to be tried again", parts)

    def checkpoint(self, key: str) -> dict[str, Any] | None:
        """The values last written by ``write_checkpoint`` for this trial, or None."""
        return self._sealed.read_checkpoint(f"{trial_directory(key)}/checkpoint.bin", key)

    def write_checkpoint(self, key: str, values: dict[str, Any]) -> None:
        """Replace a trial's checkpoint: tensors and plain values."""
        self._sealed.write_checkpoint(f"{trial_directory(key)}/checkpoint.bin", values)

    def reject_checkpoint(self, key: str, reason: str) -> None:
        """Set aside a checkpoint that its trial cannot continue."""
        self._sealed.reject(f"{trial_directory(key)}/checkpoint.bin", key, reason)

    def live(self, key: str) -> dict[str, Any] | None:
        """The values last written by ``write_live`` for this trial, or None."""
        path = f"{trial_directory(key)}/live.json"
        return self._sealed.read(path, key, lambda content: self._sealed.content(path, content))

    def write_live(self, key: str, values: dict[str, Any]) -> None:
        """Replace the live curve of a trial in training."""
        self._sealed.write(f"{trial_directory(key)}/live.json", values)

    def _file(self, record: TrialRecord, name: str, decode: Callable[[bytes], T]) -> T | None:
        if trial_file(name) not in record.files:
            return None
        path = f"{self.root}/{_home(record)}/{trial_file(name)}"
        try:
            content = self._verified(record, name)
        except DamagedError as error:
            raise StoreError(
                f"{path} is damaged: {error}; the next run of the sweep repeats the trial"
            ) from error
        try:
            return decode(content)
        except DamagedError as error:
            # The bytes are as recorded: another version wrote them, or other software.
            raise StoreError(f"{path}: {error}; read it with the version that wrote it") from error

    def _verified(self, record: TrialRecord, name: str) -> bytes:
        """A file of the record. Raises ``DamagedError`` after setting the trial aside."""
        path = f"{_home(record)}/{name}"
        content = self._files.read(path)
        try:
            if content is None:
                raise DamagedError("it is missing")
            if record.files[name] != StoredFile(**_entry(content)):
                raise DamagedError("its checksum is wrong")
        except DamagedError as error:
            now = self.record(record.key)
            if now is not None and now.attempt == record.attempt:
                parts = attempt_parts(record.key, record.attempt)
                self._sealed.set_aside(record.key, path, content, error, parts)
            raise
        return content

    def _withdraw(self, key: str, attempt: str) -> None:
        """Remove the files of an attempt that did not become the record."""
        # After an interruption or a lost answer of the server it may have become it after all.
        record = self.record(key)
        if record is None or record.attempt != attempt:
            self._files.delete_tree(attempt_directory(key, attempt))

    def _forget(self, key: str) -> None:
        for name in ("checkpoint.bin", "live.json"):
            self._files.delete(f"{trial_directory(key)}/{name}")

    def _done(self, key: str) -> TrialRecord:
        """The record of a trial that has ended. Raises ``StoreError`` if there is none."""
        record = self.record(key)
        if record is None:
            raise self._missing(key, "there is no record, or it was removed")
        return record

    def _missing(self, key: str, what: str) -> StoreError:
        return StoreError(f"{self.root}/{trial_directory(key)}: {what}; run the sweep again")


def _entry(content: bytes) -> dict[str, Any]:
    return {"sha256": digest(content), "size": len(content)}


def _attempt(content: bytes) -> str | None:
    """The attempt that a damaged record names, if that can still be read."""
    found = ATTEMPT.search(content)
    return found[1].decode() if found else None


def _home(record: TrialRecord) -> str:
    """The directory of a record's files."""
    return attempt_directory(record.key, record.attempt)


def _evaluation(record: TrialRecord, tag: str, name: str) -> str:
    return f"{_home(record)}/evaluations/{part(tag, 'tag')}/{part(name)}.json"


def _row_scores(record: TrialRecord, tag: str, name: str) -> str:
    return f"{_home(record)}/row-scores/{part(tag, 'tag')}/{part(name)}.bin"
