"""The Ray Tune shell around a trial."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from ray import tune

from sweeps.schema import Evaluation
from sweeps.store import Store
from sweeps.trial import TrialConfig, TrialRun

BLOCK_SECONDS = 2.0


class CalibrationTrial(tune.Trainable):
    """One trial per configuration; one block of epochs per ``step``.

    Tune hears of a trial once per block, because every report costs its driver over ten
    milliseconds; curves travel in the record. Tune's own checkpoints stay off: what lies
    in the store under the trial's key is the only state.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Take up a configuration; nothing is loaded before the first step."""
        torch.set_num_threads(max(1, int(config["cpu"])))
        self.trial = TrialRun(
            TrialConfig.model_validate(config["trial"]),
            Store(Path(config["store"])),
            maps=config["maps"],
            evaluation=Evaluation(*config["evaluation"]),
            device="cuda" if config["gpu"] and torch.cuda.is_available() else "cpu",
        )

    def step(self) -> dict[str, Any]:
        """Train for one block."""
        done = self.trial.advance(BLOCK_SECONDS)
        run = self.trial.run
        return {"done": done, "epoch": run.epoch if run else 0, "pid": os.getpid()}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Serve another trial in the same process: all state is replaced."""
        self.setup(new_config)
        return True
