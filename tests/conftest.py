"""For all tests: their order, one thread for torch, whose tensors are small here, no deadlines."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile

import pytest
import torch
from hypothesis import settings

from calibration.models.backbones.torchvision_models import complete_torchvision

pytest_plugins = ("tests.archives",)

torch.set_num_threads(1)
# Decoded images of the tests do not belong among the user's.
if "CALSWEEP_CACHE" not in os.environ:
    os.environ["CALSWEEP_CACHE"] = tempfile.mkdtemp(prefix="calsweep-cache-")
    atexit.register(shutil.rmtree, os.environ["CALSWEEP_CACHE"], ignore_errors=True)
complete_torchvision()  # torchmetrics, transformers and timm import torchvision
settings.register_profile("calsweep", deadline=None)  # no test fails because a machine is slow
settings.load_profile("calsweep")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a worker of pytest-xdist or in the background: so would every command of a test.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first: none of them is begun last, while other processes idle."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
