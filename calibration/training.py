"""The epoch loop: state in, state out.

A ``TrainingRun`` owns the values that change while one network is trained and nothing
else. Saved after epoch k with ``state_dict`` and loaded into a new run of the same
configuration, it continues exactly as if it had never stopped: on CPUs of the same type,
parameters and curves are bit-identical. Another type of CPU rounds differently, and many
steps amplify the difference.
"""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from calibration.batches import Batches
from calibration.bfloat16 import bfloat16_kernels
from calibration.data import Part, Splits
from calibration.data.mapped import in_pieces, is_mapped
from calibration.data.placement import placed
from calibration.data.transforms import category_blocks, encoded, on_device
from calibration.denormals import flushed_denormals
from calibration.fine_tuning import surroundings
from calibration.methods import Batch, Learner, Method, Numbers, Seen, TrainState
from calibration.models import FunctionalModel, Output, build_embedded, own_preparation
from calibration.optimiser_steps import averaged
from calibration.row_weights import drawn_by_weight
from calibration.seeds import seeded
from calibration.training_config import TrainingConfig, check_augmentations
from calibration.training_progress import TrainingProgress
from calibration.validation import Measured, measured

TRAINING_LOOP_VERSION = 4
"""Part of every trial's key: raise it when a change to anything but a method, model, optimiser or
metric (these have their own versions) alters the numbers of a training: the loop in here, how
rows are split, transformed and augmented, how random streams are seeded, hand-written
gradients."""
PREDICTION_BATCH = 4096
SNAPSHOTS = 100


class TrainingRun(Batches, TrainingProgress):
    """One network being trained by one method on one split.

    ``run_epoch`` trains one epoch and returns its row of the curve; ``done`` tells when to
    stop; ``predict`` uses the best weights according to the stopping rule. Test data
    cannot be accessed from here: ``Splits`` has none.
    """

    def __init__(
        self,
        method: Method,
        splits: Splits,
        *,
        model: str,
        model_options: dict[str, Any],
        classes: int,
        config: TrainingConfig,
        seed: int,
        device: str | torch.device = "cpu",
    ) -> None:
        self.method = method
        self.architecture = (model, repr(sorted(model_options.items())), classes)
        inputs = method.hyperparameters
        if inputs.optimiser is not None:  # searched: it replaces the spec's
            config = config.model_copy(update={"optimiser": inputs.optimiser})
        self.config = config
        self.seed = seed
        self.device = torch.device(device)
        own = own_preparation(model, model_options)
        self.transform = own or encoded(splits, inputs.numeric_inputs, inputs.input_bins)
        # Images and rows on disk are prepared batch by batch, to save memory.
        self._by_batch = splits.train.inputs.dtype == torch.uint8 or is_mapped(splits.train.inputs)
        self.train_transform = splits.train_transform
        self._by_batch |= self.train_transform is not None  # it gets untransformed rows
        self._by_batch |= own is not None  # resized images would take many times the memory
        if splits.train.inputs.dtype != torch.uint8:
            check_augmentations(config)
        if self._by_batch:
            self.transform = on_device(self.transform, self.device)
        if method.needs_held_out and splits.meta_validation is None:
            raise ValueError(
                f"splits: {type(method).__name__} learns on held-out data and there is none; "
                "split with held_out=True"
            )
        if self.transform is splits.transform and not self._by_batch:
            parts = splits.prepared  # shared by all networks on these rows
        else:
            parts = self._transformed(splits.learned_from)
        self.train, self.validation, *held_out = placed(parts, self.device)
        self.held_out = held_out[0] if held_out else None
        input_shape = tuple(self._prepare(self.train.inputs[:1]).shape[1:])
        with seeded(seed, "initialisation"):
            module = build_embedded(
                model,
                model_options,
                input_shape,
                classes,
                blocks=category_blocks(self.transform),
                width=inputs.category_embedding,
            )
            functional = FunctionalModel(module.to(self.device))
            parameters, buffers = functional.initial()
            samples = len(self.train.labels)
            self._surroundings = surroundings(
                method, config, functional, classes=classes, samples=samples
            )
            self.held_epochs = self._surroundings.held_epochs
            learner = self._surroundings.at(0)
            slots = learner.optimiser.initial(parameters)
            own_state = method.initial(learner, parameters)
            TrainingProgress.__init__(self, TrainState(parameters, buffers, slots, own_state))
        self.numbers = method.numbers(dtype=parameters.dtype, device=self.device)

    @property
    def learner(self) -> Learner:
        """The ``Learner`` for the next epoch's steps."""
        return self._surroundings.at(self.epoch)

    @property
    def done(self) -> bool:
        """Whether all epochs are trained, patience has run out, or the loss is not finite."""
        if self.epoch >= self.config.epochs or self.diverged:
            return True
        patience = self.config.patience
        return (
            patience is not None
            and self.config.stop_on != "none"
            and self.epoch - self.best_epoch >= patience
        )

    @property
    def diverged(self) -> bool:
        """Whether the last epoch's training loss is infinite or NaN."""
        return bool(self.curve) and not math.isfinite(self.curve[-1]["train/loss"])

    @flushed_denormals()
    def run_epoch(self) -> dict[str, float]:
        """Train one epoch and return its row: training averages, and validation if due.

        An epoch is a pass over the training data. With full batches, a method that takes T
        batches at once makes T passes, and the row is that of the last one.
        """
        start = time.perf_counter()
        numbers = self.numbers_now()
        totals = Totals()
        with torch.no_grad(), self._kernels(), seeded(self.seed, "epoch", self.epoch) as generator:
            for window in self.windows(generator):
                self.state, logged = self.method.steps(
                    self.learner, self.state, window, numbers, generator
                )
                totals.add(logged)
        row = self.end_epoch(self.passes(window), totals.means(), numbers)
        self.seconds += time.perf_counter() - start
        return row

    def passes(self, window: list[Batch]) -> int:
        """How many epochs pass with a window of these batches, the last of its epoch."""
        return len(window) if self._full_batch else 1

    def numbers_now(self) -> Numbers:
        """The real-valued hyperparameters for the next epoch's steps."""
        progress = torch.full_like(self.numbers["lr"], self.epoch / self.config.epochs)
        lr = self.numbers["lr"] * self.config.lr_factor(self.epoch)
        return self.numbers | {"lr": lr, "progress": progress}

    def end_epoch(self, passes: int, means: dict[str, float], numbers: Numbers) -> dict[str, float]:
        """Finish an epoch of ``passes`` over the data after its last step; returns its row."""
        self.adapt(passes, numbers)
        return self.record(passes, means, numbers, self.measure() if self.due(passes) else None)

    def adapt(self, passes: int, numbers: Numbers) -> None:
        """Count the epoch, and give the method access to the held-out data."""
        self.epoch += passes
        with torch.no_grad(), self._kernels():
            self.state = self.method.end_epoch(
                self.learner, self.state, self._see_held_out, numbers
            )

    def due(self, passes: int) -> bool:
        """Whether a validation is due now, ``passes`` after the last opportunity."""
        before, every = self.epoch - passes, self.config.evaluate_every
        return _crossed(before, self.epoch, every) or self._last_epoch

    @property
    def evaluated(self) -> TrainState:
        """The state to evaluate: with the averaged parameters, if averages are maintained."""
        state = self.state
        return state._replace(parameters=averaged(state.parameters, state.optimiser))

    def measure(self) -> Measured:
        """Evaluate the current state on the validation rows."""
        output = self.see_validation()
        logits = self.method.map_logits(output.logits, self.state.method)
        refinement = self.config.stop_on == "refinement"
        return measured(self.validation, output, logits, refinement=refinement)

    def see_validation(self) -> Output:
        """The network's output for the validation rows."""
        return self._see(self.evaluated, self.validation)

    def record(
        self, passes: int, means: dict[str, float], numbers: Numbers, found: Measured | None
    ) -> dict[str, float]:
        """Add the epoch's row to the curve, with the validation ``found`` if one was due."""
        row = {"epoch": float(self.epoch), "train/lr": float(numbers["lr"])}
        row |= {f"train/{name}": mean for name, mean in means.items()}
        if found is not None:
            row |= self._validate(numbers, found)
        every = max(1, self.config.epochs // SNAPSHOTS)
        if _crossed(self.epoch - passes, self.epoch, every) or self._last_epoch:
            self._take_snapshot()
        self.curve.append(row)
        return row

    def predict(self, part: Part) -> Tensor:
        """Logits of the best weights for a part with raw inputs, on the CPU."""
        (there,) = placed(self._transformed([part]), self.device)
        return self._logits(self.best, there).cpu()

    def predict_validation(self) -> Tensor:
        """Logits of the best weights for the validation part, on the CPU."""
        return self._logits(self.best, self.validation).cpu()

    def _kernels(self) -> AbstractContextManager[None]:
        return bfloat16_kernels(self.device) if self.config.mixed_precision else nullcontext()

    def _transformed(self, parts: list[Part]) -> list[Part]:
        """Parts in the form in which they are stored: transformed, unless done batch by batch."""
        return parts if self._by_batch else [part.transformed(self.transform) for part in parts]

    @property
    def _last_epoch(self) -> bool:
        return self.epoch >= self.config.epochs

    @torch.no_grad()
    def _see(self, state: TrainState, part: Part) -> Output:
        rows = self.learner.model.rows_at_once or PREDICTION_BATCH
        chunks = [
            self.learner.forward(
                state.parameters, state.buffers, self._prepare(inputs), training=False
            )[0]
            for inputs in in_pieces(part.inputs, rows)
        ]
        return Output(*(torch.cat(pieces) for pieces in zip(*chunks, strict=True)))

    def _see_held_out(self) -> Seen:
        assert self.held_out is not None, "only methods that declare needs_held_out may ask"
        output, labels = self._see(self.state, self.held_out), self.held_out.labels
        if self.held_out.weights is None:
            return Seen(output, labels)
        rows = drawn_by_weight(self.held_out.weights, len(labels), 0.5).to(self.device)
        return Seen(Output(*(values[rows] for values in output)), labels[rows])

    def _logits(self, state: TrainState, part: Part) -> Tensor:
        return self.method.map_logits(self._see(state, part).logits, state.method)

    def _validate(self, numbers: Numbers, found: Measured) -> dict[str, float]:
        labels, row = self.validation.labels, dict(found.row)
        if not row:
            return {"validation/nll": math.inf}
        self._look(found.logits, labels)
        state = self.evaluated
        rule = self.config.stop_on
        latest = rule == "none" or self.config.stop_ties == "latest"
        tie = -float(self.epoch) if latest else row["nll"]
        score = (0.0 if rule == "none" else row[rule], tie)
        if score < self.best_score:
            self.best_score, self.best_epoch = score, self.epoch
            self.best = state
        with torch.no_grad():
            described = self.method.describe(state, Seen(found.output, labels), numbers)
        row |= {name: float(value) for name, value in described.items()}
        return {f"validation/{name}": value for name, value in row.items()}


class Totals:
    """Sums of the values that the steps of an epoch log."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, logged: dict[str, Tensor]) -> None:
        """Add one step's values; names that this step does not log are dropped."""
        sums = self.sums
        self.sums = {k: sums[k] + v if k in sums else v for k, v in logged.items()}
        self.count += 1

    def means(self) -> dict[str, float]:
        """The averages over the steps."""
        return {name: float(total) / self.count for name, total in self.sums.items()}


def _crossed(before: int, after: int, every: int) -> bool:
    """Whether a multiple of ``every`` lies in (before, after]."""
    return after // every > before // every
