"""Evaluate all members of a cohort on their validation rows at once."""

from __future__ import annotations

import torch

from calibration.cohort_step import same_bits
from calibration.metrics.panels import BatchError
from calibration.models import Output
from calibration.steady import Unsteady
from calibration.training import PREDICTION_BATCH, TrainingRun
from calibration.validation import Measured, measured_together

UNBATCHED = (BatchError, RuntimeError, IndexError)
"""What a metric or model that cannot be batched raises: by our check, or by torch's."""


def measured_by_all(runs: list[TrainingRun]) -> list[Measured]:
    """Evaluate every member, in one pass if the network and the metrics allow it."""
    with torch.no_grad():
        outputs = _outputs(runs)
        logits = [
            run.method.map_logits(output.logits, run.state.method)
            for run, output in zip(runs, outputs, strict=True)
        ]
        parts = [run.validation for run in runs]
        refinement = runs[0].config.stop_on == "refinement"
        return measured_together(parts, outputs, logits, refinement=refinement)


def _outputs(runs: list[TrainingRun]) -> list[Output]:
    """The outputs of the members' networks for their validation rows."""
    dense, parts = runs[0].learner.dense, [run.validation for run in runs]
    inputs = parts[0].inputs
    if dense is None or not runs[0].prepared or len(inputs) > PREDICTION_BATCH:
        return [run.see_validation() for run in runs]
    if all(part is parts[0] for part in parts):
        rows = inputs.expand(len(runs), *inputs.shape)
    else:
        rows = torch.stack([part.inputs for part in parts])
    made = dense.forward(torch.stack([run.evaluated.parameters for run in runs]), rows)
    return list(map(Output, made.logits, made.features))


def measured_equally(runs: list[TrainingRun], alone: dict[int, Measured]) -> bool:
    """Whether evaluating the members together gives the same results as evaluating them alone."""
    with Unsteady(len(runs)) as unsteady:
        together = measured_by_all(runs)
    if unsteady.found:
        return False
    return same_bits([one[:2] for one in together], [alone[id(run)][:2] for run in runs]) and repr(
        [one.row for one in together]
    ) == repr([alone[id(run)].row for run in runs])
