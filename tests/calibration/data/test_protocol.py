from __future__ import annotations

import pytest

from calibration.data import PROTOCOLS, Protocol, load_dataset
from calibration.hyperparameters import SettingError


def sizes(name: str, protocol: str, held_out: bool) -> tuple[int, int, int | None]:
    splits = load_dataset(name, {}).split(PROTOCOLS[protocol], 3, held_out=held_out)
    meta = splits.meta_validation
    return (
        len(splits.train.labels),
        len(splits.validation.labels),
        None if meta is None else len(meta.labels),
    )


@pytest.mark.parametrize(
    ("name", "protocol", "held_out", "expected"),
    [
        ("blobs-1.7", "honest", False, (700, 300, None)),
        ("blobs-1.7", "honest", True, (550, 300, 150)),
        ("blobs-1.7", "bo4sc", False, (700, 300, None)),
        ("blobs-1.7", "bo4sc", True, (700, 300, 300)),
        ("bac", "meta_regularization", True, (800, 100, 100)),
        # 1797 digits less round(0.25 · 1797) = 449 for testing are 1348.
        ("digits", "honest", False, (1146, 202, None)),
        ("digits", "honest", True, (944, 202, 202)),
        # All rows of the paper's tables train on the same rows.
        ("digits", "meta_regularization", False, (1078, 135, None)),
        ("blobs-1.7", "nested", False, (700, 150, None)),
        ("blobs-1.7", "nested", True, (550, 150, 150)),
        # round(0.2 · 1348) = 270 rows, half of them to choose by.
        ("digits", "nested", False, (1078, 135, None)),
        ("digits", "nested", True, (876, 135, 202)),
    ],
)
def test_named_protocols_have_their_sizes(
    name: str, protocol: str, held_out: bool, expected: tuple[int, int, int | None]
) -> None:
    assert sizes(name, protocol, held_out) == expected


def test_bo4sc_learns_and_selects_on_the_same_points() -> None:
    splits = load_dataset("blobs-1.3", {}).split(PROTOCOLS["bo4sc"], 0, held_out=True)
    assert splits.meta_validation is not None
    assert splits.meta_validation.inputs.equal(splits.validation.inputs)


def test_counts_are_rows_and_fractions_are_of_the_pool() -> None:
    protocol = Protocol(name="mine", validation=40, meta_validation=0.5)
    splits = load_dataset("spiral-2.5", {"points": 200}).split(protocol, 0, held_out=True)
    assert splits.meta_validation is not None
    assert len(splits.validation.labels) == 40
    assert len(splits.meta_validation.labels) == 100
    assert len(splits.train.labels) == 60


@pytest.mark.parametrize("share", [0, 1.0, 1.5, -0.1, True, "0.2", float("nan")])
def test_share_must_be_a_fraction_or_a_count(share: object) -> None:
    with pytest.raises(SettingError, match=r"'validation'.*fraction between 0 and 1 or a whole"):
        Protocol.checked({"name": "mine", "validation": share}, "protocol")


@pytest.mark.parametrize(("choice", "rows"), [(0.5, 20), (0.25, 10), (7, 7)])
def test_choice_is_a_share_of_the_validation_rows(choice: float, rows: int) -> None:
    protocol = Protocol(name="mine", validation=40, choice=choice)
    splits = load_dataset("spiral-2.5", {"points": 200}).split(protocol, 0, held_out=False)
    assert splits.apart is not None
    assert len(splits.choice.labels) == rows
    assert len(splits.validation.labels) == 40 - rows
    assert len(splits.train.labels) == 160


@pytest.mark.parametrize("choice", [0.001, 0.999, 40, 41])
def test_both_halves_of_the_validation_rows_need_some(choice: float) -> None:
    protocol = Protocol(name="mine", validation=40, choice=choice)
    with pytest.raises(ValueError, match=r"choice part of protocol 'mine'.* of 40 validation rows"):
        load_dataset("blobs-1.3", {}).split(protocol, 0, held_out=False)


def test_without_choice_validation_rows_choose() -> None:
    splits = load_dataset("blobs-1.3", {}).split(PROTOCOLS["honest"], 0, held_out=False)
    assert splits.apart is None
    assert splits.choice is splits.validation
