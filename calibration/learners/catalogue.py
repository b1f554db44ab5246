"""Look up what a row's ``method:`` names: a method, which trains a network, or an estimator."""

from __future__ import annotations

from typing import Any

from calibration.hyperparameters import Hyperparameters
from calibration.learners.any_classifier import any_classifier
from calibration.learners.estimator import LEARNERS, Estimator
from calibration.learners.estimator_training import ABOUT_ESTIMATOR
from calibration.methods import METHODS, Method
from calibration.registry import UnknownNameError, imported, unknown_name


def learner(name: str) -> type[Method] | type[Estimator]:
    """The method or estimator registered as ``name``, or at an import path.

    Both have ``description``, ``Hyperparameters``, ``complexity`` and ``version``. Raises
    ``UnknownNameError``, a ``ValueError`` that suggests the nearest names.
    """
    if ":" in name:
        return _at(name)
    if name in LEARNERS or LEARNERS.is_broken(name):
        return LEARNERS[name]
    if name in METHODS or METHODS.is_broken(name):
        return METHODS[name]
    raise unknown_name("method", name, learner_names())


def learner_names() -> list[str]:
    """All registered names: estimators, which are fast, then methods."""
    return [*LEARNERS, *METHODS]


def trains_network(name: str) -> bool:
    """Whether the name is that of a method, for which network, epochs and batches matter."""
    return issubclass(learner(name), Method)


def estimator_files(name: str) -> tuple[str, ...]:
    """The files of a stored estimator. Raises ``ValueError`` for the name of a method."""
    kind = learner(name)
    if not issubclass(kind, Estimator):
        raise ValueError(f"{name!r} is not an estimator")
    return ABOUT_ESTIMATOR, kind.file


def make_learner(name: str, hyperparameters: dict[str, Any]) -> Method | Estimator:
    """Construct the learner called ``name`` with these hyperparameters.

    Raises ``UnknownNameError`` or ``SettingError``, both naming what is wrong.
    """
    kind: Any = learner(name)
    found: Hyperparameters = kind.Hyperparameters.checked(hyperparameters, f"method {name!r}")
    made: Method | Estimator = kind(found)
    return made


def _at(path: str) -> type[Method] | type[Estimator]:
    found: Any = imported("method", path)
    if isinstance(found, type) and issubclass(found, Method | Estimator):
        return found
    if not isinstance(found, type):
        raise UnknownNameError(f"{path!r} is not a class")
    try:
        return any_classifier(found)
    except ValueError as error:
        raise UnknownNameError(f"{path!r}: {error}") from None
