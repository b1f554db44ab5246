"""The small datasets that come with scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from calibration.data.columns import Column
from calibration.data.dataset import DATASETS, Dataset, DatasetOptions, Part
from calibration.data.fixed import TEST_SHARE, FixedDataset
from calibration.data.protocol import Share


class BundledOptions(DatasetOptions):
    """The share of rows set aside as the test part."""

    test_share: Share = TEST_SHARE


@DATASETS.register("digits")
class Digits(BundledOptions):
    """1797 handwritten digits as 8×8 grey images, 10 classes."""

    def load(self) -> Dataset:
        """Load the images; the 17 grey levels 0…16 become 0, 15, …, 240."""
        bunch = _bundled("digits")
        images = torch.from_numpy((bunch.images * 15).astype(np.uint8))[:, None]
        rows = Part(images, torch.from_numpy(bunch.target.astype(np.int64)))
        names = tuple(str(name) for name in bunch.target_names)
        return FixedDataset("digits", "image", rows, names, test_share=self.test_share)


@DATASETS.register("breast_cancer")
class BreastCancer(BundledOptions):
    """569 tumours by 30 measurements, malignant or benign."""

    def load(self) -> Dataset:
        """Load the table."""
        return _table("breast_cancer", self.test_share)


@DATASETS.register("wine")
class Wine(BundledOptions):
    """178 wines by 13 chemical measurements, 3 cultivars."""

    def load(self) -> Dataset:
        """Load the table."""
        return _table("wine", self.test_share)


@DATASETS.register("iris")
class Iris(BundledOptions):
    """150 iris flowers by 4 measurements, 3 species."""

    def load(self) -> Dataset:
        """Load the table."""
        return _table("iris", self.test_share)


def _table(name: str, test_share: Share) -> Dataset:
    bunch = _bundled(name)
    rows = Part(
        torch.from_numpy(bunch.data.astype(np.float64)),
        torch.from_numpy(bunch.target.astype(np.int64)),
    )
    columns = tuple(Column(str(column), "numeric") for column in bunch.feature_names)
    names = tuple(str(label) for label in bunch.target_names)
    return FixedDataset(name, "table", rows, names, test_share=test_share, columns=columns)


def _bundled(name: str) -> Any:
    # Imported here: scikit-learn is slow to import, and other datasets do not need it.
    import sklearn.datasets

    return getattr(sklearn.datasets, f"load_{name}")()
