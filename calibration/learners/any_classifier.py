"""Any classifier with scikit-learn's interface, by its import path; a spec gives its space."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, ClassVar

from pydantic import Field, create_model, model_validator

from calibration.hyperparameters import Value
from calibration.learners.estimator import EstimatorHyperparameters
from calibration.learners.scikit_learn import ScikitEstimator

_OURS = ("random_state", "n_jobs", "warm_start", "verbose")
"""Set by the sweep, or of no use in it."""


class _AnyHyperparameters(EstimatorHyperparameters):
    """The classifier's own parameters, those that are numbers, words or truths."""

    classifier: ClassVar[type]

    @model_validator(mode="after")
    def _accepted(self) -> _AnyHyperparameters:
        """Ask scikit-learn, which would refuse them no sooner than in ``fit``."""
        made = self.classifier(**self.model_dump(exclude_unset=True))
        check = getattr(made, "_validate_params", None)
        if check is not None:
            check()
        return self


class AnyClassifier(ScikitEstimator):
    """A classifier that a spec names by its import path.

    It gets the inputs that networks get; its parameters are those of its constructor. Who names it
    trusts its package, from which the parts of a stored one may come.
    """

    classifier: ClassVar[type]

    def make(self, seed: int, threads: int) -> Any:
        """The classifier, seeded, with as many threads as the trial has, where it has these."""
        made = self.classifier(**self.hyperparameters.model_dump(exclude_unset=True))
        ours = {"random_state": seed, "n_jobs": threads}
        there = made.get_params(deep=False)
        made.set_params(**{name: value for name, value in ours.items() if name in there})
        if not hasattr(made, "predict_proba"):
            raise ValueError(f"{self.classifier.__name__} as set here has no predict_proba")
        return made

    def trusts(self, name: str) -> bool:
        """What comes from the classifier's own package is trusted with it."""
        return super().trusts(name) or name.startswith(f"{self.package}.")

    def settle(self) -> None:
        """Predict with one thread: several may add up in any order."""
        if "n_jobs" in self.model.get_params(deep=False):
            self.model.set_params(n_jobs=1)


@cache
def any_classifier(classifier: type) -> type[AnyClassifier]:
    """The learner of a classifier. Raises ``ValueError`` if it is not one."""
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
