"""For all tests: one thread for torch, whose tensors are small here, and no deadlines."""

from __future__ import annotations

import signal

import torch
from hypothesis import settings

pytest_plugins = ("tests.archives",)

torch.set_num_threads(1)
settings.register_profile("calsweep", deadline=None)  # no test fails because a machine is slow
settings.load_profile("calsweep")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a worker of pytest-xdist or in the background: so would every command of a test.
    signal.signal(signal.SIGINT, signal.default_int_handler)
