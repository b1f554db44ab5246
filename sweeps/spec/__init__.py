"""The sweep specification: reading it, checking it, explaining it."""

from sweeps.spec.loading import ORACLE, LoadedSpec, load_spec, read_spec
from sweeps.spec.reading import ProblemError, SpecError

__all__ = ["ORACLE", "LoadedSpec", "ProblemError", "SpecError", "load_spec", "read_spec"]
