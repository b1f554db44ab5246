"""A trial's training and data: before its first epoch, and as stored after its last."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, TypeVar

from calibration.data import Dataset, Splits, load_dataset
from calibration.deployment import NETWORK
from calibration.learners import EstimatorTraining, begin, estimator_files, make_learner
from calibration.training import TrainingRun
from sweeps.engine.embedding import (
    checked_encoder,
    embedded_dataset,
    embedding_key,
    frozen_backbone,
)
from sweeps.engine.identity import TrialConfig
from sweeps.store import Store, StoreError, TrialRecord, encode_tensors

T = TypeVar("T")


def fresh_run(
    config: TrialConfig, device: str = "cpu", store: Store | None = None
) -> TrainingRun | EstimatorTraining:
    """The trial's training before its first epoch; embeddings come from ``store``."""
    dataset, model = dataset_of(config, store), config.model
    if model is not None and config.encoder and frozen_backbone(model) is None:
        checked_encoder(model, config.encoder)
    return begin(
        make_learner(config.method, config.hyperparameters),
        splits_of(config, store),
        columns=dataset.columns,
        classes=dataset.classes,
        model=model.name if model else "",
        model_options=model.options if model else {},
        config=config.training,
        seed=config.seed,
        device=device,
    )


def splits_of(config: TrialConfig, store: Store | None = None) -> Splits:
    """The trial's rows, divided as its protocol, seed and learner require.

    The trials of a search have the same, so the last few divisions are kept, unless they are large.
    """
    held_out = make_learner(config.method, config.hyperparameters).needs_held_out
    embedding = "" if frozen_backbone(config.model) is None else embedding_key(config, "training")
    division = (config.protocol, config.seed, held_out)
    key = repr((config.fingerprint, config.dataset, embedding, division))
    if key in _SPLITS:
        return _SPLITS[key]
    splits = dataset_of(config, store).split(config.protocol, config.seed, held_out=held_out)
    inputs = [part.inputs for part in splits.learned_from]
    if sum(values.numel() * values.element_size() for values in inputs) <= KEPT_BYTES:
        while len(_SPLITS) >= KEPT_SPLITS:
            del _SPLITS[next(iter(_SPLITS))]
        _SPLITS[key] = splits
    return splits


KEPT_BYTES = 100_000_000
"""The largest division that is kept after a trial: rows beyond it take longer to train than to
divide."""
KEPT_SPLITS = 3
_SPLITS: dict[str, Splits] = {}


def model_files(run: TrainingRun | EstimatorTraining) -> dict[str, bytes]:
    """The trained network or estimator, as files of its record."""
    if isinstance(run, EstimatorTraining):
        return run.files()
    return {NETWORK: encode_tensors(run.network())}


def load_network(
    config: TrialConfig, record: TrialRecord, store: Store
) -> TrainingRun | EstimatorTraining:
    """A confirmed trial's model, ready to predict. Raises ``StoreError`` if it is missing."""
    run = fresh_run(config, store=store)
    try:
        if isinstance(run, EstimatorTraining):
            run.load_files(stored_model(config, record, store))
        else:
            run.load_network(stored_model(config, record, store))
    except ValueError as error:
        name = run.estimator.file if isinstance(run, EstimatorTraining) else NETWORK
        raise StoreError(
            f"{store.trial_location(record.key)}: {name}: {error}; move the trial away and "
            "run the sweep again"
        ) from error
    return run


def stored_model(config: TrialConfig, record: TrialRecord, store: Store) -> dict[str, Any]:
    """A network's tensors, or an estimator's files. Raises ``StoreError`` if they are missing."""
    if config.model is not None:
        return _stored(store.tensors(record, NETWORK), record)
    names = estimator_files(config.method)
    return {name: _stored(store.file(record, name), record) for name in names}


def _stored(found: T | None, record: TrialRecord) -> T:
    if found is None:
        raise StoreError(
            f"trial {record.key}: its record has no model; move the trial away and run the sweep "
            "again"
        )
    return found


_PROVIDED: dict[str, Dataset] = {}


def provide(dataset: Dataset) -> None:
    """Let the trials of this process use a dataset that was shipped to it."""
    if _PROVIDED.get(dataset.fingerprint) is not dataset:
        _SPLITS.clear()
    _PROVIDED[dataset.fingerprint] = dataset


def dataset_of(config: TrialConfig, store: Store | None = None) -> Dataset:
    """The trial's dataset as its learner sees it: with a frozen backbone, embedded.

    Embeddings are taken from the store, if there is one, or stored there.
    """
    return embedded_dataset(config, raw_dataset(config), store)


def raw_dataset(config: TrialConfig) -> Dataset:
    """The trial's dataset before any embedding; a process keeps the last few that it has read."""
    provided = _PROVIDED.get(config.fingerprint)
    if provided is not None:
        return provided
    return _read_dataset(config.dataset.name, json.dumps(config.dataset.options))


@lru_cache(maxsize=8)
def _read_dataset(name: str, options: str) -> Dataset:
    # Workers are reused from trial to trial: a large dataset need not be read each time.
    return load_dataset(name, json.loads(options))
