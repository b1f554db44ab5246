"""One thread for torch: the tests' tensors are small, and more would only get in the way."""

from __future__ import annotations

import torch

pytest_plugins = ("tests.archives",)

torch.set_num_threads(1)
