"""Run one sweep on the Ray cluster whose head this is; ``ray submit`` copies this file there.

    ray submit cluster/local.yaml cluster/sweep.py -- SPEC [options of calsweep run]

SPEC is the name of a bundled spec, or a path below ``~/calsweep``, where the launcher file puts
the project. Records go to ``$CALSWEEP_STORE``, so the same command resumes, extends or repeats the
sweep. It needs calsweep on the head, but no other file of ``cluster`` beside it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

USAGE = "usage: sweep.py SPEC [options of calsweep run]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``calsweep run`` with this cluster and its store; returns 2 without a spec or a store."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 2
    if not _has(given, "--address"):
        given += ["--address", "auto"]
    if not _has(given, "--store"):
        store = os.environ.get("CALSWEEP_STORE")
        if not store:
            print("sweep.py: name a store with --store or CALSWEEP_STORE", file=sys.stderr)
            return 2
        given += ["--store", store]
    project = Path.home() / "calsweep"
    if project.is_dir():  # not so in an image that has the package installed
        os.chdir(project)
        sys.path.insert(0, str(project))
    from sweeps.cli.main import main as calsweep

    return calsweep(["run", *given])


def _has(given: Sequence[str], option: str) -> bool:
    return any(word == option or word.startswith(f"{option}=") for word in given)


if __name__ == "__main__":
    sys.exit(main())
