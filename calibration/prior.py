"""Correction of probabilities for a known deployment prior.

A classifier that is calibrated where the classes have the shares π is not where they have the
shares π′, even if the rows of each class look alike in both places (label shift). There

    p′(k | x) ∝ p(k | x) · π′(k)/π(k)

is (Saerens, Latinne & Decaestecker 2002, Eq. 2.4). π is that of the rows which calibrated it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

_ROUNDING = 1e-6


class Prior(BaseModel):
    """The classes' shares where probabilities are calibrated, and where they are to be used."""

    model_config = ConfigDict(frozen=True)

    calibrated: tuple[float, ...]
    deployed: tuple[float, ...]

    def corrected(self, probabilities: Tensor) -> Tensor:
        """Probability rows (N, K) for the deployment prior, float64."""
        weights = torch.tensor(self.deployed, dtype=torch.float64) / torch.tensor(
            self.calibrated, dtype=torch.float64
        )
        weighted = probabilities.double() * weights
        total = weighted.sum(-1, keepdim=True)
        # A row that is certain of a class which cannot occur says nothing of the others.
        deployed = torch.tensor(self.deployed, dtype=torch.float64)
        return torch.where(total > 0, weighted / total.clamp_min(1e-300), deployed)


def deployment_prior(
    wanted: Mapping[str, float], class_names: Sequence[str], calibrated: Sequence[float]
) -> Prior:
    """The prior from the shares of some or all classes.

    Those that are not named keep their proportions. Raises ``ValueError`` for a class that there
    is not or that no row calibrated, for shares outside [0, 1], and for sums other than 1.
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
    # What no row calibrated has no weight: 0/0 must not become NaN.
    safe = [old if old > 0 else 1.0 for old in calibrated]
    total = math.fsum(deployed)
    return Prior(calibrated=tuple(safe), deployed=tuple(share / total for share in deployed))


def parsed_prior(text: str) -> dict[str, float]:
    """``fraud=0.002`` or ``a=0.2,b=0.3``: shares by class; ``ValueError`` if it is neither.

    A class may have = and , in its name as long as the last = comes before its share.
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
