"""The batches of an epoch: which rows, in which order, prepared for the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from calibration.augmentation import augmented
from calibration.data import Part
from calibration.data.dataset import Transform
from calibration.data.mapped import in_memory, is_mapped, read_ahead
from calibration.methods import Batch, Method
from calibration.row_weights import drawn_by_weight
from calibration.training_config import TrainingConfig
from calibration.transfer import sent


class Batches:
    """The part of a ``TrainingRun`` that provides its training and held-out batches.

    If rows have weights, an epoch draws each row in proportion to its weight, rounded up or
    down at random: a batch's loss then estimates the weighted loss for every method, whether
    that loss is a mean over rows or not (drawing also gives less gradient noise than
    multiplying: An, Ying and Zhu 2021). Held-out rows are drawn in the same way.
    """

    method: Method
    config: TrainingConfig
    device: torch.device
    transform: Transform
    train: Part
    held_out: Part | None
    epoch: int
    held_epochs: int = 0
    """For how many epochs a pretrained network below the head stays frozen."""
    train_transform: Callable[[Tensor], Tensor] | None
    _by_batch: bool
    """Whether inputs are transformed on use, to save memory."""

    def windows(self, generator: torch.Generator) -> Iterator[list[Batch]]:
        """The next epoch's batches, as many at a time as ``Method.steps`` takes.

        Nothing in here waits for the device. Rows that reside on it are gathered there, by an
        order that is sent once; others are read ahead and sent, each batch once. Whatever is drawn
        per batch (held-out rows, augmentations, a method's own numbers) is sent with it.
        """
        phase = self.method.phase(self.epoch / self.config.epochs)
        for batches in self._windows(generator):
            drawn = self.method.draw(batches, generator)
            batches[0] = batches[0]._replace(drawn=drawn)
            yield [batch._replace(phase=phase) for batch in batches] if phase else batches

    @property
    def prepared(self) -> bool:
        """Whether rows are stored ready for the network, rather than prepared batch by batch."""
        return not self._by_batch and not is_mapped(self.train.inputs)

    @property
    def plain(self) -> bool:
        """Whether batches are unmodified rows, and only their order is random."""
        window, data = self.method.window == 1 and self.held_out is None, self.train
        nothing_drawn = type(self.method).draw is Method.draw and data.weights is None
        nothing_changed = not self.config.augmentations and self.train_transform is None
        ready = self.prepared and not (self.config.channels_last and data.inputs.dim() == 4)
        return window and nothing_drawn and nothing_changed and ready

    def _windows(self, generator: torch.Generator) -> Iterator[list[Batch]]:
        samples, weights = len(self.train.labels), self.train.weights
        if self._full_batch:
            held = self.epoch < self.held_epochs
            end = self.held_epochs if held else self.config.epochs
            passes = min(self.method.window, end - self.epoch)
            if weights is not None:
                drawn = [_drawn(weights, samples, generator) for _ in range(passes)]
                yield [self._batch(*self._taken(self.train, rows), generator) for rows in drawn]
            elif self.config.augmentation == "none" and self.train_transform is None:
                yield [self._batch(*self._whole(), generator)] * passes
            else:
                yield [self._batch(*self._whole(), generator) for _ in range(passes)]
            return
        assert isinstance(self.config.batch_size, int)
        order = torch.randperm(samples, generator=generator)
        if weights is not None:
            order = _drawn(weights, samples, generator)[order]
        shuffled = sent(order, self.device).split(self.config.batch_size)
        wanted = order.split(self.config.batch_size) if is_mapped(self.train.inputs) else shuffled
        read = read_ahead(self.train.inputs, wanted)
        # A window never spans two epochs, so that an epoch remains one pass over the data.
        for orders in _grouped(shuffled, self.method.window):
            yield [self._batch(rows, next(read), generator) for rows in orders]

    def _whole(self) -> tuple[Tensor, Tensor]:
        return torch.arange(len(self.train.labels), device=self.device), self.train.inputs

    def _taken(self, part: Part, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The row numbers on the device, and the inputs of those rows."""
        there = sent(rows, self.device)
        # Mapped inputs are indexed by row numbers on the host.
        return there, part.inputs[rows if is_mapped(part.inputs) else there]

    def _batch(self, rows: Tensor, inputs: Tensor, generator: torch.Generator) -> Batch:
        """The batch of the training rows with these numbers and inputs."""
        labels = self.train.labels
        labels = labels if inputs is self.train.inputs else labels[rows]
        if self.train_transform is not None:
            inputs = _each(self.train_transform, in_memory(inputs))
        inputs = self._prepare(inputs, augment=generator)
        return Batch(inputs, labels, rows, self._held_out_batch(generator))

    def _held_out_batch(self, generator: torch.Generator) -> Part | None:
        """As many held-out rows as the method wants, by default a batch; all for full batches.

        A smaller last batch comes with as many as the others.
        """
        if self.held_out is None:
            return None
        size, available = self.config.batch_size, len(self.held_out.labels)
        if size != "full":
            size = self.method.held_out_batch or size
        weights, rows = self.held_out.weights, None
        if weights is not None:
            rows = _drawn(weights, available, generator)
        if size != "full" and size < available:
            order = torch.randperm(available, generator=generator)[:size]
            rows = order if rows is None else rows[order]
        if rows is None:
            return self.held_out._replace(inputs=self._prepare(self.held_out.inputs))
        there, inputs = self._taken(self.held_out, rows)
        known = self.held_out._replace(inputs=self.held_out.labels, weights=None).take(there)
        return known._replace(inputs=self._prepare(inputs))

    def _prepare(self, inputs: Tensor, *, augment: torch.Generator | None = None) -> Tensor:
        inputs = in_memory(inputs)
        names = () if augment is None else self.config.augmentations
        # 8-bit images are augmented as they are; other inputs after standardisation.
        first = inputs.dtype == torch.uint8
        if augment is not None and first:
            inputs = augmented(inputs, names, augment)
        if self._by_batch:
            inputs = self.transform(inputs)
        if augment is not None and not first:
            inputs = augmented(inputs, names, augment)
        if self.config.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return inputs

    @property
    def _full_batch(self) -> bool:
        size = self.config.batch_size
        return size == "full" or size >= len(self.train.labels)


def _each(transform: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    rows = [transform(row) for row in inputs]
    for row in rows:
        if row.shape != inputs.shape[1:] or row.dtype != inputs.dtype:
            raise ValueError(
                f"train_transform: it made {tuple(row.shape)} of {row.dtype} out of "
                f"{tuple(inputs.shape[1:])} of {inputs.dtype}; it must keep shape and type"
            )
    return torch.stack(rows)


def _drawn(weights: Tensor, size: int, generator: torch.Generator) -> Tensor:
    offset = float(torch.rand((), generator=generator, dtype=torch.float64))
    return drawn_by_weight(weights, size, offset)


def _grouped(items: tuple[Tensor, ...], size: int) -> Iterator[tuple[Tensor, ...]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


class Stacked(NamedTuple):
    """One batch for each of K runs: stacked along a first dimension, or shared by all."""

    batch: Batch
    own: bool


def stacked_batches(
    runs: Sequence[Batches], generators: Sequence[torch.Generator]
) -> Iterator[Stacked]:
    """The next epoch's batches of ``plain`` runs of one kind: the same rows as ``windows``.

    Runs with the same rows and seed, such as the trials of a search, share their batches.
    """
    first = runs[0]
    shared = all(run.train is first.train for run in runs)
    alike = shared and len({generator.initial_seed() for generator in generators}) == 1
    phase = first.method.phase(first.epoch / first.config.epochs)
    samples, size = len(first.train.labels), first.config.batch_size
    if first._full_batch:
        rows = torch.arange(samples, device=first.device)
        if shared:
            yield Stacked(Batch(*first.train[:2], rows, None, {}, phase), own=False)
            return
        orders: tuple[Tensor, ...] = (rows.expand(len(runs), -1),)
    else:
        assert isinstance(size, int)
        drawn = [torch.randperm(samples, generator=generator) for generator in generators]
        if alike:
            for order in sent(drawn[0], first.device).split(size):
                inputs, labels = (values.index_select(0, order) for values in first.train[:2])
                yield Stacked(Batch(inputs, labels, order, None, {}, phase), own=False)
            return
        orders = sent(torch.stack(drawn), first.device).split(size, dim=1)
    for order in orders:
        if shared:
            at = order.reshape(-1)
            inputs, labels = (values.index_select(0, at) for values in first.train[:2])
            inputs, labels = inputs.unflatten(0, order.shape), labels.view(order.shape)
        else:
            pairs = list(zip(runs, order, strict=True))
            inputs = torch.stack([run.train.inputs[at] for run, at in pairs])
            labels = torch.stack([run.train.labels[at] for run, at in pairs])
        yield Stacked(Batch(inputs, labels, order, None, {}, phase), own=True)
