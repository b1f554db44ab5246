"""What a trial is: its configuration, its key, and how it is carried out.

The key is a hash of everything that determines the result. Whoever holds the key finds
the record; nobody trains the same thing twice.
"""

from __future__ import annotations

import json
import logging
import math
import platform
import re
import subprocess
import time
import traceback
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache, cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict

from calibration.data import Dataset, Protocol, load_dataset
from calibration.evaluation import (
    LabelledLogits,
    evaluate_calibrator,
    evaluate_oracle,
    evaluation_version,
)
from calibration.hyperparameters import Value
from calibration.methods import make_method
from calibration.text import visible
from calibration.threads import threads
from calibration.training import TrainingConfig, TrainingRun
from sweeps.engine.key import key_of
from sweeps.host.secrets import without_secrets
from sweeps.spec.row_checks import ORACLE
from sweeps.spec.schema import Component, Device, Evaluation
from sweeps.store import Store, StoreError, encode_arrays, encode_tensors

CHECKPOINT_SECONDS = 5.0
FAILED = "failed"
"""The key under which a calibrator's evaluation says why there is none."""
VERSION = "version"
"""The key under which it says what it was made by."""
HAS_ORACLE = "has_oracle"
"""The key under which the evaluation of the bare network says that the oracle has one, too."""
MADE = "made"
"""The key under which it says when, in seconds since 1970."""
RECORDED_VERSIONS = ("calsweep", "mlflow", "numpy", "optuna", "ray", "scipy", "torch")


class TrialConfig(BaseModel):
    """One network to be trained. ``phase`` decides whether test data is read at the end."""

    model_config = ConfigDict(frozen=True)

    dataset: Component
    dataset_name: str
    fingerprint: str
    protocol: Protocol
    model: Component
    method: str
    hyperparameters: dict[str, Value]
    training: TrainingConfig
    seed: int
    phase: Literal["search", "confirm"]
    device: Device = "cpu"
    objective: tuple[str, ...] = ()
    """The metrics that a search trial is compared by."""

    def key(self) -> str:
        """A hash of everything that determines the result."""
        return key_of(self)


class TrialRun:
    """Carries out one trial in steps: ``advance`` until it says so, and the record is filed.

    Whatever the store already holds under the key is used: a record is not trained again,
    a checkpoint is continued, unless it cannot be: then the trial begins anew. A trial that
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
        rungs: Sequence[int] = (),
        resources: Mapping[str, float | str] | None = None,
    ) -> None:
        self.config = config
        self.key = config.key()
        self.store = store
        self.calibrators = calibrators
        self.evaluation = evaluation
        self.rungs = rungs
        self.resources = {"device": config.device, **(resources or {})}
        self.run: TrainingRun | None = None
        self.lineage = uuid.uuid4().hex
        self.times: list[float] = []
        self._continued_after = -1
        self._saved_at = time.monotonic()
        self._save_again_after = CHECKPOINT_SECONDS

    def advance(self, seconds: float) -> bool:
        """Train for about ``seconds`` or to the next rung; True when the trial is done.

        Trains with the configuration's own number of threads, whatever the process may use.
        """
        try:
            with threads(self.config.training.threads):
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
        """File the trial as failed."""
        self._file("failed", reason, trace=trace)

    def body(self) -> dict[str, Any]:
        """What a record says of the training so far."""
        run = self.run
        body: dict[str, Any] = {
            "config": self.config.model_dump(mode="json"),
            "environment": environment(self.config.device),
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
            "parameters": run.state.parameters.numel(),
            "validation": {
                name.removeprefix("validation/"): value
                for row in best
                for name, value in row.items()
                if name.startswith("validation/")
            },
        }

    def _advance(self, seconds: float) -> bool:
        record = self.store.record(self.key)
        if record is not None:
            if record["status"] == "done":
                self._evaluate()
            return True
        if self.run is None:
            self.run = self._start()
            if any(rung <= self.run.epoch for rung in self.rungs):
                return False  # what was decided there is not known: ask before going on
        run = self.run
        deadline = time.monotonic() + seconds
        rung = next((epoch for epoch in self.rungs if epoch > run.epoch), math.inf)
        while not run.done and run.epoch < rung and time.monotonic() < deadline:
            run.run_epoch()
            self.times.append(time.time())
            if not run.done:  # on a large cluster a block is longer than a checkpoint may be away
                self._save(run)
        if not run.done:
            return False
        if run.diverged or run.best_epoch == 0:
            self.fail(f"the loss is no number after epoch {run.epoch}")
            return True
        # Filed before its calibrators are evaluated: a calibrator that fails must not cost the
        # network.
        self._file("done", "", self._results(run))
        self._evaluate()
        return True

    def _start(self) -> TrainingRun:
        run = fresh_run(self.config, self.config.device)
        saved = self.store.checkpoint(self.key)
        if saved is None:
            return run
        try:
            lineage, times = saved["lineage"], [float(moment) for moment in saved["times"]]
            if not isinstance(lineage, str) or len(times) != len(saved["curve"]):
                raise ValueError(f"found {len(times)} times of {len(saved['curve'])} epochs")
            run.load_state_dict(saved)
        except (KeyError, TypeError, ValueError) as error:
            self._reject(f"it is no checkpoint of this trial ({error})")
            return run
        self.lineage, self.times, self._continued_after = lineage, times, len(times)
        return run

    def _reject(self, reason: str) -> None:
        """Set the checkpoint aside and begin anew."""
        self.store.reject_checkpoint(self.key, without_secrets(reason))
        self.run, self.times, self.lineage, self._continued_after = None, [], uuid.uuid4().hex, -1

    def _save(self, run: TrainingRun) -> None:
        """Now and then: a checkpoint, and then the curve up to it for whoever watches."""
        if time.monotonic() - self._saved_at < self._save_again_after:
            return
        began = time.monotonic()
        mine = {"lineage": self.lineage, "times": self.times}
        self.store.write_checkpoint(self.key, run.state_dict() | mine)
        self.store.write_live(self.key, mine | {"curve": run.curve})
        self._saved_at = time.monotonic()
        # Saving a large network takes its time: at most a twentieth of all.
        self._save_again_after = max(CHECKPOINT_SECONDS, 20 * (self._saved_at - began))

    def _results(self, run: TrainingRun) -> dict[str, bytes]:
        """The files of a finished training."""
        config = self.config
        arrays = {
            "validation_logits": run.predict_validation(),
            "validation_labels": run.validation.labels,
        }
        files: dict[str, bytes] = {}
        if config.phase == "confirm":
            dataset = _dataset(config)
            test = dataset.test(config.seed)
            posterior = dataset.posterior(test.inputs)
            arrays |= {"test_logits": run.predict(test), "test_labels": test.labels}
            if posterior is not None:
                arrays["test_posterior"] = posterior
            files["network.pt"] = encode_tensors(run.network())
            history = run.history()
            if history:
                files["history.npz"] = encode_arrays(history)
        return files | {"predictions.npz": encode_arrays(arrays)}

    def _evaluate(self) -> None:
        """Evaluate the calibrators that are asked for and not filed yet, from stored logits."""
        if self.config.phase != "confirm":
            return
        missing = missing_evaluations(self.store, self.key, self.calibrators, self.evaluation)
        if not missing:
            return
        arrays = self.store.predictions(self.key)
        validation = LabelledLogits(arrays["validation_logits"], arrays["validation_labels"])
        test = LabelledLogits(
            arrays["test_logits"], arrays["test_labels"], arrays.get("test_posterior")
        )
        with threads(1):  # an evaluation is the same whatever its network was trained with
            self._evaluate_calibrators(missing, validation, test)

    def _evaluate_calibrators(
        self, missing: list[str], validation: LabelledLogits, test: LabelledLogits
    ) -> None:
        # Before the calibrators: who is killed on the way finds one missing, and comes here again.
        self._draw(test)
        bins, seed = self.evaluation.bins, self.config.seed
        if "identity" in missing:
            self._evaluate_oracle(test)
        for name in missing:
            try:
                large = self._large_test
                found = asdict(
                    evaluate_calibrator(name, validation, test, large=large, bins=bins, seed=seed)
                )
            except StoreError:
                raise
            except Exception as error:  # a user's own calibrator may raise anything; others go on
                found = {FAILED: f"{type(error).__name__}: {error}"}
            if name == "identity":
                found[HAS_ORACLE] = test.posterior is not None
            self._file_evaluation(name, found)

    def _evaluate_oracle(self, test: LabelledLogits) -> None:
        """Where the posterior is known: what no method can beat, measured in the same way."""
        if test.posterior is None:
            return
        bins, seed = self.evaluation.bins, self.config.seed
        try:
            found = asdict(evaluate_oracle(test, large=self._large_test, bins=bins, seed=seed))
        except StoreError:
            raise
        except Exception as error:  # of a user's own metric
            found = {FAILED: f"{type(error).__name__}: {error}"}
        self._file_evaluation(ORACLE, found)

    def _file_evaluation(self, name: str, found: dict[str, Any]) -> None:
        version = evaluation_version("identity" if name == ORACLE else name)
        about = {VERSION: version, MADE: time.time()}
        self.store.write_evaluation(self.key, self.evaluation.tag, name, found | about)

    @cached_property
    def _large_test(self) -> LabelledLogits | None:
        """Predictions on further test rows, where they are asked for and can be drawn."""
        if not self.evaluation.large_test:
            return None
        dataset = _dataset(self.config)
        rows = dataset.large_test(self.config.seed, self.evaluation.large_test)
        if rows is None:
            return None
        logits = load_network(self.config, self.store).predict(rows)
        return LabelledLogits(logits, rows.labels, dataset.posterior(rows.inputs))

    def _draw(self, test: LabelledLogits) -> None:
        """File a reliability diagram; a trial is not lost because its picture cannot be drawn."""
        from calibration import plots  # matplotlib is slow to import; search trials need none

        title = f"{self.config.method} on {self.config.dataset_name}, seed {self.config.seed}"
        confidence, predicted = test.logits.double().softmax(-1).max(-1)
        try:
            figure = plots.reliability_diagram(
                confidence, predicted == test.labels, bins=self.evaluation.bins, title=title
            )
            picture = plots.png(figure)
        except Exception as error:
            logging.getLogger("calsweep").warning(
                "%s: reliability.png could not be drawn: %s: %s",
                *map(visible, (title, type(error).__name__, str(error))),
            )
            return
        self.store.write_extra(self.key, "reliability.png", picture)

    def _file(
        self, status: str, reason: str, files: Mapping[str, bytes] | None = None, trace: str = ""
    ) -> None:
        record = self.body() | {"status": status, "reason": without_secrets(reason)}
        if trace:
            record["traceback"] = without_secrets(trace)
        self.store.file_record(self.key, record, files or {})


def rung_values(curve: Sequence[Mapping[str, float]], rungs: Sequence[int]) -> dict[int, float]:
    """The best validation NLL so far at every rung that the curve has reached."""
    values: dict[int, float] = {}
    best = math.inf
    waiting = deque(rungs)
    for row in curve:
        best = min(best, float(row.get("validation/nll", math.inf)))
        while waiting and row["epoch"] >= waiting[0]:
            rung = waiting.popleft()
            if math.isfinite(best):
                values[rung] = best
    return values


def fresh_run(config: TrialConfig, device: str = "cpu") -> TrainingRun:
    """The trial's training run before its first epoch."""
    dataset = _dataset(config)
    method = make_method(config.method, config.hyperparameters)
    return TrainingRun(
        method,
        dataset.split(config.protocol, config.seed, held_out=method.needs_held_out),
        model=config.model.name,
        model_options=config.model.options,
        classes=dataset.classes,
        config=config.training,
        seed=config.seed,
        device=device,
    )


def load_network(config: TrialConfig, store: Store) -> TrainingRun:
    """A confirmed trial's network, ready to predict. Raises ``StoreError`` if it is gone."""
    saved = store.tensors(config.key(), "network.pt")
    if saved is None:
        raise StoreError(f"no network is stored for trial {config.key()}")
    run = fresh_run(config)
    try:
        run.load_network(saved)
    except ValueError as error:
        raise StoreError(
            f"{store.trial_location(config.key())}: network.pt: {error}; move the trial away and "
            "run the sweep again"
        ) from error
    return run


def missing_evaluations(
    store: Store,
    key: str,
    wanted: list[str],
    evaluation: Evaluation,
    *,
    failed: bool = True,
    outdated: bool = True,
) -> list[str]:
    """The wanted calibrators without an evaluation, or, if asked, a failed or outdated one."""
    there = store.evaluations(key, evaluation.tag)
    # The oracle's evaluation is made with that of the bare network, which knows of it.
    lost = there.get("identity", {}).get(HAS_ORACLE) and ORACLE not in there
    return [
        name
        for name in wanted
        if name not in there
        or (name == "identity" and lost)
        or (outdated and is_outdated(name, there[name]))
        or (failed and FAILED in there[name])
    ]


def is_outdated(name: str, evaluation: Mapping[str, Any]) -> bool:
    """Whether another version of a metric or of the calibrator made a stored evaluation."""
    return bool(evaluation.get(VERSION) != evaluation_version(name))


_PROVIDED: dict[str, Dataset] = {}


def provide(dataset: Dataset) -> None:
    """Let the trials of this process use a dataset that has arrived, known by its fingerprint."""
    _PROVIDED[dataset.fingerprint] = dataset


def is_provided(fingerprint: str) -> bool:
    """Whether this process has the dataset already."""
    return fingerprint in _PROVIDED


def _dataset(config: TrialConfig) -> Dataset:
    provided = _PROVIDED.get(config.fingerprint)
    if provided is not None:
        return provided
    return _read_dataset(config.dataset.name, json.dumps(config.dataset.options))


@lru_cache(maxsize=8)
def _read_dataset(name: str, options: str) -> Dataset:
    # Workers are reused from trial to trial; reading a large dataset each time is not needed.
    return load_dataset(name, json.loads(options))


@cache
def environment(device: str = "cpu") -> dict[str, str]:
    """Versions and machine, recorded with every trial; results agree to the bit on one such."""
    found = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "gpu": _gpu(device),
        "git": _git_revision(),
    } | {name: version(name) for name in RECORDED_VERSIONS}
    return {name: value for name, value in found.items() if value or name == "git"}


def _gpu(device: str) -> str:
    """The name of the device if it is a GPU and can be asked."""
    try:
        return torch.cuda.get_device_name(device) if device.startswith("cuda") else ""
    except (RuntimeError, AssertionError):  # what the trial dies of stands in its record
        return ""


def _cpu() -> str:
    """The processor's name, as Linux tells it; elsewhere what Python knows."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor()


def _git_revision() -> str:
    """The revision of the checkout this package runs from; empty when it is installed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()
