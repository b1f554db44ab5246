"""``python -m sweeps.cli`` is the ``calsweep`` command."""

import sys

from sweeps.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
