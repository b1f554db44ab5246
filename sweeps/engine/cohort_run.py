"""Trials that are trained together in one process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from calibration.cohort import Cohort
from calibration.kernels import chosen_kernels
from calibration.threads import threads
from calibration.training import TrainingRun
from sweeps.engine.trial import TrialRun
from sweeps.host.stages import stage


class CohortRun:
    """Trains trials of one shape together: call ``advance`` until no ``trials`` are left.

    Each has its own checkpoint, curve, rungs and record, as if it were alone; one that raises,
    diverges or is done leaves, and the others continue. A single trial is trained as usual. Only
    a store that cannot be written raises. With ``timed``, they are trained one by one as soon as
    that is found to be faster.
    """

    def __init__(self, trials: Sequence[TrialRun], *, timed: bool = False) -> None:
        self.trials = list(trials)
        self.timed = timed
        self._cohort = Cohort([])

    def advance(self, seconds: float) -> list[TrialRun]:
        """Train for about ``seconds`` or until one ends or reaches a rung; returns the ended."""
        if len(self.trials) == 1:
            (alone,) = self.trials
            ended = [alone] if alone.advance(seconds) else []
        else:
            config = self.trials[0].config.training
            with threads(config.threads), chosen_kernels(config.kernels):
                ended = self._advance(seconds)
        self.trials = [trial for trial in self.trials if trial not in ended]
        return ended

    @property
    def apart(self) -> bool:
        """Whether its trials are trained one by one, so that another such cohort gains nothing."""
        return len(self.trials) > 1 and all(trial.apart for trial in self.trials)

    def drop(self, trial: TrialRun) -> None:
        """Stop training this one: its study has stopped it early."""
        self.trials.remove(trial)

    def _advance(self, seconds: float) -> list[TrialRun]:
        taken_up = [trial for trial in self.trials if trial.run is None]
        ended = [trial for trial in self.trials if trial.guarded(trial.take_up)]
        # What was decided at a rung before the checkpoint is unknown: ask before continuing.
        judged = any(_run(t).epoch >= rung for t in taken_up if t.run for rung in t.rungs)
        deadline = time.monotonic() + seconds
        while not (ended or judged):
            for trial in [trial for trial in self.trials if trial.run and trial.run.done]:
                if (not ended or time.monotonic() < deadline) and trial.guarded(trial.finish):
                    ended.append(trial)
            if not ended:
                ended, judged = self._epoch()
            if time.monotonic() >= deadline:
                break
        return ended

    def _epoch(self) -> tuple[list[TrialRun], bool]:
        """Train those furthest behind; returns the failed ones, and whether any is at a rung."""
        training = [trial for trial in self.trials if trial.run]
        if not training:  # all start over, without their checkpoints
            return [], True
        behind = min(_run(trial).epoch for trial in training)
        together = [trial for trial in training if _run(trial).epoch == behind]
        rungs = [trial.next_rung for trial in together]
        cpu_seconds = self._train([_run(trial) for trial in together])
        ended = []
        for trial in together:
            error = self._failure(_run(trial))
            if error is None:
                trial.apart = self._cohort.why_apart(_run(trial)) if len(together) > 1 else ""
                trial.end_epoch(cpu_seconds / len(together), len(together))
            elif trial.raised(error):
                ended.append(trial)
        left = [t for t in together if t not in ended and t.run and not t.run.done]
        if any(trial.checkpoint_due for trial in left):  # all at once: they continue together
            save = {trial: partial(trial.checkpoint, _run(trial), len(left)) for trial in left}
            ended += [trial for trial in left if trial.guarded(save[trial])]
        reached = zip(together, rungs, strict=True)
        return ended, any(trial.run and trial.run.epoch >= rung for trial, rung in reached)

    def _train(self, runs: list[TrainingRun]) -> float:
        """Train each for one epoch; returns the CPU seconds of all."""
        if {id(run) for run in self._cohort.active} != {id(run) for run in runs}:
            self._cohort = Cohort(runs, timed=self.timed)
        began = time.process_time()
        with stage("train"):
            self._cohort.run_epoch()
        return time.process_time() - began

    def _failure(self, run: TrainingRun) -> Exception | None:
        place = next(place for place, other in enumerate(self._cohort.runs) if other is run)
        return self._cohort.failures.get(place)


def _run(trial: TrialRun) -> TrainingRun:
    assert isinstance(trial.run, TrainingRun), "only networks have a shape in common"
    return trial.run
