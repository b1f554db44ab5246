"""The contract of post-hoc calibrators, as a check."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from calibration.calibrators import Calibrator
from calibration.calibrators.calibrator import nll
from calibration.calibrators.saving import load_calibrator, save_calibrator
from calibration.testing.contract import ContractError, require, require_complexity, require_error

_SUM_TOLERANCE = 1e-9


def check_calibrator(calibrator: type[Calibrator]) -> None:
    """Check that a calibrator satisfies the contract of ``Calibrator``.

    Shapes, types and sums of the output; pickling and saving; determinism, whatever was fitted
    before and whatever the state of the random generators; the same result from float32 and
    float64 logits; NLL on the fitting data never above that of plain softmax, if ``scaling``;
    the predicted class still the most likely, if ``keeps_argmax``; errors for bad input; for 2,
    3 and 10 classes, absent classes, fewer samples than classes, one sample, samples all right
    or all wrong, constant logits and logits of ±1e4.

    Raises ``ContractError`` at the first broken rule.
    """
    _check_declaration(calibrator)
    _check_refusals(calibrator)
    for situation, logits, labels in _situations():
        about = f"{calibrator.__name__} ({situation})"
        fitted = calibrator()
        require(fitted.fit(logits, labels) is fitted, about, "fit must return self")
        require(isinstance(fitted.converged, bool), about, "fit must set converged to a bool")
        _check_output(fitted, logits, about)
        _check_output(fitted, _fresh_logits(logits), about)
        _check_promises(fitted, logits, labels, about)
        _check_repeatable(fitted, logits, labels, about)


def _situations() -> Iterator[tuple[str, Tensor, Tensor]]:
    """Fitting data: a description, float32 logits (N, K) and labels (N,)."""
    generator = torch.Generator().manual_seed(0)
    for classes in (2, 3, 10):
        for samples, scale, word in ((211, 2.5, "over"), (97, 0.4, "under"), (97, 1.0, "rightly")):
            z = 2 * torch.randn(samples, classes, generator=generator)
            labels = torch.multinomial(z.softmax(1), 1, generator=generator).squeeze(1)
            yield f"{samples} × {classes}, {word} confident", scale * z, labels
        z = torch.randn(41, classes, generator=generator)
        random = torch.randint(classes, (41,), generator=generator)
        yield f"41 × {classes}, all right", z, z.argmax(1)
        yield f"41 × {classes}, all wrong", z, z.argmin(1)
        yield f"41 × {classes}, one class present", z, torch.zeros_like(random)
        yield f"41 × {classes}, constant logits", torch.zeros_like(z), random
        yield f"41 × {classes}, logits of ±1e4", torch.where(z > 0, 1e4, -1e4), random
        yield f"one sample of {classes} classes", z[:1], random[:1]
    yield "4 samples of 10 classes", z[:4], random[:4]


def _fresh_logits(logits: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return 3 * torch.randn(23, logits.shape[1], generator=generator)


def _check_declaration(calibrator: type[Calibrator]) -> None:
    name = calibrator.__name__
    require(issubclass(calibrator, Calibrator), name, "must be a subclass of Calibrator")
    description = getattr(calibrator, "description", "")
    one_line = isinstance(description, str) and description != "" and "\n" not in description
    require(one_line, name, "description must be one line")
    for flag in ("scaling", "keeps_argmax", "fast", "top_label"):
        declared = getattr(calibrator, flag, None)
        require(isinstance(declared, bool), name, f"{flag} must be declared True or False")
    require_complexity(calibrator.complexity, name)
    require(
        not (calibrator.scaling and calibrator.top_label),
        name,
        "scaling promises something about NLL, which a top_label calibrator does not have",
    )


def _check_output(fitted: Calibrator, logits: Tensor, about: str) -> None:
    result = fitted(logits)
    shape = (len(logits),) if fitted.top_label else tuple(logits.shape)
    found = tuple(result.shape)
    require(found == shape, about, f"the call must give shape {shape}, found {found}")
    require(result.dtype == torch.float64, about, f"must give float64, found {result.dtype}")
    require(bool(torch.isfinite(result).all()), about, "must give finite numbers")
    require(bool(((result >= 0) & (result <= 1)).all()), about, "must give numbers in [0, 1]")
    if not fitted.top_label:
        off = float((result.sum(1) - 1).abs().max())
        require(off <= _SUM_TOLERANCE, about, f"rows must sum to 1, one is off by {off:.1e}")


def _check_promises(fitted: Calibrator, logits: Tensor, labels: Tensor, about: str) -> None:
    before = logits.double().softmax(1)
    if fitted.top_label:
        return
    if fitted.scaling:
        start, end = nll(before, labels), nll(fitted(logits), labels)
        broken = f"scaling, but NLL on the fitting data rose from {start[1]:.6f} to {end[1]:.6f}"
        require(end <= start, about, broken)
    if fitted.keeps_argmax:
        for z in (logits, _fresh_logits(logits)):
            after = fitted(z)
            predicted = after.gather(1, z.argmax(1, keepdim=True))
            kept = bool((predicted == after.amax(1, keepdim=True)).all())
            require(kept, about, "keeps_argmax, but a predicted class is no longer the likeliest")


def _check_repeatable(fitted: Calibrator, logits: Tensor, labels: Tensor, about: str) -> None:
    fresh = _fresh_logits(logits)
    expected = fitted(fresh)
    restored = pickle.loads(pickle.dumps(fitted))
    require(torch.equal(restored(fresh), expected), about, "pickling must change nothing")
    require(
        torch.equal(_saved(fitted, about)(fresh), expected), about, "saving must change nothing"
    )
    with torch.random.fork_rng():
        torch.manual_seed(12345)
        # The same numbers as float64, in an object previously fitted to something else.
        again = type(fitted)().fit(fresh, fresh.argmin(1)).fit(logits.double(), labels)
    same = torch.allclose(again(fresh.double()), expected, rtol=0, atol=1e-9)
    require(same, about, "a second fit, to the same logits as float64, must give the same")
    tripled = fitted(fresh.repeat(3, 1))[: len(fresh)]
    same = torch.allclose(tripled, expected, rtol=0, atol=1e-12)
    require(same, about, "what a row becomes must not depend on the other rows of the call")


def _saved(fitted: Calibrator, about: str) -> Calibrator:
    try:
        return load_calibrator(json.loads(json.dumps(save_calibrator(fitted))))
    except ValueError as error:
        raise ContractError(f"{about}: must be one that can be saved: {error}") from error


def _check_refusals(calibrator: type[Calibrator]) -> None:
    about = calibrator.__name__
    logits = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(12) % 3
    spoilt = logits.clone()
    spoilt[3, 1] = torch.nan
    for argument, what, z, y in (
        ("logits", "one-dimensional logits", logits[:, 0], labels),
        ("logits", "logits of one class", logits[:, :1], labels),
        ("logits", "no samples", logits[:0], labels[:0]),
        ("logits", "NaN in logits", spoilt, labels),
        ("labels", "a label too few", logits, labels[:-1]),
        ("labels", "a label out of range", logits, labels + 1),
        ("labels", "a negative label", logits, labels - 1),
        ("labels", "labels of a float type", logits, labels.double()),
    ):
        refused = partial(calibrator().fit, z, y)
        require_error(refused, ValueError, (argument,), about, f"fit, given {what},")
    unfitted = partial(calibrator(), logits)
    require_error(unfitted, RuntimeError, ("fit",), about, "a call before fit")
    fitted = calibrator().fit(logits, labels)
    for what, z in (("another number of classes", logits[:, :2]), ("NaN in logits", spoilt)):
        require_error(partial(fitted, z), ValueError, ("logits",), about, f"a call with {what}")
