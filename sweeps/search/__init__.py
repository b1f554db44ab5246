"""The search of one method's space on one dataset, on Optuna's samplers and pruners."""

from sweeps.search.study import Result, Study, unsupported

__all__ = ["Result", "Study", "unsupported"]
