"""Check that the export is what was measured: code or environment may have changed since."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from calibration.data import Splits
from calibration.deployment import Classifier
from calibration.evaluation import LabelledLogits, predictions_of, scores
from sweeps.engine.environment import environment
from sweeps.export.choice import Chosen
from sweeps.store import StoreError

CHECKED_ROWS = 512
_SAME, _ELSEWHERE, _ROUGH = 1e-5, 1e-3, 1e-2
"""How far a probability may be from the record's: with the same version of torch and kind of
machine; with another, which rounds differently; and for training on a GPU or in bfloat16, which
a CPU cannot reproduce any closer."""
METRIC_TOLERANCE = 1e-6
_REMEDY = "Export with the code and the packages of the sweep, or run it again in another store"


def check_network(classifier: Classifier, splits: Splits, logits: Tensor, chosen: Chosen) -> None:
    """Raise ``StoreError`` unless the network gives the recorded validation logits."""
    found = classifier.logits(splits.choice.inputs[:CHECKED_ROWS])
    apart = (found.double().softmax(-1) - logits[:CHECKED_ROWS].double().softmax(-1)).abs().max()
    allowed = _tolerance(chosen)
    if not apart <= allowed:
        raise StoreError(
            f"trial {chosen.trial.key}: the probabilities of the network built from its record "
            f"differ from the recorded ones by up to {float(apart):.2g}; rounding allows "
            f"{allowed:g}; has the code of {_code(chosen)} changed{_changes(chosen)}? {_REMEDY}"
        )


def _code(chosen: Chosen) -> str:
    config = chosen.trial.config
    network = [] if config.model is None else [config.model.name]
    return " or ".join(repr(name) for name in (*network, config.method))


def check_calibrator_output(
    part: str, output: Tensor, rows: LabelledLogits, bins: int, chosen: Chosen
) -> None:
    """Raise ``StoreError`` unless the calibrator's output has the recorded metrics.

    ``part`` is ``test``, for the calibrator itself, or ``validation``, for the cross-fitted ones.
    """
    recorded = chosen.evaluation.test if part == "test" else chosen.evaluation.validation
    found = scores(predictions_of(output, rows), bins=bins)
    differing = [
        f"{name} is {found[name]:.8g}, on record {recorded[name]:.8g}"
        for name in found
        if name in recorded and not _agree(found[name], recorded[name])
    ]
    if differing:
        raise StoreError(
            f"trial {chosen.trial.key}: the calibrator {chosen.calibrator!r}, fitted again to the "
            f"recorded predictions, is not the one that was measured; on {part} rows "
            f"{'; '.join(differing[:3])}. Its code or the environment has changed since the sweep"
            f"{_changes(chosen)}. {_REMEDY}"
        )


def _agree(found: float, recorded: float) -> bool:
    if math.isnan(found) or math.isnan(recorded):
        return math.isnan(found) and math.isnan(recorded)
    return math.isclose(found, recorded, rel_tol=METRIC_TOLERANCE, abs_tol=METRIC_TOLERANCE)


def _tolerance(chosen: Chosen) -> float:
    config = chosen.trial.config
    if config.device != "cpu" or config.training.mixed_precision:
        return _ROUGH
    then, now = _then(chosen), environment()
    if config.encoder:  # rows were embedded in other batches, which may round differently
        return _ELSEWHERE
    same = all(then.get(name) == now[name] for name in ("torch", "machine", "instructions"))
    return _SAME if same else _ELSEWHERE


def _changes(chosen: Chosen) -> str:
    """The known differences from the sweep, in brackets."""
    then, now = _then(chosen), environment()
    changed = [
        f"{name} {then[name]} then, {now[name]} now"
        for name in now
        if then.get(name) and now[name] and then[name] != now[name]
    ]
    return f" ({'; '.join(changed)})" if changed else ""


def _then(chosen: Chosen) -> Mapping[str, str]:
    return chosen.record.environment
