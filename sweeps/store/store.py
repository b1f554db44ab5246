"""The store: trial records by key, and each sweep's own files.

::

    ROOT/records/KEY/record.json          config, status, curve, timings; digests of the files
                     ATTEMPT/…            predictions.npz, the model's files, history.npz
                     ATTEMPT/evaluations/TAG/…   the evaluations of calibrators, one file each
                     ATTEMPT/older-evaluations/TAG/…   those that another version made
                     ATTEMPT/row-scores/TAG/…    the scores of each test row, by calibrator
                     checkpoint.bin, live.json     while the trial is unfinished
    ROOT/SWEEP/…                          spec, leaderboard, figures, report
    ROOT/SWEEP/suggestions/STUDY/…        suggestions, written before training
    ROOT/SWEEP/stopped/STUDY/KEY.json     records of trials that were stopped early
    ROOT/SWEEP/importance/STUDY.json      how much each hyperparameter mattered
    ROOT/embeddings/KEY.bin               rows as a frozen backbone sees them
    ROOT/damaged, ROOT/retired            damaged files, and trials that were retried

``record.json`` is created last and once: a trial is done when it exists, and of several
attempts at one trial the first to create it counts. Records, evaluations, checkpoints, suggestions
and a sweep's state have a checksum and name their owner, and a record has the digests of its files;
damaged or misplaced ones are moved aside with a warning and then count as missing.
A store written by another version is refused as a whole: see ``sweeps.store.format``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from calibration.leftovers import is_leftover, token
from sweeps.store.embeddings import EmbeddingFiles
from sweeps.store.files import clear_drafts
from sweeps.store.layout import (
    RESERVED_NAMES,
    TRIAL_KEY,
    checked_key,
    is_part,
    study_directory,
    sweep_directory,
    trial_directory,
)
from sweeps.store.records import TrialOutcome, TrialRecord
from sweeps.store.sealed import sealed
from sweeps.store.sweep_files import SweepFiles
from sweeps.store.trial_files import TrialFiles
from sweeps.store.validation import checked_record

HEX = re.compile(r"[0-9a-f]{32}")


class Store(SweepFiles, TrialFiles, EmbeddingFiles):
    """Reads and writes one store, on a path or an fsspec URI such as ``s3://bucket/runs``.

    Every method raises ``StoreError`` if the files cannot be reached or were written by
    another version, and ``ValueError`` for a name that would leave its directory.
    """

    def sweeps(self) -> list[str]:
        """The names of the directories that may belong to sweeps."""
        found = self._files.directories("")
        return [name for name in found if name not in RESERVED_NAMES and is_part(name)]

    def trial_keys(self) -> list[str]:
        """The keys of all trials that have a record or are in progress."""
        return [name for name in self._files.directories("records") if TRIAL_KEY.fullmatch(name)]

    # --- trials that a study stopped early

    def stopped(self, sweep: str, study: str, key: str) -> TrialRecord | None:
        """The record of a trial that this study stopped early, or None."""
        path = _stopped(sweep, study, key)
        return self._sealed.read(
            path, sweep, lambda content: checked_record(key, self._sealed.content(path, content))
        )

    def file_stopped(self, sweep: str, study: str, key: str, outcome: TrialOutcome) -> None:
        """Write the record of a trial that this study stops early; the first one stays."""
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
        """How a trial ended for this study: stopped by it, even if others trained it to the end."""
        return self.stopped(sweep, study, key) or self.record(key)

    # --- leftovers of killed processes; only the drafts of local files outlive their writers

    def clear_sweep(self, sweep: str) -> None:
        """Remove dead writers' drafts from a sweep's directory, embeddings and files set aside."""
        if self.local is not None:
            for name in (sweep_directory(sweep), "damaged", "embeddings", "retired"):
                clear_drafts(self.local / name)

    def clear_trial(self, key: str, record: TrialRecord | None) -> None:
        """Remove dead processes' leftovers of a trial whose record the caller has just read.

        That is drafts, files of attempts that did not become the record, and, if the trial is
        done, its checkpoint and live curve. Files of a living process stay.
        """
        if self.local is None:
            return
        home = self.local / trial_directory(key)
        attempts, names = clear_drafts(home)
        known = record.attempt if record else None
        dead = [n for n in attempts if HEX.fullmatch(n) and n != known and is_leftover(home / n)]
        if dead:  # only now: a dead process will not write its record any more
            record = self.record(key)
            for name in set(dead) - {record.attempt if record else None}:
                self._files.delete_tree(f"{trial_directory(key)}/{name}")
        if "record.json" in names and len(names) > 1:
            self._forget(key)


def _stopped(sweep: str, study: str, key: str) -> str:
    return f"{study_directory(sweep, 'stopped', study)}/{checked_key(key)}.json"
