"""The progress of a training: states, curve and snapshots, and how to save and restore them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from calibration.methods import Method, TrainState
from calibration.restoring import as_value_error, check_fit, tensors, whole
from calibration.training_config import TrainingConfig

CHECKPOINT_FORMAT = 3
SNAPSHOT_ROWS = 5000


class TrainingProgress:
    """The part of a ``TrainingRun`` that changes while it trains, and nothing else."""

    method: Method
    config: TrainingConfig
    device: torch.device

    def __init__(self, initial: TrainState) -> None:
        self.epoch = 0
        self.seconds = 0.0
        self.state = initial
        self.best = initial
        self.best_score = (math.inf, math.inf)  # the rule's value, and a tie-breaker
        self.best_epoch = 0
        self.curve: list[dict[str, float]] = []
        self.snapshots: list[dict[str, Tensor]] = []
        self.looks: list[dict[str, Tensor]] = []

    def network(self) -> dict[str, dict[str, Tensor] | Tensor]:
        """The part of the best state that ``predict`` needs, for storage; see ``load_network``."""
        method = self.best.method
        # Only what predictions need: a meta-network is dropped after training.
        kept = {name: method[name] for name in self.method.inference_state if name in method}
        return {"parameters": self.best.parameters, "buffers": self.best.buffers, "method": kept}

    def load_network(self, saved: dict[str, Any]) -> None:
        """Predict with the result of ``network`` of a run of the same configuration.

        Raises ``ValueError`` for anything else, and leaves the run unchanged.
        """
        with as_value_error("network"):
            kept = saved.get("method", {})
            state = TrainState(saved["parameters"], saved["buffers"], {}, kept)
            check_fit(state, self.state._replace(optimiser={}))
            self.best = _moved(state, self.device)

    def history(self) -> dict[str, Tensor]:
        """The method's snapshots stacked over time, and the epochs at which they were taken."""
        return _stacked(self.snapshots)

    def reliability(self) -> dict[str, Tensor]:
        """Validation confidence and correctness (T, rows), kept at each ``epoch`` (T)."""
        return _stacked(self.looks)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as tensors and plain values (loads with weights_only)."""
        return {
            "format": CHECKPOINT_FORMAT,
            "state": self.state._asdict(),
            "best": self.best._asdict()
            | {"score": list(self.best_score), "epoch": self.best_epoch},
            "snapshots": list(self.snapshots),
            "looks": list(self.looks),
            "epoch": self.epoch,
            "seconds": self.seconds,
            "curve": list(self.curve),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from the ``state_dict`` of a run of the same configuration.

        Raises ``ValueError`` for anything else, and leaves the run unchanged. Of a method's own
        state, only the types are checked: its names and shapes may change during training.
        """
        with as_value_error("state"):
            if saved["format"] != CHECKPOINT_FORMAT:
                raise ValueError(f"format: found {saved['format']!r}, not {CHECKPOINT_FORMAT}")
            best = dict(saved["best"])
            measured, tie = best.pop("score")
            score, best_epoch = (float(measured), float(tie)), whole(best.pop("epoch"))
            states = TrainState(**saved["state"]), TrainState(**best)
            for state in states:
                check_fit(state, self.state)
            state, best_state = (_moved(state, self.device) for state in states)
            snapshots = [tensors(snapshot) for snapshot in saved["snapshots"]]
            looks = [tensors(look) for look in saved["looks"]]
            curve = [{str(name): float(v) for name, v in row.items()} for row in saved["curve"]]
            epoch, seconds = whole(saved["epoch"]), float(saved["seconds"])
            reached = whole(curve[-1]["epoch"]) if curve else 0
            if not best_epoch <= epoch == reached <= self.config.epochs or not seconds >= 0:
                raise ValueError(f"epoch: found {epoch}, a curve to {reached}, {seconds} s")
        self.epoch, self.seconds, self.curve = epoch, seconds, curve
        self.state, self.snapshots, self.looks = state, snapshots, looks
        self.best, self.best_score, self.best_epoch = best_state, score, best_epoch

    def _look(self, logits: Tensor, labels: Tensor) -> None:
        """Keep validation predictions if the next of the ``reliability_snapshots`` is due."""
        due = self.epoch * self.config.reliability_snapshots / self.config.epochs
        if due < len(self.looks) + 1:
            return
        confidence, predicted = logits.softmax(-1).max(-1)
        self.looks.append(self._now({"confidence": confidence, "correct": predicted == labels}))

    def _take_snapshot(self) -> None:
        if taken := self.method.snapshot(self.state):
            self.snapshots.append(self._now(taken))

    def _now(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        """The values with their epoch, on the CPU and thinned to ``SNAPSHOT_ROWS``."""
        rows = {
            name: _thinned(value.detach().cpu(), SNAPSHOT_ROWS) for name, value in values.items()
        }
        return {"epoch": torch.tensor(self.epoch)} | rows


def _stacked(snapshots: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    names = snapshots[0].keys() if snapshots else ()
    return {name: torch.stack([taken[name] for taken in snapshots]) for name in names}


def _thinned(values: Tensor, limit: int) -> Tensor:
    """At most ``limit`` rows, evenly spaced: histories of large training sets stay small."""
    step = -(-len(values) // limit)
    return values[::step].clone()


def _moved(state: TrainState, device: torch.device) -> TrainState:
    def move(values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {k: v.to(device) for k, v in values.items()}

    return TrainState(
        state.parameters.to(device), move(state.buffers), move(state.optimiser), move(state.method)
    )
