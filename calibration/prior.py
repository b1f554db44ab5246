"""Correction of probabilities for a known deployment prior.

A classifier that is calibrated for class frequencies π is not calibrated for class frequencies
π′, even if the rows of each class have the same distribution in both cases (label shift). There,

    p′(k | x) ∝ p(k | x) · π′(k)/π(k)

is (Saerens, Latinne & Decaestecker 2002, Eq. 2.4). π is that of the rows it was calibrated on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

_ROUNDING = 1e-6


class Prior(BaseModel):
    """The class frequencies of the rows used for calibration, and those in deployment."""

    model_config = ConfigDict(frozen=True)

    calibrated: tuple[float, ...]
    deployed: tuple[float, ...]

    def corrected(self, probabilities: Tensor) -> Tensor:
        """Probability rows (N, K) corrected for the deployment prior, in float64."""
        weights = torch.tensor(self.deployed, dtype=torch.float64) / torch.tensor(
            self.calibrated, dtype=torch.float64
        )
        weighted = probabilities.double() * weights
        total = weighted.sum(-1, keepdim=True)
        # A row that is certain of a class which cannot occur says nothing about the others.
        deployed = torch.tensor(self.deployed, dtype=torch.float64)
        return torch.where(total > 0, weighted / total.clamp_min(1e-300), deployed)


def deployment_prior(
    wanted: Mapping[str, float], class_names: Sequence[str], calibrated: Sequence[float]
) -> Prior:
    """The prior from the shares of some or all classes.

    The other classes keep their proportions. Raises ``ValueError`` for an unknown class, for one
    without calibration rows, for shares outside [0, 1], and for sums other than 1.
    """
    for name, share in wanted.items():
        if name not in class_names:
            raise ValueError(f"--prior: no class {name!r}; the classes are {_listed(class_names)}")
        if not 0 <= share <= 1:
            raise ValueError(f"--prior: {name}: found {share:g}; write a share between 0 and 1")
    given = math.fsum(wanted.values())
    others = [k for k, name in enumerate(class_names) if name not in wanted]
    rest = math.fsum(calibrated[k] for k in others)
    wrong = abs(given - 1) > _ROUNDING if not rest else given > 1 + _ROUNDING
    if wrong:
        raise ValueError(
            f"--prior: the shares sum to {given:g}; "
            + ("those of all classes sum to 1" if not rest else "they sum to at most 1")
        )
    deployed = [
        wanted.get(name, max(0.0, 1 - given) * calibrated[k] / (rest or 1))
        for k, name in enumerate(class_names)
    ]
    for name, new, old in zip(class_names, deployed, calibrated, strict=True):
        if new > 0 and old <= 0:
            raise ValueError(
                f"--prior: there was no row of class {name!r} to calibrate on, so nothing is known "
                "of its probability; give it the share 0"
            )
    # Classes without calibration rows have weight 0: 0/0 must not become NaN.
    safe = [old if old > 0 else 1.0 for old in calibrated]
    total = math.fsum(deployed)
    return Prior(calibrated=tuple(safe), deployed=tuple(share / total for share in deployed))


def parsed_prior(text: str) -> dict[str, float]:
    """Parse ``fraud=0.002`` or ``a=0.2,b=0.3`` into shares by class, else raise ``ValueError``.

    A class name may contain = and , as long as the last = precedes its share.
    """
    found: dict[str, float] = {}
    name = ""
    for piece in text.split(","):
        name = f"{name},{piece}" if name else piece
        key, is_share, value = name.rpartition("=")
        try:
            share = float(value)
        except ValueError:
            continue
        if is_share and key.strip():
            if key.strip() in found:
                raise ValueError(f"--prior: {key.strip()!r} is named twice")
            found[key.strip()] = share
            name = ""
    if name or not found:
        raise ValueError(f"--prior: found {text!r}; write CLASS=SHARE, e.g. fraud=0.002")
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
