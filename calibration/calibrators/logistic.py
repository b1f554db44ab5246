"""Penalised logistic regression of a few parameters, by Newton's method."""

from __future__ import annotations

import numpy as np

from calibration.calibrators.calibrator import Floats

MAX_STEPS = 200
DECREMENT_TOLERANCE = 1e-12
# Samples at a time, so that what is computed stays in the cache.
BLOCK = 4096
MANY, SHARE = 10_000, 10


def logistic_regression(
    features: Floats,
    target: Floats,
    penalty: Floats,
    centre: Floats,
    *,
    start: Floats | None = None,
    weights: Floats | None = None,
) -> tuple[Floats, bool]:
    """The θ of least objective, and whether Newton's method converged.

    The objective is the mean binary cross-entropy of σ(θ·f) against targets in [0, 1] plus
    ½ (θ − centre)ᵀ P (θ − centre), for features f (d, N), P = ``penalty`` (d, d). Steps are
    halved until the objective falls; convergence means that a further step would gain less
    than 1e-12. ``start`` is a θ nearby, if one is known. ``weights`` (N,) weigh the mean.
    """
    problem = (features, target, penalty, centre, weights)
    theta = _start(*problem) if start is None else start
    value, gradient, hessian = _expand(theta, *problem)
    for _ in range(MAX_STEPS):
        step = _newton_step(gradient, hessian)
        gain = gradient @ step
        if gain < DECREMENT_TOLERANCE:
            return theta, True
        scale = 1.0
        trial = _expand(theta - step, *problem)
        while not trial[0] <= value - 1e-4 * scale * gain:
            scale /= 2
            if scale < 1e-10:
                return theta, False
            trial = _expand(theta - scale * step, *problem)
        theta = theta - scale * step
        value, gradient, hessian = trial
    return theta, False


def _start(
    features: Floats, target: Floats, penalty: Floats, centre: Floats, weights: Floats | None
) -> Floats:
    """0, where the curvature is largest: far out, Newton's steps would be too long.

    Of many samples, the solution of a tenth of them: three steps over all are left of ten.
    """
    if len(target) > MANY and weights is None:
        few = np.ascontiguousarray(features[:, ::SHARE])
        theta, converged = logistic_regression(few, target[::SHARE], penalty, centre)
        if converged:
            return theta
    return np.zeros(len(features))


def shrunk_logistic_regression(
    features: Floats, target: Floats, centre: Floats, weights: Floats | None = None
) -> tuple[Floats, bool]:
    """Logistic regression with a standard normal prior around ``centre``.

    The prior is worth one observation among N; it keeps the optimum finite where the target
    is constant or separable.
    """
    samples = len(target) if weights is None else float(weights.sum())
    penalty = np.eye(len(centre)) / samples
    return logistic_regression(features, target, penalty, centre, weights=weights)


def _expand(
    theta: Floats,
    features: Floats,
    target: Floats,
    penalty: Floats,
    centre: Floats,
    weights: Floats | None,
) -> tuple[float, Floats, Floats]:
    """Value, gradient (d,) and Hessian (d, d) of the objective at θ."""
    samples = len(target) if weights is None else float(weights.sum())
    pull = penalty @ (theta - centre)
    value, gradient, hessian = 0.5 * float((theta - centre) @ pull), pull, penalty
    for start in range(0, len(target), BLOCK):
        f, t = features[:, start : start + BLOCK], target[start : start + BLOCK]
        logit = theta @ f
        small = np.exp(-np.abs(logit))
        loss = np.log1p(small) + np.maximum(logit, 0) - t * logit
        p = np.where(logit >= 0, 1.0, small) / (1 + small)
        residual, curvature = p - t, small / np.square(1 + small)
        if weights is not None:
            weight = weights[start : start + BLOCK]
            loss, residual, curvature = weight * loss, weight * residual, weight * curvature
        value += float(loss.sum()) / samples
        gradient = gradient + f @ residual / samples
        hessian = hessian + (f * curvature) @ f.T / samples
    return value, gradient, hessian


def _newton_step(gradient: Floats, hessian: Floats) -> Floats:
    # Features of very different size (s and s²) would drown each other in the solve: scale
    # the Hessian to a unit diagonal first. The jitter only touches the step, not the optimum.
    size = np.sqrt(np.maximum(hessian.diagonal(), 1e-300))
    system = hessian / np.outer(size, size) + 1e-12 * np.eye(len(size))
    step: Floats = np.linalg.solve(system, gradient / size) / size
    return step
