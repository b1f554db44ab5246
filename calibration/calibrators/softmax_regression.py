"""Maximum-likelihood fits of maps whose logits are affine in their parameters.

With features x (N, K) and parameters θ the calibrated logits are x + Aθ, so that θ = 0 is
"no change". The objective

    mean NLL of softmax(x + Aθ) + Σ ridge · θ²  (by weight, if rows have weights)

is convex, with exactly one minimum where the ridge is positive. It is minimised by a
trust-region Newton method with conjugate gradients, which never increases it and needs
only Hessian products Hv = Aᵀ(p ⊙ u − p·(pᵀu))/N + 2 ridge v, u = Av.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from calibration.calibrators.calibrator import Calibrator, Floats, rows_at_once
from calibration.calibrators.temperature import best_temperature
from calibration.complexity import CalibratorComplexity

GRADIENT_TOLERANCE = 1e-6


class AffineLogits(ABC):
    """The linear map A from parameters to changes of the logits, given features x (N, K)."""

    @abstractmethod
    def change(self, x: Tensor, theta: Tensor) -> Tensor:
        """Aθ, of shape (N, K)."""

    @abstractmethod
    def adjoint(self, x: Tensor, residual: Tensor) -> Tensor:
        """Aᵀr, of the shape of θ, for r of shape (N, K)."""


class DiagonalLogits(AffineLogits):
    """Aθ = v ⊙ x + b with θ = (v, b)."""

    def change(self, x: Tensor, theta: Tensor) -> Tensor:
        """v ⊙ x + b."""
        v, b = theta.chunk(2)
        return torch.addcmul(b, x, v)

    def adjoint(self, x: Tensor, residual: Tensor) -> Tensor:
        """(Σ r ⊙ x, Σ r) over the samples."""
        return torch.cat([(residual * x).sum(0), residual.sum(0)])


class FullLogits(AffineLogits):
    """Aθ = Mx + b with θ = (M row by row, b)."""

    def change(self, x: Tensor, theta: Tensor) -> Tensor:
        """Mx + b."""
        classes = x.shape[1]
        return torch.addmm(theta[classes**2 :], x, theta[: classes**2].view(classes, classes).T)

    def adjoint(self, x: Tensor, residual: Tensor) -> Tensor:
        """(Σ r xᵀ, Σ r) over the samples."""
        return torch.cat([(residual.T @ x).flatten(), residual.sum(0)])


class PenalisedNLL:
    """The objective, its gradient and its Hessian products, as functions of θ."""

    def __init__(
        self,
        logits: AffineLogits,
        features: Tensor,
        labels: Tensor,
        ridge: Tensor,
        weights: Tensor | None = None,
    ) -> None:
        self.logits = logits
        self.ridge = ridge
        self.samples = len(labels) if weights is None else float(weights.sum())
        rows = rows_at_once(features)
        self.blocks = list(zip(features.split(rows), labels.split(rows), strict=True))
        self.weights: list[Tensor | None] = [None] * len(self.blocks)
        if weights is not None:
            self.weights = list(weights[:, None].split(rows))
        self.at: Floats = np.empty(0)
        self.probabilities: list[Tensor] = []

    def value_and_gradient(self, at: Floats) -> tuple[float, Floats]:
        """The objective and its gradient; the probabilities are kept for the Hessian."""
        theta = torch.from_numpy(at)
        loss = self.samples * (self.ridge * theta.square()).sum()
        gradient = 2 * self.samples * self.ridge * theta
        self.at, self.probabilities = at.copy(), []
        for (x, labels), weight in zip(self.blocks, self.weights, strict=True):
            log_p = torch.log_softmax(x + self.logits.change(x, theta), 1)
            true = log_p.gather(1, labels[:, None])
            loss -= true.sum() if weight is None else (weight * true).sum()
            p = log_p.exp()
            self.probabilities.append(p)
            residual = p.clone()
            residual[torch.arange(len(labels)), labels] -= 1
            if weight is not None:
                residual *= weight
            gradient += self.logits.adjoint(x, residual)
        return float(loss) / self.samples, (gradient / self.samples).numpy()

    def hessian_product(self, at: Floats, direction: Floats) -> Floats:
        """Hv at ``at``."""
        # After a rejected step, the stored probabilities are those of the rejected point.
        if not np.array_equal(at, self.at):
            self.value_and_gradient(at)
        v = torch.from_numpy(direction)
        product = 2 * self.samples * self.ridge * v
        for (x, _), p, weight in zip(self.blocks, self.probabilities, self.weights, strict=True):
            weighted = p * self.logits.change(x, v)
            weighted.addcmul_(p, weighted.sum(1, keepdim=True), value=-1)
            if weight is not None:
                weighted *= weight
            product += self.logits.adjoint(x, weighted)
        return (product / self.samples).numpy()

    def minimise(self) -> tuple[Tensor, bool]:
        """The best θ, and whether the gradient's norm is at most 1e-6 there."""
        found = optimize.minimize(
            self.value_and_gradient,
            np.zeros(len(self.ridge)),
            jac=True,
            hessp=self.hessian_product,
            method="trust-ncg",
            options={"gtol": GRADIENT_TOLERANCE, "maxiter": 200},
        )
        return torch.from_numpy(found.x), bool(found.success)


class AffineScaling(Calibrator):
    """A calibrator whose logits, after the best temperature, are affine in its parameters."""

    complexity = CalibratorComplexity.PER_CLASS
    scaling = True
    keeps_argmax = False
    weighted = True
    affine: ClassVar[AffineLogits]

    temperature: float
    samples: float
    """The rows fitted on, or the sum of their weights."""
    theta: Tensor

    def _fit(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        self.temperature, scaled = best_temperature(logits, labels, weights)
        self.samples, classes = logits.shape
        if weights is not None:
            self.samples = float(weights.sum())
        objective = PenalisedNLL(
            self.affine, self._features(logits), labels, self._ridge(classes), weights
        )
        self.theta, minimised = objective.minimise()
        self.converged = scaled and minimised

    def _apply(self, logits: Tensor) -> Tensor:
        x = self._features(logits)
        return torch.softmax(x + self.affine.change(x, self.theta), 1)

    @abstractmethod
    def _features(self, logits: Tensor) -> Tensor:
        """x (N, K), after temperature scaling."""

    @abstractmethod
    def _ridge(self, classes: int) -> Tensor:
        """The penalty on the square of every entry of θ."""

    def _centred(self, logits: Tensor) -> Tensor:
        """(z − mean z)/T per row.

        Probabilities determine logits only up to a constant per row; without it a map is the
        same on logits and on log-probabilities.
        """
        return (logits - logits.mean(1, keepdim=True)) / self.temperature

    def _smoothed(self, logits: Tensor) -> Tensor:
        """log of softmax(z/T) mixed with 1/(N+1) of the uniform distribution.

        The mixture bounds the features below by −log(K(N+1)), however extreme the logits.
        """
        weight = 1 / (self.samples + 1)
        p = torch.softmax(logits / self.temperature, 1)
        return torch.log((1 - weight) * p + weight / logits.shape[1])
