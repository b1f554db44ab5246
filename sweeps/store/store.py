"""The store: trial records filed under their keys, and each sweep's own files.

::

    ROOT/records/KEY/record.json          config, status, curve, timings; digests of the files
                     ATTEMPT/…            predictions.npz, network.pt, history.npz
                     ATTEMPT/evaluations/TAG/…   the evaluations of calibrators, one file each
                     ATTEMPT/row-scores/TAG/…    what each test row scored, by calibrator
                     checkpoint.bin, live.json     while the trial is unfinished
    ROOT/SWEEP/…                          spec, leaderboard, figures, report
    ROOT/SWEEP/suggestions/STUDY/…        what was suggested, before it is trained
    ROOT/SWEEP/stopped/STUDY/KEY.json     records of trials that were stopped early
    ROOT/damaged, ROOT/retired            what was found damaged, what was tried again

``record.json`` is created last and once: a trial is done when it is there, and of several
attempts at one trial the first to get there counts. Everything carries a checksum and says
whose it is; what is damaged or another's is moved aside with a warning and then is not there.
A store that another version made is refused whole: see ``sweeps.store.format``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ValidationError

from calibration.metrics.row_scores import RowScores
from sweeps.host.leftovers import is_leftover, token
from sweeps.store.codec import (
    DamagedError,
    decode_arrays,
    decode_tensors,
    digest,
)
from sweeps.store.files import Files, LocalFiles, StoreError, clear_drafts, open_files
from sweeps.store.format import check_format
from sweeps.store.layout import (
    RESERVED_NAMES,
    SWEEP_STATE,
    TRIAL_KEY,
    attempt_directory,
    attempt_parts,
    checked_key,
    file_name,
    part,
    study_directory,
    sweep_directory,
    sweep_file,
    trial_directory,
    trial_file,
)
from sweeps.store.lock import SweepLock, sweep_lock
from sweeps.store.records import (
    EvaluationRecord,
    StoredFile,
    TrialOutcome,
    TrialRecord,
    checked_scores,
)
from sweeps.store.sealed import SealedFiles, sealed

ATTEMPT = re.compile(rb'"attempt": "([0-9a-f]{32})"')
HEX = re.compile(r"[0-9a-f]{32}")

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


class Store:
    """Reads and writes one store, on a path or an fsspec URI such as ``s3://bucket/runs``.

    Every method raises ``StoreError`` when the files cannot be reached or were written by
    another version, and ``ValueError`` for a name that would lead out of its directory.
    """

    def __init__(self, root: str | Path) -> None:
        self._unchecked = open_files(root)
        self.root = self._unchecked.root
        self.local = self._unchecked.path if isinstance(self._unchecked, LocalFiles) else None
        if self.local is not None and self.local.exists() and not self.local.is_dir():
            raise StoreError(f"{root}: not a directory; a store is a directory or a URI")

    @cached_property
    def _files(self) -> Files:
        """All access goes through here, so that it begins with a look at the format."""
        check_format(self._unchecked)
        return self._unchecked

    @cached_property
    def _sealed(self) -> SealedFiles:
        return SealedFiles(self._files)

    def sweeps(self) -> list[str]:
        """The names of the directories that may be sweeps'."""
        return [name for name in self._files.directories("") if name not in RESERVED_NAMES]

    def trial_keys(self) -> list[str]:
        """The keys of all trials that have a record or are on their way."""
        return [name for name in self._files.directories("records") if TRIAL_KEY.fullmatch(name)]

    # --- a sweep's own files

    def write_file(self, sweep: str, name: str, content: bytes) -> None:
        """Write one of a sweep's result files, such as ``figures/x.png``."""
        self._files.write(sweep_file(sweep, name), content)

    def read_file(self, sweep: str, name: str) -> bytes | None:
        """One of a sweep's result files, or None."""
        return self._files.read(sweep_file(sweep, name))

    def files(self, sweep: str, under: str = "") -> list[str]:
        """The names of a sweep's result files, or of those in its directory ``under``."""
        if not under:
            return self._files.names(sweep_directory(sweep))
        return [f"{under}/{name}" for name in self._files.names(sweep_file(sweep, under))]

    def location(self, sweep: str, name: str = "") -> str:
        """Where a sweep's directory or file lies, to be shown to people."""
        return f"{self.root}/{sweep_file(sweep, name) if name else sweep_directory(sweep)}"

    def lock(self, sweep: str) -> SweepLock:
        """Held by the one driver of a sweep; entering it raises ``LockedError``."""
        return sweep_lock(self._files, sweep_directory(sweep))

    def state(self, sweep: str) -> dict[str, Any] | None:
        """What ``write_state`` wrote last, or None."""
        path = f"{sweep_directory(sweep)}/{SWEEP_STATE}"
        return self._sealed.read(path, sweep, lambda content: self._sealed.content(path, content))

    def write_state(self, sweep: str, values: dict[str, Any]) -> None:
        """Replace what a sweep remembers from run to run beside its spec."""
        self._sealed.write(f"{sweep_directory(sweep)}/{SWEEP_STATE}", values)

    # --- trials

    def record(self, key: str) -> TrialRecord | None:
        """The complete record of a trial, or None while there is none."""
        path = f"{trial_directory(key)}/record.json"
        content = self._files.read(path)
        if content is None:
            return None
        try:
            return _validated(key, self._sealed.content(path, content))
        except DamagedError as error:
            self._sealed.set_aside(key, path, content, error, attempt_parts(key, _attempt(content)))
            return None

    def file_record(
        self, key: str, outcome: TrialOutcome, files: Mapping[str, bytes] | None = None
    ) -> bool:
        """File a finished trial with its files; False if a record was there already.

        The files go to a directory of this attempt's own, so that those of several attempts
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
        """Where a trial's files lie, to be shown to people."""
        return f"{self.root}/{trial_directory(key)}"

    def intact(self, record: TrialRecord) -> bool:
        """Whether all files of a record are there and undamaged.

        On a remote store the files are not fetched for it: whoever reads one verifies it.
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
        """Add a file that can be made again, such as a figure, to a trial that is done."""
        record = self._done(key)
        if trial_file(name) in record.files:
            raise ValueError(f"name: found {name!r}, which belongs to the record; use another")
        self._files.write(f"{_home(record)}/{name}", content)

    def extra(self, record: TrialRecord, name: str) -> bytes | None:
        """What ``write_extra`` added, or None."""
        return self._files.read(f"{_home(record)}/{trial_file(name)}")

    def evaluations(self, record: TrialRecord, tag: str) -> dict[str, EvaluationRecord]:
        """The newest evaluations of a trial's calibrators made in one way, by name.

        One that no evaluation could have left is set aside.
        """
        directory = f"{_home(record)}/evaluations/{part(tag, 'tag')}"
        return self._sealed.read_all(directory, record.key, _as_evaluation)

    def evaluation_tags(self, record: TrialRecord) -> list[str]:
        """The ways in which a trial's calibrators were evaluated."""
        return self._files.directories(f"{_home(record)}/evaluations")

    def row_scores(
        self, record: TrialRecord, tag: str, name: str, evaluation: EvaluationRecord
    ) -> RowScores | None:
        """What each test row scored under a calibrator; None where that was not recorded.

        Damaged scores, and such as do not belong to the evaluation, are set aside with it: the
        sweep's next run makes both again.
        """
        path = _row_scores(record, tag, name)
        content = self._files.read(path)
        try:
            if content is None:
                return None
            values = self._sealed.checkpoint(path, content)
            if values.get("version") != evaluation.version:
                return None  # about to be evaluated anew, or evaluated before there were any
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
        """File the evaluation of one calibrator of a trial that is done, and its rows' scores.

        One that another version has made is kept beside it.
        """
        record = self._done(key)
        home = _home(record)
        if rows is not None:  # first: an evaluation that is there has its scores
            values = {**rows._asdict(), "version": evaluation.version}
            self._sealed.write_checkpoint(_row_scores(record, tag, name), values)
        path = _evaluation(record, tag, name)
        before = self._sealed.read(
            path, key, lambda content: _as_evaluation(self._sealed.content(path, content))
        )
        if before is not None and before.version != evaluation.version:
            older = f"{part(name)}.{file_name(before.version)}.json"
            self._sealed.write(f"{home}/older-evaluations/{tag}/{older}", before.model_dump())
        self._sealed.write(path, evaluation.model_dump())

    def retire(self, record: TrialRecord) -> None:
        """Move a trial's record and files aside, so that it can be tried again.

        A record that another attempt has filed since stays.
        """
        now = self.record(record.key)
        if now is None or now.attempt != record.attempt:
            return
        parts = attempt_parts(record.key, record.attempt)
        self._sealed.move_aside("retired", record.key, "to be tried again", parts)

    # --- a trial on its way

    def checkpoint(self, key: str) -> dict[str, Any] | None:
        """What ``write_checkpoint`` wrote last for this very trial, or None."""
        return self._sealed.read_checkpoint(f"{trial_directory(key)}/checkpoint.bin", key)

    def write_checkpoint(self, key: str, values: dict[str, Any]) -> None:
        """Replace a trial's checkpoint: tensors and plain values."""
        self._sealed.write_checkpoint(f"{trial_directory(key)}/checkpoint.bin", values)

    def reject_checkpoint(self, key: str, reason: str) -> None:
        """Set aside a checkpoint that its trial cannot continue."""
        self._sealed.reject(f"{trial_directory(key)}/checkpoint.bin", key, reason)

    def live(self, key: str) -> dict[str, Any] | None:
        """What ``write_live`` wrote last for this very trial, or None."""
        path = f"{trial_directory(key)}/live.json"
        return self._sealed.read(path, key, lambda content: self._sealed.content(path, content))

    def write_live(self, key: str, values: dict[str, Any]) -> None:
        """Replace what is shown of a trial while it is trained."""
        self._sealed.write(f"{trial_directory(key)}/live.json", values)

    # --- what killed processes left; only the drafts of local files outlive their writers

    def clear_sweep(self, sweep: str) -> None:
        """Remove dead writers' drafts from a sweep's directory and from what was set aside."""
        if self.local is not None:
            for name in (sweep_directory(sweep), "damaged", "retired"):
                clear_drafts(self.local / name)

    def clear_trial(self, key: str, record: TrialRecord | None) -> None:
        """Remove what dead processes left of a trial, whose record the caller has just read.

        That is drafts, files of attempts that have not become the record, and what a trial
        needs on its way if it has arrived. What a living process writes stays.
        """
        if self.local is None:
            return
        home = self.local / trial_directory(key)
        attempts, names = clear_drafts(home)
        known = record.attempt if record else None
        dead = [n for n in attempts if HEX.fullmatch(n) and n != known and is_leftover(home / n)]
        if dead:  # only now: what the dead have not filed yet they never will
            record = self.record(key)
            for name in set(dead) - {record.attempt if record else None}:
                self._files.delete_tree(f"{trial_directory(key)}/{name}")
        if "record.json" in names and len(names) > 1:
            self._forget(key)

    # --- a sweep's studies

    def suggestions(self, sweep: str, study: str) -> dict[int, dict[str, Any]]:
        """The persisted suggestions of one study, by number."""
        found = self._sealed.read_all(study_directory(sweep, "suggestions", study), sweep, dict)
        return {int(name): found[name] for name in sorted(found) if name.isdecimal()}

    def write_suggestion(
        self, sweep: str, study: str, number: int, suggestion: dict[str, Any]
    ) -> None:
        """Persist suggestion ``number`` of a study before its training starts."""
        self._sealed.write(_suggestion(sweep, study, number), suggestion)

    def reject_suggestion(self, sweep: str, study: str, number: int, reason: str) -> None:
        """Set aside a suggestion that its study cannot have made."""
        self._sealed.reject(_suggestion(sweep, study, number), sweep, reason)

    def importance(self, sweep: str, study: str) -> dict[str, Any] | None:
        """What ``write_importance`` wrote last, or None."""
        path = f"{study_directory(sweep, 'importance', study)}.json"
        return self._sealed.read(path, sweep, lambda c: self._sealed.content(path, c))

    def write_importance(self, sweep: str, study: str, importance: dict[str, Any]) -> None:
        """Keep how much each hyperparameter mattered in a study that has ended."""
        path = f"{study_directory(sweep, 'importance', study)}.json"
        self._sealed.write(path, importance)

    def stopped(self, sweep: str, study: str, key: str) -> TrialRecord | None:
        """The record of a trial that this study stopped early, or None."""
        path = _stopped(sweep, study, key)
        return self._sealed.read(
            path, sweep, lambda content: _validated(key, self._sealed.content(path, content))
        )

    def file_stopped(self, sweep: str, study: str, key: str, outcome: TrialOutcome) -> None:
        """File the record of a trial that this study stops early; the first one stays."""
        path = _stopped(sweep, study, key)
        record = {**outcome.model_dump(), "key": key, "attempt": token(), "files": {}}
        content = sealed(path, record)
        self._sealed.create(path, content, lambda: self.stopped(sweep, study, key))
        self._forget(key)

    def stopped_trials(self) -> Iterator[tuple[str, str, str]]:
        """Sweep, study and key of every trial that was stopped early."""
        for sweep in self.sweeps():
            home = f"{sweep}/stopped"
            for dataset in self._files.directories(home):
                for row in self._files.directories(f"{home}/{dataset}"):
                    for code in self._files.directories(f"{home}/{dataset}/{row}"):
                        study = f"{dataset}/{row}/{code}"
                        for name in self._files.names(f"{home}/{study}"):
                            yield sweep, study, name.removesuffix(".json")

    def outcome(self, sweep: str, study: str, key: str) -> TrialRecord | None:
        """How a trial ended for this study: stopped by it, even if others trained it whole."""
        return self.stopped(sweep, study, key) or self.record(key)

    # --- reading what may be damaged

    def _file(self, record: TrialRecord, name: str, decode: Callable[[bytes], T]) -> T | None:
        if trial_file(name) not in record.files:
            return None
        path = f"{self.root}/{_home(record)}/{trial_file(name)}"
        try:
            content = self._verified(record, name)
        except DamagedError as error:
            raise StoreError(
                f"{path}: damaged, {error}; the sweep's next run does the trial anew"
            ) from error
        try:
            return decode(content)
        except DamagedError as error:
            # These are the bytes that were filed: another version's, or a stranger's.
            raise StoreError(f"{path}: {error}; read it with the version that wrote it") from error

    def _verified(self, record: TrialRecord, name: str) -> bytes:
        """A file of the record. Raises ``DamagedError``, the trial then being set aside."""
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

    # --- writing

    def _withdraw(self, key: str, attempt: str) -> None:
        """Remove the files of an attempt that has not become the record."""
        # After an interruption or a lost answer of the server it may have, all the same.
        record = self.record(key)
        if record is None or record.attempt != attempt:
            self._files.delete_tree(attempt_directory(key, attempt))

    def _forget(self, key: str) -> None:
        for name in ("checkpoint.bin", "live.json"):
            self._files.delete(f"{trial_directory(key)}/{name}")

    def _done(self, key: str) -> TrialRecord:
        """The record of a trial that is done."""
        record = self.record(key)
        if record is None:
            raise self._missing(key, "there is no record, or no longer")
        return record

    def _missing(self, key: str, what: str) -> StoreError:
        return StoreError(f"{self.root}/{trial_directory(key)}: {what}; run the sweep again")


def _suggestion(sweep: str, study: str, number: int) -> str:
    return f"{study_directory(sweep, 'suggestions', study)}/{number:06d}.json"


def _stopped(sweep: str, study: str, key: str) -> str:
    return f"{study_directory(sweep, 'stopped', study)}/{checked_key(key)}.json"


def _entry(content: bytes) -> dict[str, Any]:
    return {"sha256": digest(content), "size": len(content)}


def _attempt(content: bytes) -> str | None:
    """The attempt that a damaged record names, if that can still be read."""
    found = ATTEMPT.search(content)
    return found[1].decode() if found else None


def _home(record: TrialRecord) -> str:
    """Where the files of a record lie."""
    return attempt_directory(record.key, record.attempt)


def _evaluation(record: TrialRecord, tag: str, name: str) -> str:
    return f"{_home(record)}/evaluations/{part(tag, 'tag')}/{part(name)}.json"


def _row_scores(record: TrialRecord, tag: str, name: str) -> str:
    return f"{_home(record)}/row-scores/{part(tag, 'tag')}/{part(name)}.bin"


def _validated(key: str, values: dict[str, Any]) -> TrialRecord:
    """A record that belongs to the key and can be true. Raises ``DamagedError``."""
    if values.get("key") != key:
        raise DamagedError("it is another trial's")
    try:
        record = _whole(TrialRecord, values)
        for name in record.files:
            trial_file(name)
    except ValueError as error:
        raise DamagedError(f"no training leaves such a record: {_first(error)}") from error
    return record


def _as_evaluation(values: dict[str, Any]) -> EvaluationRecord:
    """Raises ``DamagedError``."""
    try:
        return _whole(EvaluationRecord, values)
    except ValueError as error:
        raise DamagedError(f"no evaluation comes to this: {_first(error)}") from error


def _whole(model: type[M], values: dict[str, Any]) -> M:
    """All fields are written, so all must be there. Raises ``ValueError``."""
    if lacking := model.model_fields.keys() - values.keys():
        raise ValueError(f"it has no {min(lacking)}")
    return model.model_validate(values)


def _first(error: ValueError) -> str:
    """What is wrong first, in a few words."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
