"""The studies as optuna-dashboard reads them: a journal file in the sweep's directory.

It is a projection of the store: rewritten whenever a sweep starts, then appended to. Its lines are
those of Optuna's ``JournalStorage``, whose own file backend would read the file back after every
line and wait for the disk; this one does neither.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial, TrialState

from sweeps.host.process import quiet
from sweeps.search.optuna_study import QUIET
from sweeps.search.study import Study
from sweeps.store.files import StoreError, write_atomically


class _Lines(BaseJournalBackend):
    """The lines of a ``JournalStorage``, until ``take`` fetches them."""

    def __init__(self) -> None:
        self._taken: list[str] = []
        self._unread: list[dict[str, Any]] = []

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Called by the storage, once for every operation."""
        self._taken += [json.dumps(log, separators=(",", ":")) + "\n" for log in logs]
        self._unread += logs

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The logs since the last call, which the storage makes after every operation."""
        unread, self._unread = self._unread, []
        return iter(unread)

    def take(self) -> bytes:
        """The new lines of the file."""
        taken, self._taken = self._taken, []
        return "".join(taken).encode()


class Journal:
    """Writes the journal file ``path``; call ``rebuild`` before anything else.

    Nothing here raises when the file cannot be written: the loss is logged once, and the
    file is left alone until the next ``rebuild``. On a read-only file system it is not even
    logged: the run ends there at its next write to the store, and says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open = False
        self._begin()

    def _begin(self) -> None:
        self._lines = _Lines()
        self._storage = JournalStorage(self._lines)
        self._studies: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._running: dict[tuple[str, int], int] = {}

    def rebuild(self, studies: Mapping[str, Study]) -> None:
        """Replace the whole file by what the studies hold now."""
        self._begin()
        self._open = True
        for name, study in studies.items():
            self._add(name, study, study.asked)
        try:
            write_atomically(self.path, self._lines.take())
        except (OSError, StoreError) as error:
            self._give_up(error)

    def asked(self, name: str, study: Study, number: int) -> None:
        """Append a trial that was asked for, and the study if it is new."""
        if self._open:
            self._add(name, study, number + 1)
            self._append(self._lines.take())

    def told(self, name: str, study: Study, number: int) -> None:
        """Append the outcome of a trial."""
        if not self._open:
            return
        place = self._running.pop((name, number), None)
        if place is None:
            self._add(name, study, number + 1)
        else:
            trial = study.trials()[number]
            for step, value in trial.intermediate_values.items():
                self._storage.set_trial_intermediate_value(place, step, value)
            self._storage.set_trial_state_values(place, trial.state, trial.values)
        self._append(self._lines.take())

    def _add(self, name: str, study: Study, end: int) -> None:
        """Add a study, and its trials up to number ``end``, to the storage."""
        if name not in self._studies:
            self._studies[name] = self._new_study(name, study)
            self._written[name] = 0
        trials = study.trials()
        for number in range(self._written[name], end):
            trial, result = trials[number], study.result(number)
            template = _template(trial, result.seconds if result else 0.0)
            place = self._storage.create_new_trial(self._studies[name], template)
            if trial.state == TrialState.RUNNING:
                self._running[name, number] = place
        self._written[name] = max(self._written[name], end)

    def _new_study(self, name: str, study: Study) -> int:
        objectives = study.config.objective
        directions = [objective.direction for objective in objectives]
        with quiet(QUIET), warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            made = optuna.create_study(
                study_name=name, storage=self._storage, directions=directions
            )
            made.set_metric_names([objective.metric for objective in objectives])
        return self._storage.get_study_id_from_name(name)

    def _append(self, content: bytes) -> None:
        if not content:
            return
        try:
            # Without O_CREAT: a file that starts in the middle would be useless.
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
            try:
                size = os.fstat(file).st_size
                if os.write(file, content) != len(content):
                    os.ftruncate(file, size)
                    raise OSError(f"{self.path}: no room for {len(content)} more bytes")
            finally:
                os.close(file)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """A lost line makes all later ones meaningless: they refer to trials by their count."""
        self._open = False
        if isinstance(error, OSError) and error.errno == errno.EROFS:
            return
        logging.getLogger("calsweep").warning(
            "the journal for optuna-dashboard is not kept up to date until the next run: %s", error
        )


def _template(trial: FrozenTrial, seconds: float) -> FrozenTrial:
    """A trial as the file shows it: without the samplers' own attributes."""
    shown = copy(trial)
    shown.system_attrs = {}
    if trial.datetime_complete is not None:  # a replayed trial took its time long ago
        shown.datetime_start = trial.datetime_complete - timedelta(seconds=seconds)
    return shown
