from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibration.data import PROTOCOLS, FixedDataset, Part, Protocol, Splits
from calibration.data.splitting import FEWEST_ROWS, draw_rows, stream

labels_strategy = st.lists(st.integers(1, 30), min_size=2, max_size=8).flatmap(
    lambda sizes: st.permutations([k for k, n in enumerate(sizes) for _ in range(n)])
)


def numbered(labels: list[int]) -> FixedDataset:
    """A dataset whose inputs are its row numbers."""
    rows = torch.arange(len(labels), dtype=torch.float64)[:, None]
    part = Part(rows, torch.tensor(labels))
    names = tuple(str(k) for k in range(max(labels) + 1))
    return FixedDataset("numbered", "points", part, names)


def rows_of(part: Part | None) -> set[int]:
    return set() if part is None else set(part.inputs[:, 0].long().tolist())


@given(
    labels_strategy,
    st.integers(0, 2**40),
    st.floats(0.05, 0.4),
    st.booleans(),
    st.sampled_from([None, 0.3]),
)
def test_parts_are_disjoint_cover_everything_and_keep_labels(
    labels: list[int], seed: int, share: float, held_out: bool, choice: float | None
) -> None:
    divisible = sum(n for n in np.bincount(labels) if n >= FEWEST_ROWS)
    if divisible < 60:
        labels = [*labels, *[0, 1] * 60]
    dataset = numbered(labels)
    protocol = Protocol(name="p", validation=share, meta_validation=share, choice=choice)
    splits = dataset.split(protocol, seed, held_out=held_out)
    rest = [splits.meta_validation, splits.apart, dataset.test(seed)]
    named = [splits.train, splits.validation, *rest]
    parts = [rows_of(part) for part in named]
    assert sum(map(len, parts)) == len(labels)
    assert set.union(*parts) == set(range(len(labels)))
    for part in named:
        if part is not None:
            assert part.labels.tolist() == [labels[row] for row in part.inputs[:, 0].long()]
    assert set(splits.train.labels.tolist()) == set(labels)


@given(labels_strategy, st.integers(0, 1000), st.data())
def test_every_class_gives_its_share_and_keeps_a_row(
    labels: list[int], seed: int, data: st.DataObject
) -> None:
    sizes = np.bincount(labels)
    divisible = np.where(sizes >= FEWEST_ROWS, sizes, 0)
    room = int(np.maximum(divisible - 1, 0).sum())
    size = data.draw(st.integers(0, room))
    rows = draw_rows(np.array(labels), size, stream(seed), "part")
    taken = np.bincount(np.array(labels)[rows], minlength=len(sizes))
    assert len(set(rows.tolist())) == size
    assert (taken[sizes < FEWEST_ROWS] == 0).all()
    assert (sizes - taken >= 1)[sizes > 0].all()
    quota = size * divisible / max(divisible.sum(), 1)
    if (np.ceil(quota) <= np.maximum(divisible - 1, 0)).all():
        assert (np.abs(taken - quota) < 1).all()


def test_which_class_gives_the_odd_row_is_left_to_chance() -> None:
    labels = np.repeat(np.arange(10), 10)
    counts = sum(
        np.bincount(labels[draw_rows(labels, 5, stream(seed), "part")], minlength=10)
        for seed in range(400)
    )
    # 200 expected for each, standard deviation 10.
    assert (np.abs(counts - 200) < 50).all()


def test_every_row_is_equally_likely() -> None:
    labels = np.repeat([0, 1], [40, 20])
    counts = np.zeros(60)
    for seed in range(1000):
        counts[draw_rows(labels, 15, stream(seed), "part")] += 1
    # Each row is taken with probability 1/4: 250 ± 14 times.
    assert (np.abs(counts - 250) < 70).all()


def splits_of(dataset: FixedDataset, seed: int, held_out: bool = True) -> Splits:
    return dataset.split(Protocol(name="p"), seed, held_out=held_out)


def test_the_seed_decides_the_split_but_not_the_test_part() -> None:
    dataset = numbered([0, 1, 2] * 40)
    again = numbered([0, 1, 2] * 40)
    assert rows_of(splits_of(dataset, 5).train) == rows_of(splits_of(again, 5).train)
    assert rows_of(splits_of(dataset, 5).train) != rows_of(splits_of(dataset, 6).train)
    assert rows_of(dataset.test(5)) == rows_of(again.test(6))


def test_methods_with_and_without_held_out_data_share_validation_rows() -> None:
    dataset = numbered([0, 1, 2] * 40)
    with_meta, without_meta = splits_of(dataset, 1, True), splits_of(dataset, 1, False)
    assert rows_of(with_meta.validation) == rows_of(without_meta.validation)
    assert without_meta.meta_validation is None
    both = rows_of(with_meta.train) | rows_of(with_meta.meta_validation)
    assert both == rows_of(without_meta.train)


def test_a_protocol_can_have_every_method_train_on_the_same_rows() -> None:
    dataset, protocol = numbered([0, 1, 2] * 40), PROTOCOLS["meta_regularization"]
    with_meta, without_meta = (
        dataset.split(protocol, 1, held_out=held_out) for held_out in (True, False)
    )
    assert rows_of(with_meta.train) == rows_of(without_meta.train)
    assert rows_of(with_meta.validation) == rows_of(without_meta.validation)
    assert without_meta.meta_validation is None
    other = dataset.split(
        protocol.model_copy(update={"same_training_rows": False}), 1, held_out=False
    )
    assert len(other.train.labels) == len(without_meta.train.labels) + 12 * 90 // 120


@pytest.mark.parametrize("rare", [1, 2])
def test_a_rare_class_stays_in_training(rare: int) -> None:
    dataset = numbered([0] * 30 + [1] * 30 + [2] * rare)
    splits = splits_of(dataset, 0)
    assert (splits.train.labels == 2).sum() == rare


def test_too_few_rows_are_named() -> None:
    with pytest.raises(ValueError, match=r"the test part would be empty: 0\.25 of 4 rows"):
        numbered([0, 0, 1, 1])
    dataset = numbered([0, 1] * 20)
    greedy = Protocol(name="greedy", validation=20, meta_validation=9)
    with pytest.raises(ValueError, match="the meta-validation part of protocol 'greedy' needs 9"):
        dataset.split(greedy, 0, held_out=True)
    assert len(dataset.split(greedy, 0, held_out=False).train.labels) == 10


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="a seed must be 0 or more, found"):
        splits_of(numbered([0, 1] * 20), -1)


def test_streams_differ_by_every_word() -> None:
    draws = {stream(*words).random() for words in (("a", 1), ("a", 2), ("b", 1), (1,), ("a", 1, 0))}
    assert len(draws) == 5
    assert stream("a", 1).random() in draws
