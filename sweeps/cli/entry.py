"""The entry point of ``calsweep``, before anything is imported from another package."""

from __future__ import annotations

import sys
from pathlib import Path

from sweeps.host.import_names import foreign_package


def main() -> int:
    """Run the command, or report that another distribution shadows its packages."""
    try:
        try:
            trouble = foreign_package(Path.cwd())
        except OSError:  # the working directory is gone: nothing can be imported from it
            trouble = None
        if trouble is not None:
            print(f"calsweep: {trouble}", file=sys.stderr)
            return 2
        from sweeps.cli.main import main as command
    except KeyboardInterrupt:  # the imports may take seconds
        print("calsweep: stopped; nothing was started", file=sys.stderr)
        return 130
    return command()
