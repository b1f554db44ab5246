"""The hyperparameters of calibration objectives, with one range and one meaning everywhere."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from calibration.hyperparameters import LogUniform

AccuracyTemperature = Annotated[float, Field(gt=0, le=1e4), LogUniform(10.0, 300.0)]
"""t_a: how sharply the soft rank separates right from wrong."""

BinTemperature = Annotated[float, Field(gt=0, le=10), LogUniform(3e-3, 0.1)]
"""t_b: how far soft bins overlap."""

Bandwidth = Annotated[float, Field(gt=0, le=10), LogUniform(0.01, 0.3)]
"""h of a kernel over confidence; the fewer the samples, the larger it should be."""
