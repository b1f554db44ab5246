"""Workers that are forked from one process draw ids of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORKS = """
import os
from contextlib import nullcontext
from sweeps.ray_backend.template import _ids_of_the_system
with MANNER():
    import sweeps.ray_backend.trainable
import ray
for _ in range(3):
    if os.fork() == 0:
        os.write(1, ray.ObjectID.from_random().hex().encode() + b"\\n")
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize(("manner", "different"), [("_ids_of_the_system", 3), ("nullcontext", 1)])
def test_forks_of_what_has_imported_ray_tune(manner: str, different: int) -> None:
    """Without care they would be the same: importing it draws from Ray's own generator."""
    command = [sys.executable, "-c", FORKS.replace("MANNER", manner)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    drawn = done.stdout.split()
    assert len(drawn) == 3
    assert len(set(drawn)) == different
