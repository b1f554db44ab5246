"""The contract of training methods, as a check."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibration.cohort import Cohort
from calibration.data import Splits
from calibration.hyperparameters import SettingError
from calibration.methods import Method
from calibration.testing import problems
from calibration.testing.contract import ContractError, require
from calibration.testing.declarations import check_declaration
from calibration.testing.equality import copied, difference
from calibration.testing.problems import Problem, SealedError
from calibration.testing.watching import check_state, watch
from calibration.threads import threads
from calibration.training import TrainingRun

ACCURACY = 0.95
LEARNING_RATE = 0.01
MEMBERS, HALF = 3, 2


def check_method(method: type[Method], hyperparameters: dict[str, Any] | None = None) -> None:
    """Check that a training method satisfies the contract of ``Method``.

    Its declarations; that it learns separable data to a validation accuracy of 0.95, with
    2 and 10 classes, a fully connected and a convolutional network, full batches and
    mini-batches of which the last has one sample; that its hooks change no argument in place
    and return plain tensors; that a run resumed from a checkpoint and a stored network give the
    same results as an uninterrupted run; that a seed determines the result, whatever the state of
    the global generators and whatever was trained before, and another seed changes it; that
    members of a cohort give the same bits as alone, whatever their real-valued hyperparameters;
    that test data is never read, that validation data has no influence on training, and that
    held-out data has some if and only if ``needs_held_out``.

    ``hyperparameters`` replace the defaults (lr is 0.01 unless given): needed for a method
    whose idea would not take effect within a dozen epochs. It takes seconds.

    Raises ``ContractError`` naming the method and the situation at the first broken rule.
    """
    check_declaration(method)
    hyperparameters = {"lr": LEARNING_RATE} | (hyperparameters or {})
    with _alone():
        shared = _class_attributes(method)
        few = _Trained.by(method, hyperparameters, problems.two_clouds())
        few.check_predictions()
        few.check_repeatable(after=problems.ten_patterns())
        few.check_test_data_is_unread()
        few.check_validation_teaches_nothing()
        few.check_resumption()
        few.check_company()
        changed = difference(shared, _class_attributes(method))
        require(changed is None, method.__name__, f"training must leave the class alone: {changed}")
        many = _Trained.by(method, hyperparameters, problems.ten_clouds())
        many.check_predictions()
        many.check_another_seed()
        many.check_held_out()
        many.check_resumption()
        for problem in (problems.two_patterns(), problems.ten_patterns()):
            images = _Trained.by(method, hyperparameters, problem)
            images.check_predictions()
            images.check_resumption()
        _Trained.by(method, hyperparameters, problems.lonely_pattern())


@contextmanager
def _alone() -> Iterator[None]:
    """One thread; the caller's thread count and random state are restored afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with threads(1), torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _seed_global_generators(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _class_attributes(method: type[Method]) -> dict[str, Any]:
    """Copies of the values that all runs of a method share."""
    return {
        f"{owner.__name__}.{name}": copied(value)
        for owner in method.__mro__
        if issubclass(owner, Method)
        for name, value in vars(owner).items()
        if isinstance(value, Tensor | dict | list | set | bool | int | float | str | None)
        and not name.startswith("__")
    }


@dataclass(frozen=True)
class _Trained:
    """A finished run of a method on one problem, and the checks that compare others with it."""

    method: type[Method]
    hyperparameters: dict[str, Any]
    problem: Problem
    run: TrainingRun
    splits: Splits
    checkpoint: bytes

    @classmethod
    def by(
        cls, method: type[Method], hyperparameters: dict[str, Any], problem: Problem
    ) -> _Trained:
        """Train with watched hooks; the checkpoint is from half-way."""
        _seed_global_generators(0)
        about = _about(method, problem)
        made = watch(_make(method, hyperparameters), about)
        splits = problem.splits(made)
        checkpoint = b""
        with _named(about):
            run = problem.run(made, splits)
            check_state(run.state, about)
            while not run.done:
                if run.epoch <= problem.training.epochs // 2:
                    checkpoint = _stored(run.state_dict())
                run.run_epoch()
        return cls(method, hyperparameters, problem, run, splits, checkpoint)

    @property
    def about(self) -> str:
        return _about(self.method, self.problem)

    def check_predictions(self) -> None:
        """Predictions are independent rows of logits, and most are right."""
        about, validation = self.about, self.splits.validation
        expected = (len(validation.labels), self.problem.classes)
        with _named(about):
            logits = self.run.predict(validation)
            self.run.history()
            mapped, few = (
                self.run.method.map_logits(rows, self.run.best.method)
                for rows in (logits, logits[:7])
            )
        found = tuple(logits.shape)
        require(found == expected, about, f"predict must give shape {expected}, found {found}")
        require(bool(logits.isfinite().all()), about, "predictions must be finite")
        alike = torch.allclose(few, mapped[:7], rtol=1e-4, atol=1e-4)
        require(alike, about, "what map_logits makes of a row must not depend on the other rows")
        self._require_learned(self.run)

    def check_repeatable(self, *, after: Problem) -> None:
        """The same seed gives the same, whatever the process has done before."""
        _seed_global_generators(1)
        other = _make(self.method, self.hyperparameters)
        with _named(self.about):
            after.run(other, after.splits(other), seed=1).run_epoch()
        _seed_global_generators(2)
        again = self._train(self.splits)
        self._require_same(
            again.state_dict(),
            self.run.state_dict(),
            "the same seed must give the same, whatever ran before and whatever the global "
            "generators hold",
        )

    def check_another_seed(self) -> None:
        """Another seed gives another network, which has learned as well."""
        other = self._train(self.splits, seed=1)
        changed = not torch.equal(other.state.parameters, self.run.state.parameters)
        require(changed, self.about, "another seed must give another network")
        self._require_learned(other)

    def check_test_data_is_unread(self) -> None:
        """A poisoned test part, and an error on access to it, change nothing."""
        sealed = self.problem.dataset(problems.poisoned(self.problem.rows, self.problem.classes))
        run = self._train(self.problem.splits(self.run.method, sealed))
        self._require_same(
            run.state_dict(), self.run.state_dict(), "a poisoned test part must change nothing"
        )

    def check_validation_teaches_nothing(self) -> None:
        """Other validation labels change no training step."""
        validation = problems.mislabelled(self.splits.validation, self.problem.classes)
        run = self._train(replace(self.splits, validation=validation))
        self._require_same(
            _trajectory(run), _trajectory(self.run), "validation data must not influence training"
        )

    def check_held_out(self) -> None:
        """Held-out data influences the methods that declare it, and no others."""
        declared, classes = self.run.method.needs_held_out, self.problem.classes
        if declared:
            given = self.splits.meta_validation
            assert given is not None
            run = self._train(
                replace(self.splits, meta_validation=problems.mislabelled(given, classes))
            )
            changed = difference(_trajectory(run), _trajectory(self.run)) is not None
            epochs = self.problem.training.epochs
            rule = f"needs_held_out, but within {epochs} epochs other held-out labels do nothing"
            require(changed, self.about, rule)
        else:
            useless = problems.poisoned(self.splits.validation, classes)
            run = self._train(replace(self.splits, meta_validation=useless))
            rule = "held-out data must not influence a method without needs_held_out"
            self._require_same(_trajectory(run), _trajectory(self.run), rule)

    def check_resumption(self) -> None:
        """Resuming a checkpoint and loading a stored network are exact on this machine."""
        _seed_global_generators(3)
        resumed = self._fresh(self.splits)
        resumed.load_state_dict(_restored(self.checkpoint))
        _finish(resumed, self.about)
        rule = "a run continued from its checkpoint must be the same to the bit"
        self._require_same(resumed.state_dict(), self.run.state_dict(), rule)
        loaded = self._fresh(self.splits)
        with _named(f"{self.about}: a network restored from inference_state"):
            loaded.load_network(_restored(_stored(self.run.network())))
            predicted = loaded.predict_validation()
        same = torch.equal(predicted, self.run.predict_validation())
        require(same, self.about, "a stored network must predict the same (see inference_state)")

    def check_company(self) -> None:
        """In a cohort that is joined and left half-way, each network is the same as alone."""
        training = self.problem.training.model_copy(update={"epochs": 2 * HALF})
        problem = replace(self.problem, training=training)
        alone = [self._member(problem, place) for place in range(MEMBERS)]
        halfway = b""
        for run in alone:
            while not run.done:
                with _named(self.about):
                    run.run_epoch()
                if run.epoch == HALF:
                    halfway = _stored(run.state_dict())
        members = [self._member(problem, place) for place in range(MEMBERS)]
        early = Cohort(members[:-1])
        for _ in range(HALF):
            early.run_epoch()
        resumed = self._member(problem, 1)  # the second continues alone, the last one joins
        resumed.load_state_dict(_restored(_stored(members[1].state_dict())))
        members[1] = _finish(resumed, self.about)
        members[-1].load_state_dict(_restored(halfway))
        late = Cohort([members[0], *members[2:]])
        while late.active:
            late.run_epoch()
        for error in (*early.failures.values(), *late.failures.values()):
            with _named(self.about):
                raise error
        rule = "a network trained in a cohort must be the same to the bit as alone"
        for found, expected in zip(members, alone, strict=True):
            self._require_same(found.state_dict(), expected.state_dict(), rule)

    def _member(self, problem: Problem, place: int) -> TrainingRun:
        """One of several runs that differ in every real-valued hyperparameter and in seeds."""
        hyperparameters = self.method.Hyperparameters
        values = hyperparameters.checked(self.hyperparameters, self.about).model_dump()
        for name, value in values.items():
            if isinstance(value, float) and name not in self.method.read_by_the_host:
                other = values | {name: value * (1 - 0.1 * place)}
                with suppress(SettingError):
                    hyperparameters.checked(other, self.about)
                    values = other
        with _named(self.about):
            return problem.run(_make(self.method, values), self.splits, seed=place // 2)

    def _fresh(self, splits: Splits, *, seed: int = 0) -> TrainingRun:
        with _named(self.about):
            return self.problem.run(_make(self.method, self.hyperparameters), splits, seed=seed)

    def _train(self, splits: Splits, *, seed: int = 0) -> TrainingRun:
        return _finish(self._fresh(splits, seed=seed), self.about)

    def _require_learned(self, run: TrainingRun) -> None:
        right = run.predict_validation().argmax(1) == run.validation.labels
        accuracy = float(right.double().mean())
        rule = f"must learn separable data to an accuracy of {ACCURACY}, found {accuracy:.2f}"
        require(accuracy >= ACCURACY, self.about, rule)

    def _require_same(self, found: dict[str, Any], expected: dict[str, Any], rule: str) -> None:
        place = difference(_untimed(expected), _untimed(found))
        require(place is None, self.about, f"{rule}; {place} differs")


def _about(method: type[Method], problem: Problem) -> str:
    return f"{method.__name__} ({problem.name})"


def _make(method: type[Method], hyperparameters: dict[str, Any]) -> Method:
    return method(method.Hyperparameters.checked(hyperparameters, f"method {method.__name__!r}"))


@contextmanager
def _named(about: str) -> Iterator[None]:
    """Turn whatever a method raises into a ``ContractError`` that names the situation."""
    try:
        yield
    except ContractError:
        raise
    except SealedError as error:
        raise ContractError(f"{about}: test data must never be read") from error
    except Exception as error:  # a user's own method may raise anything
        raise ContractError(f"{about}: must not raise {type(error).__name__}: {error}") from error


def _finish(run: TrainingRun, about: str) -> TrainingRun:
    with _named(about):
        while not run.done:
            run.run_epoch()
    return run


def _stored(values: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(values, buffer)
    return buffer.getvalue()


def _restored(stored: bytes) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(io.BytesIO(stored), weights_only=True)
    return found


def _untimed(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "seconds"}


def _trajectory(run: TrainingRun) -> dict[str, Any]:
    """All results of training, without those of validation."""
    curve = [{k: v for k, v in row.items() if not k.startswith("validation/")} for row in run.curve]
    return {"state": run.state, "curve": curve}
