"""The identity of a trial: its configuration, and the key of its record in the store.

The key is a hash of what determines the result, item by item. Trials with the same key share one
record, whichever sweeps they belong to.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_jsonable_python

from calibration.data import Protocol
from calibration.hyperparameters import Value
from calibration.learners import learner
from calibration.learners.estimator_training import ESTIMATOR_LOOP_VERSION
from calibration.metrics import METRICS
from calibration.models import backbone_of, model_version
from calibration.optimiser_steps import Averaged, Clipped, TwoRates
from calibration.training import TRAINING_LOOP_VERSION
from calibration.training_config import TrainingConfig
from sweeps.spec.schema import Component, Device


class TrialConfig(BaseModel):
    """One training. ``phase`` decides whether test data is read at the end.

    An estimator has no ``model``, and uses only the parts of ``training`` that concern it.
    """

    model_config = ConfigDict(frozen=True)

    dataset: Component
    dataset_name: str
    fingerprint: str
    protocol: Protocol
    model: Component | None
    method: str
    hyperparameters: dict[str, Value]
    training: TrainingConfig
    seed: int
    phase: Literal["search", "confirm"]
    device: Device = "cpu"
    objective: tuple[str, ...] = ()
    """The metrics that a search trial is compared by."""
    encoder: str = ""
    """The digest of a pretrained network: its weights and preprocessing."""
    any_seed: bool = False
    """The seed changes nothing: neither the learner nor the parts depend on it."""

    def key(self) -> str:
        """The trial's name in the store: equal trials have equal keys in every sweep."""
        text = json.dumps(determining(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def determining(config: TrialConfig) -> dict[str, Any]:
    """The items that determine the result, under names that are used only here.

    So renaming a field of the program changes no key. A new setting or a new piece of code that can
    change a number gets a line here; changing or removing a line changes the key of every trial.
    """
    training, protocol = config.training, config.protocol
    items: dict[str, Any] = {
        "data": config.fingerprint,
        "phase": config.phase,  # a confirm trial's record holds predictions on test data
        "seed": None if config.any_seed else config.seed,
        "device": config.device,
        "protocol/validation": protocol.validation,
        "protocol/meta-validation": protocol.meta_validation,
        "protocol/drawn validation": protocol.drawn_validation,
        "protocol/validation is meta-validation": protocol.share_validation,
        "protocol/same training rows": protocol.same_training_rows,
        "method": config.method,
        "method/hyperparameters": config.hyperparameters,
        "method/version": learner(config.method).version,
        "training/threads": training.threads,
        # Only later versions: until one changes, searches for different metrics share trials.
        "objective/versions": {m: v for m in config.objective if (v := metric_version(m)) > 1},
    }
    if protocol.choice is not None:  # only then: trials of other protocols keep their keys
        items["protocol/choice"] = protocol.choice
    further = _of_estimator(config) if config.model is None else _of_network(config, config.model)
    return dict(to_jsonable_python(items | further))


def _of_network(config: TrialConfig, model: Component) -> dict[str, Any]:
    training = config.training
    if searched := config.hyperparameters.get("optimiser"):
        training = training.model_copy(update={"optimiser": searched})
    items = {
        "model": model.name,
        "model/options": _options(model),
        "model/version": model_version(model.name),
        "training/version": TRAINING_LOOP_VERSION,
        "training/epochs": training.epochs,
        "training/batch size": training.batch_size,
        "training/optimiser": training.optimiser,
        "training/optimiser/momentum": training.momentum,
        "training/optimiser/version": training.named_optimiser().version,
        "training/schedule": training.schedule,
        "training/schedule/milestones": training.milestones,
        "training/schedule/decay": training.decay,
        "training/augmentation": training.augmentation,
        "training/best epoch": training.stop_on,
        "training/best epoch/ties": training.stop_ties,
        "training/best epoch/version": metric_version(training.stop_on),
        "training/patience": training.patience,
        "training/evaluate every": training.evaluate_every,
        "training/mixed precision": training.mixed_precision,
    }
    if config.encoder:
        items["model/encoder"] = config.encoder
    if (backbone := backbone_of(model.name, model.options)) is not None and not backbone.frozen:
        items["training/fine-tuning/version"] = TwoRates.version
    if training.reliability_snapshots and config.phase == "confirm":
        # They change no number, but a record made without them has none to show.
        items["training/reliability snapshots"] = training.reliability_snapshots
    if training.kernels != "default":  # they add in another order
        items["training/kernels"] = training.kernels
    if training.channels_last:
        items["training/channels last"] = True
    if training.clip_norm is not None:
        items["training/clipping"] = [training.clip_norm, Clipped.version]
    if training.ema_decay is not None:
        items["training/averaging"] = [training.ema_decay, Averaged.version]
    if training.warmup_epochs:
        items["training/warm-up"] = training.warmup_epochs
    return items


def _options(model: Component) -> dict[str, Any]:
    """The options that determine a result: not the path of weights, which have a digest."""
    found = backbone_of(model.name, model.options)
    return model.options if found is None else found.model_dump(mode="json", exclude={"weights"})


def _of_estimator(config: TrialConfig) -> dict[str, Any]:
    training = config.training
    items: dict[str, Any] = {"estimator/version": ESTIMATOR_LOOP_VERSION}
    # Without rounds there is none to choose, but refinement is measured only if it chooses.
    if training.epochs > 1 or training.stop_on == "refinement":
        items |= {
            "training/best epoch": training.stop_on,
            "training/best epoch/ties": training.stop_ties,
            "training/best epoch/version": metric_version(training.stop_on),
        }
    return items


def metric_version(metric: str) -> int:
    """The version of a deciding metric; 1 for a rule that is not a metric, such as ``none``."""
    return METRICS[metric].version if metric in METRICS else 1
