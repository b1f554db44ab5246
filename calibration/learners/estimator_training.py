"""The training of an estimator, with the same interface to the engine as that of a network.

A checkpoint holds the progress of the training and its metrics, not the trees: an estimator that
resumes trains its rounds again, which gives the same trees, and then continues. It checks that
the metrics are the same.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration.data import Column, Part, Splits
from calibration.data.mapped import is_mapped
from calibration.learners.encoding import encoder_for
from calibration.learners.estimator import FLOOR, Estimator, Matrix, Task
from calibration.memory import TooLargeError, check_fits
from calibration.restoring import as_value_error, whole
from calibration.row_weights import mean_one
from calibration.training_config import TrainingConfig
from calibration.validation import measured_on

ESTIMATOR_LOOP_VERSION = 1
"""Part of the key of every estimator's trial: raise it when a change in here, or to the encoding of
inputs, alters the numbers of any estimator."""
ABOUT_ESTIMATOR = "estimator.json"
_CHECKPOINT_FORMAT = 1
_SEEDS = 2**31


def check_rows_fit(inputs: Tensor) -> None:
    """Raise ``TooLargeError`` for rows on disk that do not fit into memory in float64."""
    if not is_mapped(inputs):
        return
    try:
        check_fits(8 * inputs.numel(), f"estimators hold all rows in memory: {len(inputs)} take")
    except TooLargeError as error:
        raise TooLargeError(
            f"{error}; train a network, which reads them batch by batch, or leave rows or columns "
            "out"
        ) from None


class FittedEstimator:
    """An estimator with what prediction requires: the classes it knows, and the round to use."""

    def __init__(self, estimator: Estimator, known: tuple[int, ...], classes: int) -> None:
        self.estimator = estimator
        self.known = known
        self.classes = classes
        self.rounds = 0

    def log_probabilities(self, scores: Matrix) -> Tensor:
        """Log-probabilities (N, classes) of all classes from the estimator's scores."""
        found = torch.from_numpy(np.ascontiguousarray(scores, dtype=np.float64))
        every = torch.full((len(found), self.classes), math.log(FLOOR), dtype=torch.float64)
        every[:, list(self.known)] = found.log_softmax(-1)
        return every.log_softmax(-1)

    def predict(self, encoded: Tensor) -> Tensor:
        """Log-probabilities (N, classes) of encoded inputs after ``rounds`` rounds."""
        return self.log_probabilities(self.estimator.scores(flat(encoded), self.rounds))

    def files(self) -> dict[str, bytes]:
        """Everything that ``load`` needs, by file name."""
        about = {"format": 1, "rounds": self.rounds, "known": self.known}
        model = self.estimator.save(self.rounds)
        return {ABOUT_ESTIMATOR: json.dumps(about).encode(), self.estimator.file: model}

    def load(self, files: Mapping[str, bytes]) -> None:
        """Restore the estimator that ``files`` come from. Raises ``ValueError`` if malformed."""
        with as_value_error("estimator"):
            about = json.loads(files[ABOUT_ESTIMATOR])
            if about["format"] != 1:
                raise ValueError(f"format: found {about['format']!r}, not 1")
            known, rounds = tuple(whole(k) for k in about["known"]), whole(about["rounds"])
            if len(known) < 2 or not set(known) <= set(range(self.classes)):
                raise ValueError(f"classes: found {known}, not some of {self.classes}")
            self.estimator.load(files[self.estimator.file])
        self.known, self.rounds = known, rounds


class EstimatorTraining:
    """One estimator being trained on one split, round by round.

    ``run_epoch`` trains one round and returns its row of the curve; ``done`` tells when to stop;
    ``predict`` uses the best round according to the stopping rule. Raises ``ValueError`` if the
    training rows have only one class, or are on disk and do not fit into memory.
    """

    def __init__(
        self,
        estimator: Estimator,
        splits: Splits,
        *,
        columns: tuple[Column, ...],
        classes: int,
        config: TrainingConfig,
        seed: int,
    ) -> None:
        check_rows_fit(splits.train.inputs)
        self.estimator, self.config = estimator, config
        self.validation = splits.validation
        encode, categorical = encoder_for(estimator, splits, columns)
        self.transform = encode
        known, labels = np.unique(splits.train.labels.numpy(), return_inverse=True)
        if len(known) < 2:
            raise ValueError(f"the training rows have {len(known)} class; at least 2 are needed")
        weights = splits.train.weights
        self._task = Task(
            inputs=flat(encode(splits.train.inputs)),
            labels=labels.astype(np.int64),
            weights=None if weights is None else mean_one(weights).numpy(),
            validation=flat(encode(splits.validation.inputs)),
            validation_labels=_positions(splits.validation.labels.numpy(), known),
            patience=self._patience,
            classes=len(known),
            categorical=categorical,
            seed=seed % _SEEDS,
            threads=config.threads,
        )
        self.fitted = FittedEstimator(estimator, tuple(known.tolist()), classes)
        self.epoch = 0
        self.seconds = 0.0
        self.curve: list[dict[str, float]] = []
        self.best_score = (math.inf, math.inf)  # the rule's value, and a tie-breaker
        self.best_epoch = 0
        self._rounds: Iterator[Matrix] | None = None
        self._trained = 0
        self._loaded = False

    @property
    def done(self) -> bool:
        """Whether all rounds are trained, patience has run out, or predictions are not finite."""
        if self.epoch >= self.estimator.rounds or self.diverged:
            return True
        patience = self._patience
        return patience is not None and self.epoch - self.best_epoch >= patience

    @property
    def diverged(self) -> bool:
        """Whether the last round's validation NLL is infinite or NaN."""
        return bool(self.curve) and not math.isfinite(self.curve[-1]["validation/nll"])

    def run_epoch(self) -> dict[str, float]:
        """Train one round and return its row: the metrics on validation data."""
        start = time.perf_counter()
        self._catch_up()
        row = {"epoch": float(self.epoch + 1)} | self._validate(self._next_round())
        self.epoch += 1
        self._compare(row)
        self.curve.append(row)
        self.seconds += time.perf_counter() - start
        return row

    def predict(self, part: Part) -> Tensor:
        """Log-probabilities of the best round for raw inputs."""
        if not self._loaded:
            self._catch_up()
            self.fitted.rounds = self.best_epoch
        return self.fitted.predict(self.transform(part.inputs))

    def predict_validation(self) -> Tensor:
        """Log-probabilities of the best round for the validation part."""
        return self.predict(self.validation)

    def files(self) -> dict[str, bytes]:
        """What ``predict`` needs, by file name, in the formats of the libraries."""
        self._catch_up()
        self.fitted.rounds = self.best_epoch
        return self.fitted.files()

    def load_files(self, files: Mapping[str, bytes]) -> None:
        """Predict with the result of ``files`` of a run of the same configuration.

        Raises ``ValueError`` for anything else.
        """
        self.fitted.load(files)
        self._loaded = True

    def history(self) -> dict[str, Tensor]:
        """Empty: an estimator has no counterpart to a method's own state."""
        return {}

    def reliability(self) -> dict[str, Tensor]:
        """Empty: no reliability diagrams are kept during training."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes except the model itself, as plain values."""
        return {
            "format": _CHECKPOINT_FORMAT,
            "best": {"score": list(self.best_score), "epoch": self.best_epoch},
            "epoch": self.epoch,
            "seconds": self.seconds,
            "curve": list(self.curve),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from the ``state_dict`` of a run of the same configuration.

        Raises ``ValueError`` for anything else, and leaves the run unchanged.
        """
        with as_value_error("state"):
            if saved["format"] != _CHECKPOINT_FORMAT:
                raise ValueError(f"format: found {saved['format']!r}, not {_CHECKPOINT_FORMAT}")
            measured, tie = saved["best"]["score"]
            score, best = (float(measured), float(tie)), whole(saved["best"]["epoch"])
            curve = [{str(name): float(v) for name, v in row.items()} for row in saved["curve"]]
            epoch, seconds = whole(saved["epoch"]), float(saved["seconds"])
            if not best <= epoch == len(curve) <= self.estimator.rounds or not seconds >= 0:
                raise ValueError(f"epoch: found {epoch}, a curve of {len(curve)}, {seconds} s")
            if any(not isinstance(row.get("validation/nll"), float) for row in curve):
                raise ValueError("curve: found a round without its NLL")
        self.best_score, self.best_epoch = score, best
        self.curve, self.epoch, self.seconds = curve, epoch, seconds

    @property
    def _patience(self) -> int | None:
        return None if self.config.stop_on == "none" else self.estimator.patience

    def _catch_up(self) -> None:
        """Train the rounds that a checkpoint has recorded."""
        if self._trained >= self.epoch:
            return
        while self._trained < self.epoch:
            scores = self._next_round()
        found, recorded = self._validate(scores), self.curve[-1]
        if found["validation/nll"] != recorded["validation/nll"]:
            raise ValueError(
                f"round {self.epoch} has the validation NLL {found['validation/nll']!r}, and "
                f"before the interruption it had {recorded['validation/nll']!r}"
            )

    def _next_round(self) -> Matrix:
        if self._rounds is None:
            self._rounds = self.estimator.fit(self._task)
        scores = next(self._rounds)
        self._trained += 1
        return scores

    def _validate(self, scores: Matrix) -> dict[str, float]:
        logits = self.fitted.log_probabilities(scores)
        if not bool(logits.isfinite().all()):
            return {"validation/nll": math.inf}
        refinement = self.config.stop_on == "refinement"
        row = measured_on(self.validation, logits, refinement=refinement)
        return {f"validation/{name}": value for name, value in row.items()}

    def _compare(self, row: Mapping[str, float]) -> None:
        """Keep this round if it is the best so far, by the same rule as for networks."""
        if not math.isfinite(row["validation/nll"]):
            return
        rule = self.config.stop_on
        latest = rule == "none" or self.config.stop_ties == "latest"
        tie = -float(self.epoch) if latest else row["validation/nll"]
        score = (0.0 if rule == "none" else row[f"validation/{rule}"], tie)
        if score < self.best_score:
            self.best_score, self.best_epoch = score, self.epoch


def _positions(labels: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.int64]:
    """The index of each label among the known ones; −1 for others."""
    places = np.searchsorted(known, labels).clip(max=len(known) - 1)
    return np.where(known[places] == labels, places, -1)


def flat(encoded: Tensor) -> Matrix:
    """Inputs with one row of float64 per sample."""
    return encoded.reshape(len(encoded), -1).double().numpy()
