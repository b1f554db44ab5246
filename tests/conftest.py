"""One thread for torch: the tests' tensors are small, and more would only get in the way."""

from __future__ import annotations

import signal

import torch

pytest_plugins = ("tests.archives",)

torch.set_num_threads(1)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a worker of pytest-xdist or in the background: so would every command of a test.
    signal.signal(signal.SIGINT, signal.default_int_handler)
