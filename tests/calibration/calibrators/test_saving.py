"""A saved calibrator is the same map to the bit, and a damaged one is refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from calibration import calibrators
from calibration.calibrators import CALIBRATORS, Calibrator
from calibration.calibrators.saving import load_calibrator, save_calibrator
from calibration.testing import ContractError, check_calibrator


def through_json(fitted: Calibrator) -> Calibrator:
    return load_calibrator(json.loads(json.dumps(save_calibrator(fitted), allow_nan=False)))


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", calibrators.names("all"))
def test_every_map_comes_back_to_the_bit(name: str, classes: int, gaussians) -> None:
    problem, fresh = gaussians(120, classes, factor=3.0), gaussians(500, classes, seed=1)
    fitted = calibrators.fit(name, problem.logits, problem.labels)
    saved = save_calibrator(fitted)
    assert (saved["calibrator"], saved["classes"]) == (name, classes)
    restored = through_json(fitted)
    assert type(restored) is CALIBRATORS[name]
    assert restored.converged is fitted.converged
    assert torch.equal(restored(fresh.logits), fitted(fresh.logits))


def test_a_map_that_fell_back_to_softmax_still_does(gaussians) -> None:
    problem = gaussians(400, 3)
    fitted = calibrators.fit("temperature", problem.logits, problem.labels)
    fitted._fell_back = True
    assert torch.equal(through_json(fitted)(problem.logits), problem.logits.softmax(1))


class Pair(NamedTuple):
    first: float
    second: Tensor


@dataclass(frozen=True, slots=True)
class Slotted:
    value: float


@dataclass(frozen=True)
class Nested:
    pair: Pair
    slotted: Slotted
    map: Calibrator


class Colour(Enum):
    RED = 1


class Own(Calibrator):
    """A user's own map, with an attribute of every kind that can be saved."""

    description = "for these tests"
    scaling = False
    keeps_argmax = True
    fast = True

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        self.factor = np.float64(1 / 3)
        self.infinite = [float("inf"), float("-inf"), float("nan"), -0.0]
        self.table = {"a": 1, "b": None, "c": ("x", True)}
        self.by_number = {0: 1.5, (1, 2): "y"}
        self.arrays = [np.arange(6, dtype=np.int32).reshape(2, 3), np.empty((0, 4), np.float32)]
        self.single = torch.tensor([1.0, 2.0], dtype=torch.float16)
        self.weights = torch.linspace(0, 1, 12, dtype=torch.float64).view(3, 4).T
        inner = calibrators.fit("isotonic", logits, labels)
        self.nested = Nested(Pair(0.1, torch.tensor(3)), Slotted(0.7), inner)

    def _apply(self, logits: Tensor) -> Tensor:
        return (logits * self.factor).softmax(1)


def test_a_users_own_map_keeps_every_attribute(gaussians) -> None:
    problem = gaussians(60, 3)
    fitted = Own().fit(problem.logits, problem.labels)
    saved = save_calibrator(fitted)
    assert saved["calibrator"] == f"{__name__}:Own"
    found = through_json(fitted)
    assert isinstance(found, Own)
    assert isinstance(found.factor, np.float64)
    assert found.factor == fitted.factor
    assert repr(found.infinite) == "[inf, -inf, nan, -0.0]"
    assert found.table == fitted.table
    assert found.by_number == fitted.by_number
    for one, other in zip(found.arrays, fitted.arrays, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.array_equal(one, other)
    assert found.single.dtype == torch.float16
    assert torch.equal(found.single, fitted.single)
    assert torch.equal(found.weights, fitted.weights)
    assert found.nested.pair.first == 0.1
    assert found.nested.pair.second.dtype == torch.int64
    assert found.nested.slotted == Slotted(0.7)
    inner = found.nested.map
    assert torch.equal(inner(problem.logits), fitted.nested.map(problem.logits))


def test_the_contract_covers_saving() -> None:
    check_calibrator(Own)
    with pytest.raises(ContractError, match=r"must be one that can be saved.*Forgets\.model"):
        check_calibrator(Forgets)


class Forgets(Own):
    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        self.factor = np.float64(0.5)
        self.model = {1, 2}


class Converts(Forgets):
    """Attributes of another kind, turned into plain ones by pickle's own hooks."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "model": sorted(self.model)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.model = set(state["model"])


def test_hooks_of_pickling_are_used(gaussians) -> None:
    problem = gaussians(20, 3)
    found = through_json(Converts().fit(problem.logits, problem.labels))
    assert isinstance(found, Converts)
    assert found.model == {1, 2}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1, 2}, r"Own\.extra: a builtins\.set cannot be saved"),
        ([0, {"k": lambda: 0}], r"Own\.extra\[1\]\.k: a builtins\.function cannot be saved"),
        (1j, "builtins.complex"),
        (Colour.RED, "Colour cannot be saved"),
        (torch.nn.Linear(2, 2), r"torch\.nn\.modules\.linear\.Linear cannot be saved"),
        (np.array(["a"]), "an array of type <U1"),
        (torch.zeros(2, dtype=torch.bfloat16), "this tensor cannot be saved"),
    ],
)
def test_what_cannot_be_saved_is_named(value: object, words: str, gaussians) -> None:
    problem = gaussians(20, 3)
    fitted = Own().fit(problem.logits, problem.labels)
    fitted.extra = value  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=words):
        save_calibrator(fitted)


def test_neither_unfitted_nor_endless_nor_local_maps_are_saved(gaussians) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        save_calibrator(Own())
    problem = gaussians(20, 3)
    endless = Own().fit(problem.logits, problem.labels)
    endless.itself = [endless]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="holds itself"):
        save_calibrator(endless)

    class Local(Own):
        pass

    with pytest.raises(ValueError, match="defined inside a function"):
        save_calibrator(Local().fit(problem.logits, problem.labels))


def _vector() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 3, generator=generator)
    fitted = calibrators.fit("vector", logits, torch.randint(3, (50,), generator=generator))
    return save_calibrator(fitted)


def _edit(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> dict[str, Any]:
    saved = json.loads(json.dumps(_vector()))
    change(saved, saved["state"]["dict"])
    return saved


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s, _: s.pop("state"), "no entry 'state'"),
        (lambda s, _: s.update(extra=1), "entry 'extra' is unknown"),
        (lambda s, _: s.update(format=1), "format: found 1"),
        (lambda s, _: s.update(calibrator="temperatur"), "did you mean 'temperature'"),
        (lambda s, _: s.update(calibrator="pathlib:Path"), "not a subclass of Calibrator"),
        (lambda s, _: s.update(calibrator="os:system"), "not a subclass of Calibrator"),
        (lambda s, _: s.update(calibrator="no_such:Thing"), "cannot import"),
        (lambda s, _: s.update(calibrator=3), "calibrator: found a int"),
        (lambda s, _: s.update(classes=1), "classes: found 1"),
        (lambda s, _: s.update(classes=4), "classes: found 4, but the state is for 3"),
        (lambda s, _: s.update(state=[1]), "not the attributes"),
        (lambda s, _: s.update(state={"set": []}), "an entry 'set'"),
        (lambda _, d: d.pop("theta"), "not that of a working vector"),
        (lambda _, d: d.update(temperature="hot"), "not that of a working vector"),
        (lambda _, d: d["theta"]["tensor"].update(shape=[7]), "state.theta: damaged numbers"),
        (lambda _, d: d["theta"]["tensor"].update(shape=[-6]), "damaged numbers"),
        (lambda _, d: d["theta"]["tensor"].update(zlib="%%"), "damaged numbers"),
        (lambda _, d: d["theta"]["tensor"].update(zlib="eJw="), "damaged numbers"),
        (lambda _, d: d["theta"]["tensor"].update(type="O"), "damaged numbers"),
        (lambda _, d: d.update(x={"object": "os:stat_result", "state": {}}), "not a class of"),
        (
            lambda _, d: d.update(x={"object": "calibration.registry:importlib", "state": {}}),
            "not a class defined there",
        ),
        (
            lambda _, d: d.update(
                x={"object": "calibration.calibrators.kernel:Curve", "state": {}}
            ),
            "not a class defined there",
        ),
        (lambda _, d: d.update(x={"object": "calibration.nowhere:X"}), "there is no"),
    ],
)
def test_what_is_not_a_saved_map_is_refused(change, words: str) -> None:
    load_calibrator(_edit(lambda s, d: None))
    with pytest.raises(ValueError, match=words):
        load_calibrator(_edit(change))


def test_only_an_object_can_be_a_saved_map() -> None:
    with pytest.raises(ValueError, match="found a list"):
        load_calibrator([1])  # type: ignore[arg-type]
    saved = _vector() | {"about": {"class_names": ["a", "b", "c"]}}
    assert load_calibrator(saved)._classes == 3


def test_large_maps_stay_small(gaussians) -> None:
    problem = gaussians(20_000, 3)
    text = json.dumps(save_calibrator(calibrators.fit("kernel", problem.logits, problem.labels)))
    assert len(text) < 200_000
