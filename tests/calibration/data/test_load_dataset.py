from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.utils.data

from calibration.data import DATASETS, PROTOCOLS, Dataset, DatasetOptions, load_dataset
from calibration.registry import UnknownNameError

TABLE = np.random.default_rng(0).normal(size=(40, 2))
LABELS = np.arange(40) % 2


def arrays(rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    return TABLE[:rows], LABELS[:rows]


def four_tensors() -> tuple[torch.Tensor, ...]:
    inputs, labels = torch.from_numpy(TABLE), torch.from_numpy(LABELS)
    return inputs, labels, inputs[:6] + 1, labels[:6]


class Pairs(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 30

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        # Never raises IndexError, as many such datasets do not.
        return torch.full((1, 4, 4), float(row)), row % 3


class Stream(torch.utils.data.IterableDataset[tuple[np.ndarray, str]]):
    def __iter__(self) -> Iterator[tuple[np.ndarray, str]]:
        return ((row, "ab"[label]) for row, label in zip(TABLE, LABELS, strict=True))


class Ragged(Pairs):
    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(row + 1), 0


class Mine(DatasetOptions):
    """A user's own options."""

    name: str

    def load(self) -> Dataset:
        return load_dataset(self.name, {})


def failing() -> object:
    raise TypeError("from the user's own code")


@pytest.fixture(autouse=True)
def users_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("users_module")
    things = (arrays, four_tensors, Pairs, Stream, Ragged, Mine, failing)
    vars(module).update({thing.__name__: thing for thing in things})
    vars(module).update(number=3, nothing=lambda: None, three=lambda: (1, 2, 3))
    monkeypatch.setitem(sys.modules, "users_module", module)


def test_a_callable_returning_arrays() -> None:
    dataset = load_dataset("users_module:arrays", {"rows": 36})
    assert (dataset.name, dataset.classes) == ("users_module:arrays", 2)
    assert len(dataset.test(0).labels) == 9
    four = load_dataset("users_module:four_tensors", {})
    np.testing.assert_array_equal(four.test(0).inputs, TABLE[:6] + 1)
    assert four.fingerprint != dataset.fingerprint


def test_a_torch_dataset_of_pairs() -> None:
    dataset = load_dataset("users_module:Pairs", {})
    test = dataset.test(0)
    assert (dataset.kind, dataset.classes, test.inputs.shape[1:]) == ("image", 3, (1, 4, 4))
    assert (test.inputs[:, 0, 0, 0] % 3).long().equal(test.labels)
    splits = dataset.split(PROTOCOLS["honest"], 0, held_out=False)
    parts = (splits.train, splits.validation, test)
    rows = torch.cat([part.inputs[:, 0, 0, 0] for part in parts])
    assert sorted(rows.tolist()) == list(range(30))
    assert load_dataset("users_module:Stream", {}).class_names == ("a", "b")


def test_a_users_options_class() -> None:
    assert load_dataset("users_module:Mine", {"name": "iris"}).name == "iris"
    with pytest.raises(ValueError, match="dataset 'users_module:Mine': option 'name' is required"):
        load_dataset("users_module:Mine", {})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("users_module:arrays", {"columns": 3}, "options do not fit the callable: .*'columns'"),
        ("users_module:number", {}, "is a int, not a callable"),
        ("users_module:nothing", {}, "the callable returned a NoneType; return a Dataset"),
        ("users_module:three", {}, "2 or 4 arrays are expected, found 3"),
        ("users_module:Ragged", {}, "inputs must have one shape, found"),
        ("users_module:absent", {}, "cannot import dataset 'users_module:absent'"),
        ("iris", {"test_share": 2.5}, "dataset 'iris': option 'test_share' = 2.5: .*fraction"),
        ("blobs-1.7", {"points": 3}, "option 'points' = 3"),
    ],
)
def test_mistakes_are_explained(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_dataset(name, options)


def test_an_error_inside_the_users_code_is_theirs() -> None:
    with pytest.raises(TypeError, match="from the user's own code"):
        load_dataset("users_module:failing", {})


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown dataset 'blob-1'; did you mean 'blobs-"):
        load_dataset("blob-1", {})


def test_every_registered_dataset_describes_itself_in_a_line() -> None:
    descriptions = {name: (DATASETS[name].__doc__ or "").splitlines()[0] for name in DATASETS}
    assert all(20 < len(line) < 100 for line in descriptions.values()), descriptions
    assert len(set(descriptions.values())) == len(descriptions)
