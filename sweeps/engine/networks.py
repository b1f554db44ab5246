"""A trial's network and data: before its training, and as the store has them after it."""

from __future__ import annotations

import json
from functools import lru_cache

from calibration.data import Dataset, Splits, load_dataset
from calibration.methods import make_method
from calibration.training import TrainingRun
from sweeps.engine.identity import TrialConfig
from sweeps.store import Store, StoreError, TrialRecord


def fresh_run(config: TrialConfig, device: str = "cpu") -> TrainingRun:
    """The trial's training run before its first epoch."""
    return TrainingRun(
        make_method(config.method, config.hyperparameters),
        splits_of(config),
        model=config.model.name,
        model_options=config.model.options,
        classes=dataset_of(config).classes,
        config=config.training,
        seed=config.seed,
        device=device,
    )


def splits_of(config: TrialConfig) -> Splits:
    """The trial's rows, divided as its protocol, seed and method want it."""
    method = make_method(config.method, config.hyperparameters)
    dataset = dataset_of(config)
    return dataset.split(config.protocol, config.seed, held_out=method.needs_held_out)


def load_network(config: TrialConfig, record: TrialRecord, store: Store) -> TrainingRun:
    """A confirmed trial's network, ready to predict. Raises ``StoreError`` if it is gone."""
    saved = store.tensors(record, "network.pt")
    if saved is None:
        raise StoreError(f"no network is stored for trial {record.key}")
    run = fresh_run(config)
    try:
        run.load_network(saved)
    except ValueError as error:
        raise StoreError(
            f"{store.trial_location(record.key)}: network.pt: {error}; move the trial away and "
            "run the sweep again"
        ) from error
    return run


_PROVIDED: dict[str, Dataset] = {}


def provide(dataset: Dataset) -> None:
    """Let the trials of this process use a dataset that has arrived, known by its fingerprint."""
    _PROVIDED[dataset.fingerprint] = dataset


def is_provided(fingerprint: str) -> bool:
    """Whether this process has the dataset already."""
    return fingerprint in _PROVIDED


def dataset_of(config: TrialConfig) -> Dataset:
    """The trial's dataset, read once in a process."""
    provided = _PROVIDED.get(config.fingerprint)
    if provided is not None:
        return provided
    return _read_dataset(config.dataset.name, json.dumps(config.dataset.options))


@lru_cache(maxsize=8)
def _read_dataset(name: str, options: str) -> Dataset:
    # Workers are reused from trial to trial; reading a large dataset each time is not needed.
    return load_dataset(name, json.loads(options))
