"""One measurement in a process and a directory of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any


def isolated(
    module: str, what: str, *arguments: Any, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What the function ``what`` of a benchmark's module prints last, as JSON.

    It finds an empty directory in ``BENCH_DIRECTORY``, and what ``environment`` adds.
    """
    fixed = {"OMP_NUM_THREADS": "1", **(environment or {})}
    with tempfile.TemporaryDirectory(prefix="calsweep-bench-") as directory:
        done = subprocess.run(
            [sys.executable, "-m", module, what, *map(str, arguments)],
            env=os.environ | fixed | {"BENCH_DIRECTORY": directory},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(f"{what} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
