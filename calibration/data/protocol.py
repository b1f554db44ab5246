"""How the rows of a dataset are shared out between training and selection."""

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
"""A fraction of the rows there are (0.15), or a number of rows (300)."""


class Protocol(Settings):
    """A named way to divide the rows that are not test data.

    Every share is taken out of the whole pool (all rows but the test part). The
    validation part selects hyperparameters and fits calibrators; the
    meta-validation part is what methods that learn on held-out data may look at.

    With ``choice``, a share of the validation rows (or a number of them) is set apart for
    calibrators and for the choice among trained networks; the others stop training and
    guide the search. Of fixed data these are the same rows whatever the seed, as test
    rows are: no trial of a sweep, searched with another seed, has seen them.

    ``drawn_validation`` replaces ``validation`` for datasets that draw fresh points
    from a known distribution. With ``share_validation`` the validation part serves
    as meta-validation too: selection then looks at data the method has learned
    from, so use it to repeat published numbers only. With ``same_training_rows``
    the meta-validation part is set aside for every method, also for those that make
    no use of it: all train on the same rows, and a comparison tells methods apart
    rather than amounts of data.
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
"""Sanguin et al. 2024: 700/300 points, the 300 being the outer problem's data too."""

META_REGULARIZATION = Protocol(
    name="meta_regularization", validation=0.1, meta_validation=0.1, same_training_rows=True
)
"""Meta-Regularization's 8:1:1 of the official training set, for every row of its tables."""

NESTED = Protocol(name="nested", validation=0.2, drawn_validation=0.3, choice=0.5)
"""No row both guides the search and judges what it found: 80/10/10 of fixed data; 700 points
to train, 150 to stop and search and 150 to choose by of 1000 drawn ones."""

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol for protocol in (HONEST, BO4SC, META_REGULARIZATION, NESTED)
}
