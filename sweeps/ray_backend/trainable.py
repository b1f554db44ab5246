"""The Ray Tune shell around a trial."""

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
from sweeps.engine.networks import provide
from sweeps.engine.trial import TrialRun
from sweeps.ray_backend.assignment import ASSIGNMENT, Assignment
from sweeps.ray_backend.gpu_share import memory_fraction
from sweeps.ray_backend.handshake import UnfitNodeError, check_device
from sweeps.ray_backend.watchdog import Watchdog
from sweeps.store import Store, StoreError

UNFIT_SECONDS = 15.0
"""What a node that cannot train waits before it gives a trial back: others may take it then."""


class CalibrationTrial(tune.Trainable):
    """One trial per configuration; one block of epochs per ``step``.

    Tune hears of a trial once per block, because every report costs its driver over ten
    milliseconds; curves travel in the record. Tune's own checkpoints stay off: what lies
    in the store under the trial's key is the only state.
    """

    def setup(self, config: dict[str, Any], datasets: Sequence[Dataset] = ()) -> None:
        """Take up a configuration; nothing is read or trained before the first step.

        ``datasets`` are those that came through Ray's object store: to every node once.
        """
        for dataset in datasets:
            provide(dataset)
        assigned: Assignment = config[ASSIGNMENT]
        trial, terms = assigned.trial, assigned.terms
        if trial.device == "cuda" and 0 < terms.gpu < 1 and torch.cuda.is_available():
            # One that needs more than its share fails alone, and says why.
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(memory_fraction(terms.gpu, total))
        self.node = str(util.get_node_ip_address())
        self.trial = TrialRun(
            trial,
            _store(terms.store),
            calibrators=list(terms.calibrators),
            evaluation=terms.evaluation,
            ensemble=terms.ensemble,
            rungs=assigned.rungs,
            resources={"cpu": terms.cpu, "gpu": terms.gpu, "node": self.node},
            paced=terms.paced,
        )
        self.terms = terms
        self._reached = 0
        self._time_left = terms.time_limit

    def step(self) -> dict[str, Any]:
        """Train for one block.

        At a rung the result holds what a record would, for the driver to file should it
        stop the trial; a store that cannot be written ends the sweep, not the process.
        """
        try:
            if self.terms.meeting is not None:
                self.terms.meeting.attend(self.trial.store, self.node)
            check_device(self.trial.config.device, self.node)
            done = self._advance()
        except UnfitNodeError as error:
            time.sleep(UNFIT_SECONDS)
            return {"done": True, "unfit": str(error), "pid": os.getpid()}
        except StoreError as error:
            return {"done": True, "store_error": str(error), "pid": os.getpid()}
        run = self.trial.run
        epoch = run.epoch if run else 0
        result: dict[str, Any] = {"done": done, "epoch": epoch, "pid": os.getpid()}
        result |= {"node": self.node, "build": str(torch.__version__)}
        if not done and self._reached < (
            reached := sum(rung <= epoch for rung in self.trial.rungs)
        ):
            self._reached = reached
            result["body"] = json.dumps(self.trial.body())
        return result

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Serve another trial in the same process: all state is replaced."""
        # Not self.setup, which Tune has wrapped: it would fetch the datasets again.
        CalibrationTrial.setup(self, new_config)
        return True

    def _advance(self) -> bool:
        """One block, watched: only what the trial itself takes counts against its limit."""
        if self._time_left is None:
            return self.trial.advance(self.terms.block)
        began = time.monotonic()
        watchdog = Watchdog(self._time_left, self._overdue)
        try:
            return self.trial.advance(self.terms.block)
        finally:
            watchdog.disarm()
            self._time_left = max(0.01, self._time_left - (time.monotonic() - began))

    def _overdue(self) -> None:
        limit, run = self.terms.time_limit, self.trial.run
        epoch = run.epoch if run else 0
        self.trial.fail(
            f"took longer than its time limit of {limit:g} s; it had {count(epoch, 'epoch')}"
        )


@lru_cache(maxsize=4)
def _store(root: str) -> Store:
    """One for all trials of a process: the first access to each asks for the store's format."""
    return Store(root)
