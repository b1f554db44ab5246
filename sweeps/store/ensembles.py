"""Names of the evaluations of ensembles in the store.

An ensemble consists of all confirmed networks of a cell. Its evaluation is stored with its first
member's; each member's evaluations include the ensemble without that member, for the jackknife.
"""

from __future__ import annotations

_PREFIX = "ensemble of "
_JOINT = " + "


def ensemble_name(members: int, calibrator: str) -> str:
    """The evaluation of an ensemble whose members have this calibrator."""
    return f"{_PREFIX}{members}{_JOINT}{calibrator}"


def reduced_name(members: int, calibrator: str) -> str:
    """The evaluation of the same ensemble without the member it is stored with."""
    return f"{_PREFIX}{members} without this one{_JOINT}{calibrator}"


def calibrator_of(name: str) -> str:
    """The calibrator of an evaluation: of an ensemble's members, or of the network."""
    return name.partition(_JOINT)[2] if is_ensemble(name) else name


def is_ensemble(name: str) -> bool:
    """Whether an evaluation of this name is an ensemble's."""
    return name.startswith(_PREFIX)
