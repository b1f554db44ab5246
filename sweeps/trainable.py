"""The Ray Tune shell around a trial."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from ray import tune

from sweeps.schema import Evaluation
from sweeps.store import Store, StoreError
from sweeps.trial import TrialConfig, TrialRun
from sweeps.watchdog import Watchdog

BLOCK_SECONDS = 2.0


class CalibrationTrial(tune.Trainable):
    """One trial per configuration; one block of epochs per ``step``.

    Tune hears of a trial once per block, because every report costs its driver over ten
    milliseconds; curves travel in the record. Tune's own checkpoints stay off: what lies
    in the store under the trial's key is the only state.
    """

    watchdog: Watchdog | None = None

    def setup(self, config: dict[str, Any]) -> None:
        """Take up a configuration; nothing is loaded before the first step."""
        torch.set_num_threads(max(1, int(config["cpu"])))
        self.trial = TrialRun(
            TrialConfig.model_validate(config["trial"]),
            Store(config["store"]),
            maps=config["maps"],
            evaluation=Evaluation(*config["evaluation"]),
            device="cuda" if config["gpu"] and torch.cuda.is_available() else "cpu",
            rungs=config["rungs"],
        )
        self._reached = 0
        self._watch(config["time_limit"])

    def step(self) -> dict[str, Any]:
        """Train for one block.

        At a rung the result holds what a record would, for the driver to file should it
        stop the trial; a store that cannot be written ends the sweep, not the process.
        """
        try:
            done = self.trial.advance(BLOCK_SECONDS)
        except StoreError as error:
            self._unwatch()
            return {"done": True, "store_error": str(error), "pid": os.getpid()}
        run = self.trial.run
        epoch = run.epoch if run else 0
        result: dict[str, Any] = {"done": done, "epoch": epoch, "pid": os.getpid()}
        if done:
            self._unwatch()
        elif self._reached < (reached := sum(rung <= epoch for rung in self.trial.rungs)):
            self._reached = reached
            result["body"] = json.dumps(self.trial.body())
        return result

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Serve another trial in the same process: all state is replaced."""
        self._unwatch()
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        """Nothing is left to be watched."""
        self._unwatch()

    def _watch(self, limit: float | None) -> None:
        if limit is None:
            return
        trial = self.trial

        def overdue() -> None:
            epoch = trial.run.epoch if trial.run else 0
            trial.fail(f"took longer than its time limit of {limit:g} s; it had {epoch} epochs")

        self.watchdog = Watchdog(limit, overdue)

    def _unwatch(self) -> None:
        if self.watchdog is not None:
            self.watchdog.disarm()
            self.watchdog = None
