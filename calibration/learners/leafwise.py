"""The search space of boosted trees grown leaf by leaf, whatever names a library uses.

The hyperparameters are among those that Holzmüller, Grinsztajn and Steinwart (2024) search for
LightGBM, which also has penalties and a minimum Hessian. Their ranges are wider (learning rates
from 0.001 to 1, up to 1000 leaves, 1 to 400 rows), except for the share of columns, from 0.5.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from calibration.hyperparameters import Integer, LogUniform, Uniform

Shrinkage = Annotated[float, Field(gt=0, le=10), LogUniform(0.01, 0.3)]
MostLeaves = Annotated[int, Field(ge=2, le=131_072), Integer(4, 127, log=True)]
LeastRows = Annotated[int, Field(ge=1, le=1_000_000), Integer(2, 200, log=True)]
ColumnShare = Annotated[float, Field(gt=0, le=1), Uniform(0.3, 1.0)]
