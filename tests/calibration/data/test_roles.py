"""Groups, times and folds: which rows may be in which part."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.data import PROTOCOLS, Dataset, Part, Splits, load_dataset
from calibration.data.grouped import draw_groups, latest_rows

PROTOCOL_NAMES = tuple(PROTOCOLS)


def frame_of(rows: int = 600, group_size: int = 6, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    groups = np.arange(rows) // group_size
    return pd.DataFrame(
        {
            "x": np.arange(rows, dtype=float),
            "customer": [f"c{g}" for g in groups],
            "day": pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(groups, unit="D")).astype(
                str
            ),
            "part": np.select(
                [groups % 10 == 0, groups % 10 == 1, groups % 10 == 2],
                ["test", "validation", "meta"],
                "train",
            ),
            "y": rng.integers(0, 3, rows),
        }
    )


def loaded(tmp_path: Path, frame: pd.DataFrame, **options: Any) -> Dataset:
    frame.to_csv(tmp_path / "t.csv", index=False)
    unused = [c for c in ("customer", "day", "part") if c in frame]  # a role may be dropped, too
    return load_dataset(
        "table", {"path": tmp_path / "t.csv", "target": "y", "drop": unused, **options}
    )


def parts_of(dataset: Dataset, protocol: str, seed: int = 0) -> list[Part]:
    splits = dataset.split(PROTOCOLS[protocol], seed, held_out=True)
    meta = None if PROTOCOLS[protocol].share_validation else splits.meta_validation
    found = (splits.train, meta, splits.validation, splits.apart, dataset.test(seed))
    return [part for part in found if part is not None]


def rows_of(part: Part) -> set[float]:
    return set(part.inputs[:, 0].tolist())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_no_group_is_in_two_parts(tmp_path: Path, protocol: str) -> None:
    dataset = loaded(tmp_path, frame_of(), group="customer")
    assert [column.name for column in dataset.columns] == ["x"]
    for seed in range(3):
        parts = parts_of(dataset, protocol, seed)
        assert sum(len(part.labels) for part in parts) == 600
        groups = [set((part.inputs[:, 0] // 6).tolist()) for part in parts]
        assert all(not (one & other) for one, other in combinations(groups, 2))
        assert len(parts[-1].labels) == pytest.approx(150, rel=0.1)
        for part in parts:
            shares = torch.bincount(part.labels, minlength=3) / len(part.labels)
            assert shares.min() > 0.2  # each class has a third of all rows
    first, second = (parts_of(dataset, "honest", seed)[2] for seed in (0, 1))
    assert rows_of(first) != rows_of(second)
    assert not dataset.fixed_split


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_parts_follow_each_other_in_time(tmp_path: Path, protocol: str) -> None:
    shuffled = frame_of().sample(frac=1, random_state=1)
    dataset = loaded(tmp_path, shuffled, time="day")
    assert dataset.fixed_split
    parts = parts_of(dataset, protocol)
    assert sum(len(part.labels) for part in parts) == 600
    stamps = [part.inputs[:, 0] // 6 for part in parts]  # train, meta, validation, choice, test
    for before, after in pairwise(stamps):
        assert before.max() < after.min()
    again = parts_of(dataset, protocol, seed=7)
    assert [rows_of(part) for part in parts] == [rows_of(part) for part in again]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_fold_column_gives_the_parts(tmp_path: Path, protocol: str) -> None:
    frame = frame_of()
    dataset = loaded(tmp_path, frame, fold="part", group="customer")
    rule = PROTOCOLS[protocol]

    def given_rows(*names: str) -> set[float]:
        return set(frame.loc[frame["part"].isin(names), "x"])

    assert rows_of(dataset.test(0)) == given_rows("test")
    for held_out in (False, True):
        splits = dataset.split(rule, 3, held_out=held_out)
        judging = rows_of(splits.validation)
        if splits.apart is not None:
            assert not judging & rows_of(splits.apart)
            judging |= rows_of(splits.apart)
        assert judging == given_rows("validation")
        aside = (held_out and not rule.share_validation) or rule.same_training_rows
        assert rows_of(splits.train) == (
            given_rows("train") if aside else given_rows("train", "meta")
        )
        if held_out:
            assert splits.meta_validation is not None
            assert rows_of(splits.meta_validation) == (
                judging if rule.share_validation else given_rows("meta")
            )


def test_folds_without_meta_rows_leave_a_share_of_the_training_rows(tmp_path: Path) -> None:
    frame = frame_of()
    frame.loc[frame["part"] == "meta", "part"] = "train"
    dataset = loaded(tmp_path, frame, fold="part", group="customer")
    splits = dataset.split(PROTOCOLS["honest"], 0, held_out=True)
    assert splits.meta_validation is not None
    meta, train = rows_of(splits.meta_validation), rows_of(splits.train)
    assert meta | train == set(frame.loc[frame["part"] == "train", "x"])
    assert not {x // 6 for x in meta} & {x // 6 for x in train}


def test_fingerprints_cover_what_divides_the_rows(tmp_path: Path) -> None:
    frame = frame_of()
    roles: list[dict[str, str]] = [
        *({}, {"group": "customer"}, {"time": "day"}, {"fold": "part"}),
        {"fold": "part", "group": "customer"},
    ]
    found = [loaded(tmp_path, frame, **options).fingerprint for options in roles]
    # As it was before there were groups: stored trials of such data stay what they are.
    assert found[0] == "79289f0ee9d83cb62bae6bda7b6e19fdb41eda2fc17bbdf3bd2eab8d6faf7e98"
    moved = frame.assign(customer=np.roll(frame["customer"], 1), part=np.roll(frame["part"], 6))
    found += [loaded(tmp_path, moved, **options).fingerprint for options in roles[1:4:2]]
    assert len(set(found)) == len(found)


def test_arrays_have_roles_too(tmp_path: Path) -> None:
    frame, path = frame_of(), tmp_path / "a.npz"
    arrays = {"X": frame[["x"]].to_numpy(), "y": frame["y"].to_numpy()}
    own = {"who": frame["customer"].to_numpy(str), "when": frame["x"].to_numpy() // 6}
    np.savez(path, **arrays, **own, part=frame["part"].to_numpy(str))
    grouped = load_dataset("arrays", {"path": path, "group": "who"})
    ours = loaded(tmp_path, frame, group="customer")
    assert rows_of(grouped.test(0)) == rows_of(ours.test(0))
    later = load_dataset("arrays", {"path": path, "time": "when"})
    assert rows_of(later.test(0)) == set(map(float, range(450, 600)))
    folds = load_dataset("arrays", {"path": path, "fold": "part"})
    assert rows_of(folds.test(0)) == set(frame.loc[frame["part"] == "test", "x"])
    test = {f"test_{name}": values[:30] for name, values in (arrays | own).items()}
    np.savez(path, **arrays, **own, **test)
    with pytest.raises(ValueError, match="group 'c0' is also in"):
        load_dataset("arrays", {"path": path, "group": "who"})
    with pytest.raises(ValueError, match="later than all of"):
        load_dataset("arrays", {"path": path, "time": "when"})
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="no fold array 'part'"):
        load_dataset("arrays", {"path": path, "fold": "part"})


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"customer": "one"}, {"group": "customer"}, "in whole groups"),
        ({"customer": None}, {"group": "customer"}, "600 rows have no group, first row 0"),
        ({"day": "03/04/2024"}, {"time": "day"}, "'03/04/2024' cannot be put in order"),
        ({"day": "2024-03-01"}, {"time": "day"}, "all of one time"),
        ({"day": [True, False] * 300}, {"time": "day"}, "true and false have no order"),
        ({"part": ["train", "dev"] * 300}, {"fold": "part"}, "unknown part 'dev'; write train"),
        ({"part": ["train", "test"] * 300}, {"fold": "part"}, "no row is in 'validation'"),
        (
            {"part": ["train", "test", "validation"] * 200},
            {"fold": "part", "group": "customer"},
            "group 'c0' is in test and train and validation by column 'part'",
        ),
        ({}, {"time": "day", "fold": "part"}, "'time' and 'fold' cannot be together"),
        ({}, {"time": "day", "group": "customer"}, "'time' and 'group' cannot be together"),
        ({}, {"fold": "part", "test_share": 0.5}, "leave 'test_share' out"),
        ({}, {"group": "custmer"}, "did you mean 'customer'"),
        ({}, {"group": "y"}, "cannot be both the target and group"),
        ({}, {"group": "part", "fold": "part"}, "cannot be both group and fold"),
        ({"y": [0, 1] * 200 + [1] * 200}, {"time": "day"}, "150 rows, all of class '1'"),
        ({"y": [0, 1] * 225 + [2, 1] * 75}, {"time": "day"}, "no row of class '2'"),
    ],
)
def test_errors_name_column_value_and_remedy(
    tmp_path: Path, change: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        loaded(tmp_path, frame_of().assign(**change), **options)
    assert "t.csv" in str(raised.value)


def test_a_class_that_validation_lacks_is_named(tmp_path: Path) -> None:
    frame = frame_of().assign(y=[0, 1] * 300)
    frame.loc[frame["part"] == "validation", "y"] = 1
    dataset = loaded(tmp_path, frame, fold="part")
    with pytest.raises(ValueError, match=r"the validation part .* all of class '1'"):
        dataset.split(PROTOCOLS["honest"], 0, held_out=False)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=20, max_size=60),
    classes=st.integers(2, 4),
    share=st.floats(0.1, 0.4),
    seed=st.integers(0, 1000),
)
def test_drawn_groups_are_whole_and_about_as_many_rows(
    sizes: list[int], classes: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    labels = rng.integers(0, classes, len(groups))
    size = round(share * len(groups))
    rows = draw_groups(labels, groups, size, rng, "a part")
    assert not set(groups[rows]) & set(np.delete(groups, rows))
    assert abs(len(rows) - size) <= max(sizes)
    assert set(np.delete(labels, rows)) == set(labels)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=200), st.integers(1, 100))
def test_latest_rows_are_those_of_the_nearest_boundary(stamps: list[int], size: int) -> None:
    times = np.array(stamps)
    if len(set(stamps)) < 2:
        with pytest.raises(ValueError, match="of one time"):
            latest_rows(times, size, "a part")
        return
    rows = latest_rows(times, size, "a part")
    assert times[rows].min() > np.delete(times, rows).max()
    off = [abs(int((times >= stamp).sum()) - size) for stamp in sorted(set(stamps))[1:]]
    assert abs(len(rows) - size) == min(off)


def test_splits_of_rows_without_roles_say_so(tmp_path: Path) -> None:
    splits: Splits = loaded(tmp_path, frame_of()).split(PROTOCOLS["nested"], 0, held_out=True)
    for part in (splits.train, splits.validation, splits.choice, splits.meta_validation):
        assert part is not None
        assert part.described == []
