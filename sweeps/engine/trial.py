"""One trial's life: trained, checkpointed, recorded, and evaluated if it is confirmed."""

from __future__ import annotations

import math
import time
import traceback
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import ValidationError

from calibration.kernels import chosen_kernels
from calibration.learners import EstimatorTraining, learner
from calibration.threads import threads
from calibration.training import TrainingRun
from sweeps.engine.ensembles import EnsembleEvaluation
from sweeps.engine.environment import environment
from sweeps.engine.evaluation import TrialEvaluation
from sweeps.engine.identity import TrialConfig
from sweeps.engine.networks import dataset_of, fresh_run, model_files, splits_of
from sweeps.engine.pace import Pace
from sweeps.engine.predictions import predictions_of
from sweeps.host.secrets import without_secrets
from sweeps.spec.schema import Evaluation
from sweeps.store import (
    ReferenceTimes,
    Store,
    StoreError,
    TrialOutcome,
    TrialRecord,
    encode_arrays,
)

CHECKPOINT_SECONDS = 5.0


class TrialRun:
    """Carries out one trial in steps: ``advance`` until it says so, and the record is filed.

    Whatever the store already holds under the key is used: a record is not trained again,
    a checkpoint is continued, unless it cannot be: then the trial begins anew. ``ensemble`` are
    the seeds of its cell, if their ensemble is wanted. ``paced`` interleaves reference work, by
    which the costs of nights can be compared. A trial that
    raises or diverges is recorded as failed with its reason; only a store that cannot be
    written raises.
    """

    def __init__(
        self,
        config: TrialConfig,
        store: Store,
        *,
        calibrators: list[str],
        evaluation: Evaluation,
        ensemble: Sequence[int] = (),
        rungs: Sequence[int] = (),
        resources: Mapping[str, float | str] | None = None,
        paced: bool = False,
    ) -> None:
        self.config = config
        self.key = config.key()
        self.store = store
        self.calibrators = calibrators
        self.evaluation = evaluation
        self.ensemble = ensemble
        self.rungs = rungs
        self.resources = {"device": config.device, **(resources or {})}
        self.run: TrainingRun | EstimatorTraining | None = None
        self.lineage = uuid.uuid4().hex
        self.times: list[float] = []
        self.cpu_seconds = 0.0
        self.pace = Pace(config.device) if paced else None
        self._continued_after = -1
        self._saved_at = time.monotonic()
        self._save_again_after = CHECKPOINT_SECONDS

    def advance(self, seconds: float) -> bool:
        """Train for about ``seconds`` or to the next rung; True when the trial is done.

        Trains with the configuration's own number of threads and kernels, whatever the process
        may use.
        """
        try:
            training = self.config.training
            with threads(training.threads), chosen_kernels(training.kernels):
                return self._advance(seconds)
        except StoreError:
            raise
        except Exception as error:  # a user's own method may raise anything; others go on
            if isinstance(error, torch.cuda.OutOfMemoryError):
                reason = "out of GPU memory"
            elif len(self.times) == self._continued_after:
                # The checkpoint's fault or the method's: a training from the start will tell.
                self._reject(f"the training cannot go on from it ({error!r})")
                return False
            else:
                reason = f"{type(error).__name__}: {error}"
            self.fail(reason, trace=traceback.format_exc())
            return True

    def fail(self, reason: str, trace: str = "") -> None:
        """Record the trial as failed."""
        about: dict[str, Any] = {
            "status": "failed",
            "reason": without_secrets(reason),
            "traceback": without_secrets(trace),
        }
        try:
            outcome = TrialOutcome(**self.body(), **about)
        except ValidationError:  # what a user's own method left in the curve is the failure
            config = self.config.model_dump(mode="json")
            environ = self._environment()
            outcome = TrialOutcome(config=config, environment=environ, **about)
        self.store.file_record(self.key, outcome)

    def body(self) -> dict[str, Any]:
        """What a record says of the training so far."""
        run = self.run
        body: dict[str, Any] = {
            "config": self.config.model_dump(mode="json"),
            "environment": self._environment(),
            "resources": self.resources,
            "lineage": self.lineage,
        }
        if run is None:
            return body
        best = [row for row in run.curve if row["epoch"] == run.best_epoch]
        return body | {
            "curve": run.curve,
            "times": self.times,
            "best_epoch": run.best_epoch,
            "epochs": run.epoch,
            "seconds": run.seconds,
            **self._spent(),
            "parameters": run.state.parameters.numel() if isinstance(run, TrainingRun) else 0,
            "validation": {
                name.removeprefix("validation/"): value
                for row in best
                for name, value in row.items()
                if name.startswith("validation/")
            },
        }

    def _environment(self) -> dict[str, str]:
        library = getattr(learner(self.config.method), "package", "")
        return environment(self.config.device, library)

    def _advance(self, seconds: float) -> bool:
        record = self.store.record(self.key)
        if record is not None:
            self._evaluate(record)
            return True
        if self.run is None:
            self.run = self._start()
            if any(rung <= self.run.epoch for rung in self.rungs):
                return False  # what was decided there is not known: ask before going on
        run = self.run
        deadline = time.monotonic() + seconds
        rung = next((epoch for epoch in self.rungs if epoch > run.epoch), math.inf)
        while not run.done and run.epoch < rung and time.monotonic() < deadline:
            began = time.process_time()
            run.run_epoch()
            self.cpu_seconds += time.process_time() - began
            self.times.append(time.time())
            if self.pace is not None:
                self.pace.keep(self.cpu_seconds)
            if not run.done:  # on a large cluster a block is longer than a checkpoint may be away
                self._save(run)
        if not run.done:
            return False
        if run.diverged or run.best_epoch == 0:
            self.fail(f"the loss is not a number after epoch {run.epoch}")
            return True
        # Filed before its calibrators are evaluated: a calibrator that fails must not cost the
        # network.
        outcome = TrialOutcome(**self.body(), status="done")
        self.store.file_record(self.key, outcome, self._results(run))
        record = self.store.record(self.key)
        if record is not None:
            self._evaluate(record)
        return True

    def _spent(self) -> dict[str, Any]:
        """CPU seconds so far, and the reference work's, as a record and a checkpoint hold them."""
        times = self.pace and self.pace.times.model_dump()
        return {"cpu_seconds": self.cpu_seconds, "reference": times}

    def _start(self) -> TrainingRun | EstimatorTraining:
        run = fresh_run(self.config, self.config.device)
        saved = self.store.checkpoint(self.key)
        if saved is None:
            return run
        try:
            lineage, times = saved["lineage"], [float(moment) for moment in saved["times"]]
            if not isinstance(lineage, str) or len(times) != len(saved["curve"]):
                raise ValueError(f"found {len(times)} times of {len(saved['curve'])} epochs")
            spent = float(saved.get("cpu_seconds", 0.0))
            reference = saved.get("reference")
            measured = None if reference is None else ReferenceTimes.model_validate(reference)
            run.load_state_dict(saved)
        except (KeyError, TypeError, ValueError) as error:
            self._reject(f"it is not a checkpoint of this trial ({error})")
            return run
        self.lineage, self.times, self._continued_after = lineage, times, len(times)
        self.cpu_seconds = spent
        if self.pace is not None and measured is not None:
            self.pace = Pace(self.config.device, measured)
        return run

    def _reject(self, reason: str) -> None:
        """Set the checkpoint aside and begin anew."""
        self.store.reject_checkpoint(self.key, without_secrets(reason))
        self.run, self.times, self.lineage, self._continued_after = None, [], uuid.uuid4().hex, -1
        self.cpu_seconds, self.pace = 0.0, self.pace and Pace(self.config.device)

    def _save(self, run: TrainingRun | EstimatorTraining) -> None:
        """Now and then: a checkpoint, and then the curve up to it for whoever watches."""
        if time.monotonic() - self._saved_at < self._save_again_after:
            return
        began = time.monotonic()
        mine = {"lineage": self.lineage, "times": self.times}
        self.store.write_checkpoint(self.key, run.state_dict() | mine | self._spent())
        self.store.write_live(self.key, mine | {"curve": run.curve})
        self._saved_at = time.monotonic()
        # Saving a large network takes its time: at most a twentieth of all.
        self._save_again_after = max(CHECKPOINT_SECONDS, 20 * (self._saved_at - began))

    def _results(self, run: TrainingRun | EstimatorTraining) -> dict[str, bytes]:
        """The files of a finished training."""
        config = self.config
        # Calibrators and the choice of a winner see these; no search trial looks at rows that
        # are set apart for them.
        if config.phase == "confirm" and config.protocol.choice is not None:
            choice = splits_of(config).choice
            arrays = predictions_of("validation", run.predict(choice), choice)
        else:
            arrays = predictions_of("validation", run.predict_validation(), run.validation)
        files: dict[str, bytes] = {}
        if config.phase == "confirm":
            dataset = dataset_of(config)
            test = dataset.test(config.seed)
            posterior = dataset.posterior(test.inputs)
            arrays |= predictions_of("test", run.predict(test), test)
            if posterior is not None:
                arrays["test_posterior"] = posterior
            files |= model_files(run)
            history = run.history()
            if history:
                files["history.npz"] = encode_arrays(history)
            reliability = run.reliability()
            if reliability:
                files["reliability.npz"] = encode_arrays(reliability)
        return files | {"predictions.npz": encode_arrays(arrays)}

    def _evaluate(self, record: TrialRecord) -> None:
        if record.status == "done" and self.config.phase == "confirm":
            trial = TrialEvaluation(self.config, record, self.store, self.evaluation)
            trial.complete(self.calibrators)
            if self.ensemble:
                pool = EnsembleEvaluation(self.config, self.ensemble, self.store, self.evaluation)
                pool.complete(self.calibrators)
