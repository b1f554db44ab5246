"""Every dataset, registered by importing it, and the names that users of datasets need."""

from calibration.data import (
    arrays,
    bac,
    blobs,
    bundled,
    cifar,
    idx,
    image_folder,
    image_table,
    packaged,
    spirals,
    table,
    tiny_imagenet,
)
from calibration.data.columns import Column
from calibration.data.dataset import (
    DATASETS,
    Dataset,
    DatasetOptions,
    Kind,
    Part,
    Splits,
    Transform,
)
from calibration.data.files import AbsentDataError, DataFileError
from calibration.data.fixed import FixedDataset
from calibration.data.loading import load_dataset
from calibration.data.protocol import PROTOCOLS, Protocol, Share

__all__ = [
    "DATASETS",
    "PROTOCOLS",
    "AbsentDataError",
    "Column",
    "DataFileError",
    "Dataset",
    "DatasetOptions",
    "FixedDataset",
    "Kind",
    "Part",
    "Protocol",
    "Share",
    "Splits",
    "Transform",
    "arrays",
    "bac",
    "blobs",
    "bundled",
    "cifar",
    "idx",
    "image_folder",
    "image_table",
    "load_dataset",
    "packaged",
    "spirals",
    "table",
    "tiny_imagenet",
]
