"""Known MD5 sums of public datasets, of the uncompressed files: they do not depend on packing."""

from __future__ import annotations

MD5: dict[str, dict[str, str]] = {
    "mnist": {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
    "cifar10": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    "cifar100": {
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
        "test.bin": "4499cfba6c016c1be1438163640a0898",
    },
}
