"""The search of one row's space on one dataset, with Optuna's samplers and pruners."""

from sweeps.search.samplers import SAMPLERS, Sampler
from sweeps.search.study import Result, Study, unsupported

__all__ = ["SAMPLERS", "Result", "Sampler", "Study", "unsupported"]
