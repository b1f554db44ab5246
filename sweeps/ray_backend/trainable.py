"""The Ray Tune shell around a trial or a cohort of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from ray import tune, util

from calibration.data import Dataset
from calibration.text import count
from sweeps.engine.cohort_run import CohortRun
from sweeps.engine.networks import provide
from sweeps.engine.trial import TrialRun
from sweeps.host.stages import THIS_PROCESS
from sweeps.ray_backend.assignment import ASSIGNMENT, AssignedTrial, Assignment
from sweeps.ray_backend.gpu_share import memory_fraction
from sweeps.ray_backend.handshake import UnfitNodeError, check_device
from sweeps.ray_backend.watchdog import Watchdog
from sweeps.store import Store, StoreError

UNFIT_SECONDS = 15.0
"""How long a node that cannot train holds a trial: until then another may become free."""


class CalibrationTrial(tune.Trainable):
    """The trials of one assignment; one block of epochs per ``step``.

    They report to Tune once per block, because every report costs its driver over ten
    milliseconds; curves are in the record. Tune's own checkpoints are off: what is in the store
    under each trial's key is the only state.
    """

    def setup(self, config: dict[str, Any], datasets: Sequence[Dataset] = ()) -> None:
        """Accept a configuration; nothing is read or trained before the first step.

        ``datasets`` are those shipped through Ray's object store, once to every node.
        """
        _note_start()
        for dataset in datasets:
            provide(dataset)
        assigned: Assignment = config[ASSIGNMENT]
        terms = assigned.terms
        self.device = assigned.members[0].trial.device
        if self.device == "cuda" and 0 < terms.gpu < 1 and torch.cuda.is_available():
            # One that needs more than its share fails alone, and says why.
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(memory_fraction(terms.gpu, total))
        self.node = str(util.get_node_ip_address())
        self.terms, self.assigned = terms, assigned
        runs = [self._run_of(member) for member in assigned.members]
        self.cohort = CohortRun(runs, timed=terms.timed)
        self._reached = dict.fromkeys((trial.key for trial in self.cohort.trials), 0)
        self._judged: list[TrialRun] = []
        self._time_left = terms.time_limit

    def _run_of(self, member: AssignedTrial) -> TrialRun:
        terms = self.terms
        return TrialRun(
            member.trial,
            _store(terms.store),
            calibrators=list(terms.calibrators),
            evaluation=terms.evaluation,
            ensemble=terms.ensemble,
            rungs=member.rungs,
            resources={"cpu": terms.cpu, "gpu": terms.gpu, "node": self.node},
            paced=terms.paced,
        )

    def step(self) -> dict[str, Any]:
        """Train for one block.

        ``ended`` are the keys of those that have ended. At a rung the result has the content of a
        record, which the driver stores if it stops the trial. A store that cannot be written ends
        the sweep, not the process.
        """
        try:
            if self.terms.handshake is not None:
                self.terms.handshake.complete(_store(self.terms.store), self.node)
            check_device(self.device, self.node)
            for trial in self.cohort.trials:
                if trial.run is None:
                    trial.prepare()
            self._drop_stopped()
            ended = self._advance() if self.cohort.trials else []
        except UnfitNodeError as error:
            time.sleep(UNFIT_SECONDS)
            return {"done": True, "unfit": str(error), "pid": os.getpid()}
        except StoreError as error:
            return {"done": True, "store_error": str(error), "pid": os.getpid()}
        result: dict[str, Any] = {"done": not self.cohort.trials, "pid": os.getpid()}
        result |= {"node": self.node, "build": str(torch.__version__)}
        result["stages"] = json.dumps(THIS_PROCESS.take())
        if self.cohort.apart:
            result["apart"] = self.cohort.trials[0].key
        if ended:
            result["ended"] = json.dumps([trial.key for trial in ended])
        self._judged = [trial for trial in self.cohort.trials if self._at_rung(trial)]
        if self._judged:
            result["bodies"] = json.dumps({trial.key: trial.body() for trial in self._judged})
        return result

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Serve another trial in the same process: all state is replaced."""
        # Not self.setup, which Tune has wrapped: it would fetch the datasets again.
        CalibrationTrial.setup(self, new_config)
        return True

    def _at_rung(self, trial: TrialRun) -> bool:
        """Whether it has reached a rung since the last call."""
        epoch = trial.run.epoch if trial.run else 0
        before, reached = self._reached[trial.key], sum(rung <= epoch for rung in trial.rungs)
        self._reached[trial.key] = max(before, reached)
        return reached > before

    def _drop_stopped(self) -> None:
        """Drop the trials that the driver has stopped; Tune itself ends a last one."""
        judged, self._judged = self._judged, []
        if not judged or len(self.cohort.trials) == 1:
            return
        studies = {member.trial.key(): member.study_id for member in self.assigned.members}
        for trial in judged:
            if trial.store.stopped(self.terms.sweep, studies[trial.key], trial.key):
                self.cohort.drop(trial)

    def _advance(self) -> list[TrialRun]:
        """One block, watched: only the trials' own time counts against the limit."""
        if self._time_left is None:
            return self.cohort.advance(self.terms.block)
        began = time.monotonic()
        watchdog = Watchdog(self._time_left, self._overdue)
        try:
            return self.cohort.advance(self.terms.block)
        finally:
            watchdog.disarm()
            self._time_left = max(0.01, self._time_left - (time.monotonic() - began))

    def _overdue(self) -> None:
        """Record the failure; a cohort ends without one, and its members are trained alone."""
        if len(self.assigned.members) > 1:
            return
        limit, (trial,) = self.terms.time_limit, self.cohort.trials
        epoch = trial.run.epoch if trial.run else 0
        trial.fail(
            f"took longer than its time limit of {limit:g} s; it had {count(epoch, 'epoch')}"
        )


@lru_cache(maxsize=1)
def _note_start() -> None:
    """Count the CPU seconds of the process so far, once: Ray's and our imports."""
    THIS_PROCESS.add({"imports": time.process_time()})


@lru_cache(maxsize=4)
def _store(root: str) -> Store:
    """One for all trials of a process: the first access to a store checks its format."""
    return Store(root)
