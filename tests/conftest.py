"""One thread for torch: the tests' tensors are small, and more would only get in the way."""

from __future__ import annotations

import os
import signal

import torch

pytest_plugins = ("tests.archives",)

torch.set_num_threads(1)

if "PYTEST_XDIST_WORKER" in os.environ:
    # It ignores Ctrl-C, and so would every command that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
