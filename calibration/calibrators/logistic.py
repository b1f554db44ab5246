"""Penalised logistic regression of a few parameters, by Newton's method."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibration.calibrators.calibrator import Floats

MAX_STEPS = 200
DECREMENT_TOLERANCE = 1e-12
# Samples at a time, so that intermediate results stay in the cache.
BLOCK = 4096
MANY, SHARE = 10_000, 10


def logistic_regression(
    features: Floats,
    target: Floats,
    penalty: Floats,
    centre: Floats,
    *,
    weights: Floats | None = None,
) -> tuple[Floats, bool]:
    """The θ that minimises the objective, and whether Newton's method converged.

    The objective is the mean binary cross-entropy of σ(θ·f) against targets in [0, 1] plus
    ½ (θ − centre)ᵀ P (θ − centre), for features f (d, N), P = ``penalty`` (d, d). Steps are
    halved until the objective falls; convergence means that a further step would gain less
    than 1e-12. ``weights`` (N,) are those of the mean.
    """
    weighing = None if weights is None else weights[None]
    theta, converged = logistic_regressions(
        features[None], target[None], penalty, centre, weights=weighing
    )
    return theta[0], bool(converged[0])


def logistic_regressions(
    features: Floats,
    target: Floats,
    penalty: Floats,
    centre: Floats,
    *,
    weights: Floats | None = None,
    start: Floats | None = None,
) -> tuple[Floats, NDArray[np.bool_]]:
    """The θ (B, d) of B regressions solved at once, and which of them converged.

    Takes features (B, d, N), targets and weights (B, N); penalty and centre are shared.
    ``start`` (B, d) is a nearby θ, if one is known.
    """
    problem = (features, target, penalty, centre, weights)
    found = _start(*problem) if start is None else start.copy()
    converged = np.zeros(len(found), dtype=bool)
    # Regressions still moving: their numbers, and the fraction of the last step they took.
    moving, scale, theta = np.arange(len(found)), np.ones(len(found)), found
    value, gradient, hessian = _expand(theta, *problem)
    for _ in range(MAX_STEPS):
        step = _newton_step(gradient, hessian)
        gain = (gradient * step).sum(-1)
        near = gain < DECREMENT_TOLERANCE
        converged[moving[near]] = True
        on = ~near & (scale > 0)
        if not on.any():
            break
        if not on.all():
            moving, theta, value, step, gain = (v[on] for v in (moving, theta, value, step, gain))
            left = None if weights is None else weights[moving]
            problem = (features[moving], target[moving], penalty, centre, left)
        scale = np.ones(len(moving))
        trial = _expand(theta - step, *problem)
        while (failing := (scale > 0) & ~(trial[0] <= value - 1e-4 * scale * gain)).any():
            scale[failing] /= 2
            scale[scale < 1e-10] = 0
            trial = _expand(theta - scale[:, None] * step, *problem)
        found[moving] = theta = theta - scale[:, None] * step
        value, gradient, hessian = trial
    return found, converged


def _start(
    features: Floats, target: Floats, penalty: Floats, centre: Floats, weights: Floats | None
) -> Floats:
    """θ = 0, where the curvature is largest: far away, Newton's steps would be too long.

    With many samples, the solution for a tenth of them: this leaves three of ten steps over all.
    """
    zero = np.zeros(features.shape[:2])
    few = None if weights is None else weights[:, ::SHARE]
    if features.shape[2] <= MANY or (few is not None and not few.any(-1).all()):
        return zero
    theta, converged = logistic_regressions(
        np.ascontiguousarray(features[..., ::SHARE]),
        target[:, ::SHARE],
        penalty,
        centre,
        weights=few,
    )
    return np.where(converged[:, None], theta, zero)


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
) -> tuple[Floats, Floats, Floats]:
    """Values (B,), gradients (B, d) and Hessians (B, d, d) of the objectives at θ (B, d)."""
    samples = target.shape[1] if weights is None else weights.sum(-1)[:, None]
    pull = (theta - centre) @ penalty
    value, gradient = 0.5 * ((theta - centre) * pull).sum(-1), pull
    hessian = np.broadcast_to(penalty, (len(theta), *penalty.shape))
    for start in range(0, target.shape[1], BLOCK):
        rows = slice(start, start + BLOCK)
        f, t = features[..., rows], target[:, rows]
        logit = (theta[:, None, :] @ f)[:, 0]
        small = np.exp(-np.abs(logit))
        loss = np.log1p(small) + np.maximum(logit, 0) - t * logit
        p = np.where(logit >= 0, 1.0, small) / (1 + small)
        share = 1 / samples if weights is None else weights[:, rows] / samples
        residual, curvature = share * (p - t), share * small / np.square(1 + small)
        value = value + (share * loss).sum(-1)
        gradient = gradient + (f @ residual[..., None])[..., 0]
        hessian = hessian + (f * curvature[:, None]) @ f.swapaxes(1, 2)
    return value, gradient, hessian


def _newton_step(gradient: Floats, hessian: Floats) -> Floats:
    # Features of very different scale (s and s²) make the solve ill-conditioned: first scale
    # the Hessian to a unit diagonal. The jitter affects only the step, not the optimum.
    size = np.sqrt(np.maximum(np.diagonal(hessian, axis1=1, axis2=2), 1e-300))
    system = hessian / (size[:, :, None] * size[:, None, :]) + 1e-12 * np.eye(size.shape[1])
    step: Floats = np.linalg.solve(system, (gradient / size)[..., None])[..., 0] / size
    return step
