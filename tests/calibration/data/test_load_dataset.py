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


class Jittered(Pairs):
    """As a random transform makes it."""

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        image, label = super().__getitem__(row)
        return image + torch.rand(1, 4, 4), label


class Flipped(torch.utils.data.Dataset[tuple[np.ndarray, int]]):
    """A large one, of which hardly any row may be read twice; half of the images are flipped."""

    reads = 0

    def __len__(self) -> int:
        return 5000

    def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
        Flipped.reads += 1
        image = np.arange(16, dtype=np.float32).reshape(1, 4, 4) + row
        return (image[..., ::-1] if torch.rand(()) < 0.5 else image), row % 3


class Relabelled(Pairs):
    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return super().__getitem__(row)[0], int(torch.randint(3, ()))


class Growing(Pairs):
    rows = 30

    def __len__(self) -> int:
        Growing.rows += 1
        return Growing.rows


class Shuffled(Pairs):
    """One that is the same as long as it lives."""

    def __init__(self) -> None:
        self.order = torch.randperm(30).tolist()

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return super().__getitem__(self.order[row])


class NoisyStream(torch.utils.data.IterableDataset[tuple[np.ndarray, int]]):
    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        return ((row + np.random.random(), i % 2) for i, row in enumerate(TABLE))


ONCE = iter([*zip(TABLE, LABELS, strict=True)])


class Once(torch.utils.data.IterableDataset[tuple[np.ndarray, int]]):
    """One that can be read only once, say from a pipe."""

    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        return ONCE


def drawn() -> tuple[np.ndarray, np.ndarray]:
    return np.random.normal(size=(40, 2)), LABELS


def missing_values() -> tuple[np.ndarray, np.ndarray]:
    return np.where(TABLE < -2, np.nan, TABLE), np.array(list("ab"), object)[LABELS]


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
    things += (Jittered, Flipped, Relabelled, Growing, Shuffled, NoisyStream, Once)
    things += (drawn, missing_values)
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


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("Jittered", "the input of row 0 changes"),
        ("Flipped", r"the input of row \d+ changes"),
        ("Relabelled", r"the label of row \d+ changes"),
        ("Growing", r"it has \d+ rows, then \d+"),
        ("Shuffled", r"the (label|input) of row \d+ changes"),
        ("NoisyStream", "the input of row 0 changes"),
        ("drawn", "row 0 changes"),
    ],
)
def test_data_that_change_with_every_reading_are_refused(name: str, how: str) -> None:
    message = rf"dataset 'users_module:{name}': read twice, {how}; .*augmentation: crop_flip.*\Z"
    with pytest.raises(ValueError, match=message):
        load_dataset(f"users_module:{name}", {})


def test_of_a_large_dataset_few_rows_are_read_again() -> None:
    Flipped.reads = 0
    with pytest.raises(ValueError, match="read twice"):
        load_dataset("users_module:Flipped", {})
    assert 5000 < Flipped.reads <= 5064


@pytest.mark.parametrize("name", ["Pairs", "Stream", "Once", "four_tensors", "missing_values"])
def test_data_that_stay_the_same_are_taken(name: str) -> None:
    assert load_dataset(f"users_module:{name}", {}).classes in (2, 3)


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
