"""The studies as optuna-dashboard reads them: a journal file in the sweep's directory.

A projection like any other: written anew at the start of a run, then appended to. Its lines
are those of Optuna's ``JournalStorage``, which itself would read the file back after every
line and wait for the disk; here nothing is read, and nobody waits.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweeps.search.study import Study
from sweeps.store.files import StoreError, write_atomically

# What JournalStorage calls its operations.
CREATE_STUDY = 0
SET_STUDY_SYSTEM_ATTR = 3
CREATE_TRIAL = 4
SET_TRIAL_STATE_VALUES = 6
SET_TRIAL_INTERMEDIATE_VALUE = 7

_METRIC_NAMES = "study:metric_names"
WRITER = "calsweep"

Line = dict[str, Any]


class Journal:
    """Writes the journal file ``path``; call ``rebuild`` before anything else.

    Nothing here raises when the file cannot be written: the loss is logged once, and the
    file is left alone until the next ``rebuild``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open = False
        self._studies: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._running: dict[tuple[str, int], int] = {}
        self._trials = 0

    def rebuild(self, studies: Mapping[str, Study]) -> None:
        """Replace the whole file by what the studies hold now."""
        self._open = True
        self._studies, self._written, self._running, self._trials = {}, {}, {}, 0
        lines: list[Line] = []
        for name, study in studies.items():
            lines += self._up_to(name, study, study.asked)
        try:
            write_atomically(self.path, _encoded(lines))
        except (OSError, StoreError) as error:
            self._give_up(error)

    def asked(self, name: str, study: Study, number: int) -> None:
        """Append a trial that was asked for, and the study if it is new."""
        self._append(self._up_to(name, study, number + 1))

    def told(self, name: str, study: Study, number: int) -> None:
        """Append what came of a trial."""
        place = self._running.pop((name, number), None)
        if place is None:
            self._append(self._up_to(name, study, number + 1))
            return
        trial = study.trials()[number]
        lines: list[Line] = [
            {
                "op_code": SET_TRIAL_INTERMEDIATE_VALUE,
                "trial_id": place,
                "step": step,
                "intermediate_value": value,
            }
            for step, value in trial.intermediate_values.items()
        ]
        lines.append(
            {
                "op_code": SET_TRIAL_STATE_VALUES,
                "trial_id": place,
                "state": trial.state,
                "values": trial.values,
                "datetime_complete": _moment(trial.datetime_complete),
            }
        )
        self._append(lines)

    def _up_to(self, name: str, study: Study, end: int) -> list[Line]:
        """The lines that bring a study's trials before ``end`` into the file."""
        lines: list[Line] = []
        if name not in self._studies:
            lines += self._new_study(name, study)
        trials = study.trials()
        for number in range(self._written[name], end):
            trial = trials[number]
            result = study.result(number)
            if trial.state == TrialState.RUNNING:
                self._running[name, number] = self._trials
            lines.append(_new_trial(self._studies[name], trial, result.seconds if result else 0.0))
            self._trials += 1
        self._written[name] = max(self._written[name], end)
        return lines

    def _new_study(self, name: str, study: Study) -> list[Line]:
        self._studies[name] = len(self._studies)
        self._written[name] = 0
        objectives = study.config.objective
        directions = [StudyDirection[objective.direction.upper()] for objective in objectives]
        names = [objective.metric for objective in objectives]
        return [
            {"op_code": CREATE_STUDY, "study_name": name, "directions": directions},
            {
                "op_code": SET_STUDY_SYSTEM_ATTR,
                "study_id": self._studies[name],
                "system_attr": {_METRIC_NAMES: names},
            },
        ]

    def _append(self, lines: list[Line]) -> None:
        if not self._open or not lines:
            return
        content = _encoded(lines)
        try:
            # Without O_CREAT: a file begun in the middle would be of no use.
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
        """One line lost makes all later ones meaningless: they name trials by their count."""
        self._open = False
        logging.getLogger("calsweep").warning(
            "the journal for optuna-dashboard is not kept up to date until the next run: %s", error
        )


def _new_trial(study_id: int, trial: FrozenTrial, seconds: float) -> Line:
    several = trial.values is not None and len(trial.values) > 1
    start, end = trial.datetime_start, trial.datetime_complete
    if end is not None:  # a replayed trial took its time long ago
        start = end - timedelta(seconds=seconds)
    line: Line = {
        "op_code": CREATE_TRIAL,
        "study_id": study_id,
        "datetime_start": _moment(start),
        "state": trial.state,
        "value": None if several or trial.values is None else trial.values[0],
        "values": trial.values if several else None,
        "distributions": {k: distribution_to_json(d) for k, d in trial.distributions.items()},
        "params": {k: trial.distributions[k].to_internal_repr(v) for k, v in trial.params.items()},
        "user_attrs": {},
        "system_attrs": {},
        "intermediate_values": trial.intermediate_values,
    }
    return line if end is None else line | {"datetime_complete": _moment(end)}


def _moment(when: datetime | None) -> str | None:
    return None if when is None else when.astimezone(UTC).isoformat(timespec="microseconds")


def _encoded(lines: list[Line]) -> bytes:
    written = (json.dumps({"worker_id": WRITER} | line, separators=(",", ":")) for line in lines)
    return "".join(f"{line}\n" for line in written).encode()
