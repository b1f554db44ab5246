"""How the rows of a dataset are divided between training and selection."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from calibration.hyperparameters import Settings


def _check_share(share: object) -> object:
    whole = isinstance(share, int) and not isinstance(share, bool) and share >= 1
    fraction = isinstance(share, float) and 0 < share < 1
    if not (whole or fraction):
        raise ValueError("give a fraction between 0 and 1 or a whole number of rows")
    return share


Share = Annotated[int | float, BeforeValidator(_check_share)]
"""A fraction of the rows (0.15), or a number of rows (300)."""


class Protocol(Settings):
    """A named way of dividing the rows that are not test data.

    Every share refers to the whole pool (all rows except the test part). The
    validation part serves to select hyperparameters and fit calibrators; the
    meta-validation part is for methods that learn on held-out data.

    With ``choice``, a share of the validation rows (or a number of them) is set apart for
    calibrators and for the choice among trained networks; the others are for early stopping
    and guide the search. In fixed data, the rows set apart are the same for every seed, like
    test rows: no trial of a sweep, whatever its seed, has seen them.

    ``drawn_validation`` replaces ``validation`` for datasets that draw fresh points
    from a known distribution. With ``share_validation`` the validation part is also
    the meta-validation part: selection then uses data the method has learned from, so
    use it only to reproduce published numbers. With ``same_training_rows`` the
    meta-validation part is set aside for every method, even one that does not use it:
    all train on the same rows, and a comparison is between methods rather than
    amounts of data.
    """

    name: str
    validation: Share = 0.15
    meta_validation: Share = 0.15
    drawn_validation: Share | None = None
    share_validation: bool = False
    choice: Share | None = None
    same_training_rows: bool = False


HONEST = Protocol(name="honest", drawn_validation=0.3)
"""The default: 70/15/15 of fixed data; 700 points to train (150 of them as
meta-validation where a method asks for it) and 300 to validate of 1000 drawn ones."""

BO4SC = Protocol(name="bo4sc", validation=0.3, share_validation=True)
"""Sanguin et al. 2024: 700/300 points; the 300 are also the data of the outer problem."""

META_REGULARIZATION = Protocol(
    name="meta_regularization", validation=0.1, meta_validation=0.1, same_training_rows=True
)
"""Meta-Regularization's 8:1:1 of the official training set, for every row of its tables."""

NESTED = Protocol(name="nested", validation=0.2, drawn_validation=0.3, choice=0.5)
"""No row both guides the search and evaluates its result: 80/10/10 of fixed data; of 1000 drawn
points 700 to train, 150 for early stopping and the search, and 150 for the choice."""

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol for protocol in (HONEST, BO4SC, META_REGULARIZATION, NESTED)
}
