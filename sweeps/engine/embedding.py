"""A dataset under a frozen backbone: embedded once for all trials, and kept in the store.

Training and validation rows have one key, test rows another, which is needed only after a confirm
trial has been trained. Of several workers one embeds and the others wait; if it dies or falls
silent, another takes over. If two embed at once, only time is lost: the first to store them counts.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from calibration.data import Dataset, FixedDataset, Part, Splits
from calibration.data.embedded import EmbeddedDataset
from calibration.data.transforms import Standardise
from calibration.kernels import chosen_kernels
from calibration.leftovers import made_by_the_dead
from calibration.models import Backbone, Encoder, backbone_of, encoder_of, own_preparation
from calibration.models.backbones import EMBEDDING_VERSION
from calibration.threads import threads
from sweeps.engine.identity import TrialConfig
from sweeps.spec.schema import Component
from sweeps.store import Store

POLL_SECONDS = 0.5
SIGN_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""Silence, by its own clock, after which a worker takes over from one on another machine."""
_Part = Literal["training", "test"]
_KEPT = 4
_ARRAYS: OrderedDict[str, Tensor] = OrderedDict()
"""The embeddings that this process read or made last: workers serve many trials."""


def frozen_backbone(model: Component | None) -> Backbone | None:
    """The options of a model that embeds its data; None for one that is trained whole."""
    found = None if model is None else backbone_of(model.name, model.options)
    return found if found is not None and found.frozen else None


def embedded_dataset(config: TrialConfig, dataset: Dataset, store: Store | None) -> Dataset:
    """The trial's dataset as its head sees it: embedded, or as it is without a backbone.

    Raises ``ValueError`` if it cannot be embedded here.
    """
    if frozen_backbone(config.model) is None:
        return dataset
    if not isinstance(dataset, FixedDataset):
        raise ValueError(f"{dataset.name}: every seed draws other rows, so they cannot be embedded")
    pool = _embeddings(config, "training", dataset.pool.inputs, store)
    return EmbeddedDataset(dataset, pool, lambda inputs: _embeddings(config, "test", inputs, store))


def embedding_key(config: TrialConfig, part: _Part) -> str:
    """The key under which the store keeps the embeddings of a part of the trial's data."""
    options = frozen_backbone(config.model)
    assert options is not None, "asked only of those"
    items: dict[str, Any] = {
        "data": config.fingerprint,
        "part": part,
        "encoder": config.encoder,
        "batch size": options.batch_size,
        "device": config.device,
        "threads": config.training.threads,
        "kernels": config.training.kernels,
        "version": EMBEDDING_VERSION,
    }
    return hashlib.sha256(json.dumps(items, sort_keys=True).encode()).hexdigest()[:32]


def few_embedded(model: Component, splits: Splits) -> Splits:
    """Splits of a few rows with their embeddings, for a test: nothing is stored."""
    options = frozen_backbone(model)
    if options is None:
        return splits
    encoder, size = encoder_of(model.name, model.options), options.batch_size

    def embedded(part: Part) -> Part:
        raw = part.inputs
        key = hashlib.sha256(raw.numpy().tobytes() + encoder.digest.encode()).hexdigest()
        found = _cached(key, lambda: encoder.embed(raw, batch_size=size))
        return part._replace(inputs=found)

    return _with_inputs(splits, embedded)


def stand_in(model: Component, splits: Splits) -> Splits:
    """Splits with random numbers as embeddings: enough to estimate time and memory.

    If a network prepares its own inputs, that becomes the splits' transform.
    """
    options = frozen_backbone(model)
    if options is None:
        own = own_preparation(model.name, model.options)
        return splits if own is None else replace(splits, transform=own)
    first = splits.train.inputs[:1]
    width = encoder_of(model.name, model.options).embed(first, batch_size=1).shape[1]
    drawn = torch.Generator().manual_seed(0)
    return _with_inputs(
        splits,
        lambda part: part._replace(inputs=torch.randn(len(part.labels), width, generator=drawn)),
    )


def _with_inputs(splits: Splits, changed: Callable[[Part], Part]) -> Splits:
    train = changed(splits.train)
    meta = splits.meta_validation
    return replace(
        splits,
        train=train,
        validation=changed(splits.validation),
        meta_validation=None if meta is None else changed(meta),
        apart=None if splits.apart is None else changed(splits.apart),
        transform=Standardise.fit(train.inputs),
    )


def _embeddings(config: TrialConfig, part: _Part, inputs: Tensor, store: Store | None) -> Tensor:
    key = embedding_key(config, part)
    if store is None:
        return _cached(key, lambda: _embed(config, inputs, lambda: None))
    found = _cached(key, lambda: _stored(config, key, inputs, store))
    if len(found) != len(inputs):
        raise ValueError(f"embeddings {key}: found {len(found)} rows; expected {len(inputs)}")
    return found


def _stored(config: TrialConfig, key: str, inputs: Tensor, store: Store) -> Tensor:
    """The embeddings under the key, made now if nobody else has made or is making them."""
    seen, since = store.embeddings_claim(key), time.monotonic()
    while (found := store.embeddings(key)) is None:
        gone = made_by_the_dead((store.embeddings_claim(key) or b"").decode())
        silent = time.monotonic() - since > SILENT_SECONDS
        if store.claim_embeddings(key, anew=gone or silent):
            return _file(config, key, inputs, store)
        time.sleep(POLL_SECONDS)
        sign = store.embeddings_claim(key)
        if sign != seen:
            seen, since = sign, time.monotonic()
    return found


def _file(config: TrialConfig, key: str, inputs: Tensor, store: Store) -> Tensor:
    signed = time.monotonic()

    def show_life() -> None:
        nonlocal signed
        if time.monotonic() - signed > SIGN_SECONDS:
            store.claim_embeddings(key, anew=True)
            signed = time.monotonic()

    try:
        # Between the look and the claim another may have stored them and released its claim.
        if (there := store.embeddings(key)) is not None:
            return there
        found = _embed(config, inputs, show_life)
        if not store.file_embeddings(key, found):
            there = store.embeddings(key)
            return found if there is None else there
        return found
    finally:
        store.release_embeddings(key)


def _embed(config: TrialConfig, inputs: Tensor, after_batch: Callable[[], None]) -> Tensor:
    options, model = frozen_backbone(config.model), config.model
    assert options is not None
    assert model is not None
    encoder = checked_encoder(model, config.encoder)
    training = config.training
    with threads(training.threads), chosen_kernels(training.kernels):
        return encoder.embed(
            inputs, batch_size=options.batch_size, device=config.device, after_batch=after_batch
        )


def checked_encoder(model: Component, digest: str) -> Encoder:
    """The model's pretrained network. Raises ``ValueError`` unless it has this digest."""
    encoder = encoder_of(model.name, model.options)
    if encoder.digest != digest:
        raise ValueError(
            f"model {model.name!r}: the weights at {model.options.get('weights')} are not those "
            "that the sweep was started with, or are read by another version of the library; "
            "every machine needs the same"
        )
    return encoder


def _cached(key: str, make: Callable[[], Tensor]) -> Tensor:
    if key not in _ARRAYS:
        _ARRAYS[key] = make()
        while len(_ARRAYS) > _KEPT:
            _ARRAYS.popitem(last=False)
    _ARRAYS.move_to_end(key)
    return _ARRAYS[key]
