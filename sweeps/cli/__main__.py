"""``python -m sweeps.cli`` is the ``calsweep`` command."""

import sys

from sweeps.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
