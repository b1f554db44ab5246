"""Any classifier with scikit-learn's interface, by its import path; a spec defines its space."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, ClassVar

from pydantic import Field, create_model, model_validator

from calibration.hyperparameters import Value
from calibration.learners.estimator import EstimatorHyperparameters
from calibration.learners.scikit_learn import ScikitEstimator

_OURS = ("random_state", "n_jobs", "warm_start", "verbose")
"""Set by the sweep, or of no use to it."""


class _AnyHyperparameters(EstimatorHyperparameters):
    """The classifier's own parameters that are numbers, strings or booleans."""

    classifier: ClassVar[type]

    @model_validator(mode="after")
    def _accepted(self) -> _AnyHyperparameters:
        """Let scikit-learn validate them now; by itself, it would only do so in ``fit``."""
        made = self.classifier(**self.model_dump(exclude_unset=True))
        check = getattr(made, "_validate_params", None)
        if check is not None:
            check()
        return self


class AnyClassifier(ScikitEstimator):
    """A classifier that a spec names by its import path.

    It gets the same inputs as networks; its parameters are those of its constructor. Naming it
    means trusting its package: a stored classifier may contain types from it.
    """

    classifier: ClassVar[type]

    def make(self, seed: int, threads: int) -> Any:
        """The classifier, with the trial's seed and threads if it has such parameters."""
        made = self.classifier(**self.hyperparameters.model_dump(exclude_unset=True))
        ours = {"random_state": seed, "n_jobs": threads}
        there = made.get_params(deep=False)
        made.set_params(**{name: value for name, value in ours.items() if name in there})
        if not hasattr(made, "predict_proba"):
            raise ValueError(f"{self.classifier.__name__} as set here has no predict_proba")
        return made

    def trusts(self, name: str) -> bool:
        """Types and functions from the classifier's own package are trusted too."""
        return super().trusts(name) or name.startswith(f"{self.package}.")

    def settle(self) -> None:
        """Predict with one thread: the order of summation of several is not fixed."""
        if "n_jobs" in self.model.get_params(deep=False):
            self.model.set_params(n_jobs=1)


@cache
def any_classifier(classifier: type) -> type[AnyClassifier]:
    """The learner for a classifier. Raises ``ValueError`` if the class is not a classifier."""
    name = classifier.__name__
    missing = [
        each
        for each in ("fit", "predict_proba", "get_params", "set_params")
        if not hasattr(classifier, each)
    ]
    if missing:
        raise ValueError(
            f"{name} has no {missing[0]}; a row's method is a Method, an Estimator, or a "
            "scikit-learn classifier with predict_proba"
        )
    fields: dict[str, Any] = {
        parameter.name: (Value | None, Field(default=parameter.default))
        for parameter in inspect.signature(classifier).parameters.values()
        if parameter.name not in _OURS and isinstance(parameter.default, Value | None)
    }
    hyperparameters = create_model(f"{name}Hyperparameters", __base__=_AnyHyperparameters, **fields)
    hyperparameters.classifier = classifier
    package = classifier.__module__.partition(".")[0]
    has: Any = classifier
    return type(
        name,
        (AnyClassifier,),
        {
            "__doc__": AnyClassifier.__doc__,
            "__module__": classifier.__module__,
            "description": f"{name} of {package}, with a space of your own",
            "Hyperparameters": hyperparameters,
            "classifier": classifier,
            "package": package,
            "weighted": "sample_weight" in inspect.signature(has.fit).parameters,
        },
    )
