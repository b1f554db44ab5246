"""One trial from start to record: trained, checkpointed, and evaluated if it is confirmed."""

from __future__ import annotations

import math
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from pydantic import ValidationError

from calibration.kernels import chosen_kernels
from calibration.learners import EstimatorTraining, learner
from calibration.models import backbone_of
from calibration.threads import threads
from calibration.training import TrainingRun
from sweeps.engine.embedding import frozen_backbone
from sweeps.engine.ensembles import EnsembleEvaluation
from sweeps.engine.environment import environment
from sweeps.engine.evaluation import TrialEvaluation
from sweeps.engine.identity import TrialConfig
from sweeps.engine.networks import dataset_of, fresh_run, model_files, splits_of
from sweeps.engine.pace import Pace
from sweeps.engine.predictions import predictions_of
from sweeps.host.secrets import without_secrets
from sweeps.host.stages import stage
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
    """Trains one trial in steps: call ``advance`` until it returns True; then it has its record.

    Whatever the store already has under the key is used: a record is not trained again, and a
    checkpoint is continued, unless that is impossible: then the trial starts over. ``ensemble`` are
    the seeds of its cell, if their ensemble is wanted. ``paced`` interleaves reference work, by
    which the costs of nights can be compared. A trial that raises or diverges is recorded as
    failed, with the reason; only a store that cannot be written raises.
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
        self.company = 1
        """The most networks that it was trained together with, itself included."""
        self.apart = ""
        """Why it was trained one by one within its cohort, if it was, most recently."""
        self.pace = Pace(config.device) if paced else None
        self._continued_after = -1
        self._saved_at = time.monotonic()
        self._save_again_after = CHECKPOINT_SECONDS

    def advance(self, seconds: float) -> bool:
        """Train for about ``seconds`` or to the next rung; True when the trial is done.

        Trains with the configuration's own number of threads and kernels, whatever the process
        may use. In a cohort its epochs are trained from outside: ``take_up``, ``end_epoch`` after
        each of them, ``finish``.
        """
        training = self.config.training
        with threads(training.threads), chosen_kernels(training.kernels):
            return self.guarded(lambda: self._advance(seconds))

    def guarded(self, act: Callable[[], object]) -> bool:
        """Whether the trial is over: ``act`` says so, or it raises, and the failure is recorded."""
        try:
            return bool(act())
        except StoreError:
            raise
        except Exception as error:  # a user's own method may raise anything; others continue
            return self.raised(error)

    def raised(self, error: Exception) -> bool:
        """Record the trial as failed with this error; False if it starts over instead."""
        if isinstance(error, torch.cuda.OutOfMemoryError):
            reason = "out of GPU memory"
        elif len(self.times) == self._continued_after:
            # The checkpoint's fault, or the method's: training from the start will show which.
            self._reject(f"the training cannot continue from it ({error!r})")
            return False
        else:
            reason = f"{type(error).__name__}: {error}"
        self.fail(reason, trace="".join(traceback.format_exception(error)))
        return True

    def prepare(self) -> None:
        """Embed the data, if the trial has a frozen backbone: this is not the trial's own time.

        An error occurs again, and is recorded, when the trial starts.
        """
        if frozen_backbone(self.config.model) is None or self.store.record(self.key) is not None:
            return
        try:
            dataset_of(self.config, self.store)
        except StoreError:
            raise
        except Exception:
            return

    def fail(self, reason: str, trace: str = "") -> None:
        """Record the trial as failed."""
        about: dict[str, Any] = {
            "status": "failed",
            "reason": without_secrets(reason),
            "traceback": without_secrets(trace),
        }
        try:
            outcome = TrialOutcome(**self.body(), **about)
        except ValidationError:  # a user's own method left impossible values in the curve
            config = self.config.model_dump(mode="json")
            environ = self._environment()
            outcome = TrialOutcome(config=config, environment=environ, **about)
        self.store.file_record(self.key, outcome)

    def body(self) -> dict[str, Any]:
        """The training so far, as a record describes it."""
        run = self.run
        body: dict[str, Any] = {
            "config": self.config.model_dump(mode="json"),
            "environment": self._environment(),
            "resources": self.resources | self._company(),
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

    def _company(self) -> dict[str, float | str]:
        company: dict[str, float | str] = {"company": self.company} if self.company > 1 else {}
        return company | ({"apart": self.apart} if self.apart else {})

    def _environment(self) -> dict[str, str]:
        model = self.config.model
        backbone = None if model is None else backbone_of(model.name, model.options)
        source = backbone or learner(self.config.method)
        return environment(self.config.device, getattr(source, "package", ""))

    def take_up(self) -> bool:
        """Start or continue the training; True if the trial has its record and its evaluations."""
        record = self.store.record(self.key)
        if record is not None:
            self._evaluate(record)
            return True
        if self.run is None:
            self.run = self._start()
        return False

    @property
    def next_rung(self) -> float:
        """The epoch at which the trial is to be judged next; infinity if there is none."""
        epoch = self.run.epoch if self.run else 0
        return next((rung for rung in self.rungs if rung > epoch), math.inf)

    def _advance(self, seconds: float) -> bool:
        begins = self.run is None
        if self.take_up():
            return True
        run = self.run
        assert run is not None, "it was taken up"
        if begins and any(rung <= run.epoch for rung in self.rungs):
            return False  # what was decided there is unknown: ask before continuing
        deadline = time.monotonic() + seconds
        rung = self.next_rung
        while not run.done and run.epoch < rung and time.monotonic() < deadline:
            began = time.process_time()
            with stage("train"):
                run.run_epoch()
            self.end_epoch(time.process_time() - began)
            if not run.done:  # on a large cluster, a block may outlast a checkpoint
                self._save(run)
        return run.done and self.finish()

    def end_epoch(self, cpu_seconds: float, company: int = 1) -> None:
        """Take note of an epoch that was trained in a cohort of this size."""
        self.cpu_seconds += cpu_seconds
        self.company = max(self.company, company)
        self.times.append(time.time())
        if self.pace is not None:
            self.pace.keep(self.cpu_seconds)

    def finish(self) -> bool:
        """Record a training that is done, and evaluate it; always returns True."""
        run = self.run
        assert run is not None, "it has trained"
        if run.diverged or run.best_epoch == 0:
            self.fail(f"the loss is not a number after epoch {run.epoch}")
            return True
        # Recorded before its calibrators are evaluated: one that fails must not cost the network.
        outcome = TrialOutcome(**self.body(), status="done")
        with stage("record"):
            self.store.file_record(self.key, outcome, self._results(run))
            record = self.store.record(self.key)
        if record is not None:
            self._evaluate(record)
        return True

    def _spent(self) -> dict[str, Any]:
        """CPU seconds so far, and the reference work's, as a record and a checkpoint hold them."""
        times = self.pace and self.pace.times.model_dump()
        return {"cpu_seconds": self.cpu_seconds, "reference": times}

    @stage("prepare")
    def _start(self) -> TrainingRun | EstimatorTraining:
        run = fresh_run(self.config, self.config.device, self.store)
        saved = self.store.checkpoint(self.key)
        if saved is None:
            return run
        try:
            lineage, times = saved["lineage"], [float(moment) for moment in saved["times"]]
            if not isinstance(lineage, str) or len(times) != len(saved["curve"]):
                raise ValueError(f"found {len(times)} times of {len(saved['curve'])} epochs")
            spent = float(saved.get("cpu_seconds", 0.0))
            company, reference = int(saved.get("company", 1)), saved.get("reference")
            measured = None if reference is None else ReferenceTimes.model_validate(reference)
            run.load_state_dict(saved)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            self._reject(f"it is not a checkpoint of this trial ({error})")
            return run
        self.lineage, self.times, self._continued_after = lineage, times, len(times)
        self.cpu_seconds, self.company = spent, company
        if self.pace is not None and measured is not None:
            self.pace = Pace(self.config.device, measured)
        return run

    def _reject(self, reason: str) -> None:
        """Set the checkpoint aside and start over."""
        self.store.reject_checkpoint(self.key, without_secrets(reason))
        self.run, self.times, self.lineage, self._continued_after = None, [], uuid.uuid4().hex, -1
        self.cpu_seconds, self.pace = 0.0, self.pace and Pace(self.config.device)
        self.company = 1

    def _save(self, run: TrainingRun | EstimatorTraining) -> None:
        """Save a checkpoint, and then the live curve up to it, if one is due."""
        if self.checkpoint_due:
            self.checkpoint(run)

    @property
    def checkpoint_due(self) -> bool:
        """Whether the last checkpoint is old enough."""
        return time.monotonic() - self._saved_at >= self._save_again_after

    @stage("checkpoint")
    def checkpoint(self, run: TrainingRun | EstimatorTraining, company: int = 1) -> None:
        """Save a checkpoint, and then the curve up to it, as ``company`` trials do at once."""
        began = time.monotonic()
        mine = {"lineage": self.lineage, "times": self.times}
        spent = self._spent() | ({"company": self.company} if self.company > 1 else {})
        self.store.write_checkpoint(self.key, run.state_dict() | mine | spent)
        self.store.write_live(self.key, mine | {"curve": run.curve})
        self._saved_at = time.monotonic()
        # Saving a large network takes time: at most a twentieth of all.
        self._save_again_after = max(CHECKPOINT_SECONDS, 20 * company * (self._saved_at - began))

    def _results(self, run: TrainingRun | EstimatorTraining) -> dict[str, bytes]:
        """The files of a finished training."""
        config = self.config
        # For calibrators and the choice of a winner; no search trial sees rows set apart for them.
        if config.phase == "confirm" and config.protocol.choice is not None:
            choice = splits_of(config, self.store).choice
            arrays = predictions_of("validation", run.predict(choice), choice)
        else:
            arrays = predictions_of("validation", run.predict_validation(), run.validation)
        files: dict[str, bytes] = {}
        if config.phase == "confirm":
            dataset = dataset_of(config, self.store)
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

    @stage("evaluate")
    def _evaluate(self, record: TrialRecord) -> None:
        if record.status == "done" and self.config.phase == "confirm":
            trial = TrialEvaluation(self.config, record, self.store, self.evaluation)
            trial.complete(self.calibrators)
            if self.ensemble:
                pool = EnsembleEvaluation(self.config, self.ensemble, self.store, self.evaluation)
                pool.complete(self.calibrators)
