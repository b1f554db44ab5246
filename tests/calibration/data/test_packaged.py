"""Tables that come with other packages."""

from __future__ import annotations

import pytest

from calibration.data import AbsentDataError, load_dataset
from calibration.data.packaged import PackagedOptions

TABLES = {
    "diamonds": (53_940, 9, 5, 0.030),
    "happiness": (17_137, 24, 3, 0.122),
    "catholic_schools": (7_430, 11, 2, 0.061),
    "affairs": (6_366, 8, 2, 0.322),
    "mortgages": (1_989, 56, 2, 0.123),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_whole(name: str) -> None:
    rows, columns, classes, rarest = TABLES[name]
    dataset = load_dataset(name, {"test_share": 0.2})
    assert dataset.kind == "table"
    assert (len(dataset.columns), dataset.classes) == (columns, classes)
    labels = dataset.test(0).labels
    assert len(labels) == round(0.2 * rows)
    assert labels.bincount().min() / len(labels) == pytest.approx(rarest, abs=0.002)


def test_a_missing_package_is_named_with_the_command() -> None:
    class Elsewhere(PackagedOptions):
        name = "elsewhere"
        package, file, target = "no_such_package", "table.csv", "y"

    with pytest.raises(AbsentDataError, match=r"'no_such_package'.*pip install 'calsw"):
        Elsewhere().load()

    class Gone(PackagedOptions):
        name = "gone"
        package, file, target = "statsmodels", "datasets/gone.csv", "y"

    with pytest.raises(AbsentDataError, match=r"no file datasets/gone\.csv"):
        Gone().load()
