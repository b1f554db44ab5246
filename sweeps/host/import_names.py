"""Whether ``calibration`` and ``cluster`` would be imported from calsweep.

Other distributions use these import names too (``uncertainty-calibration``, ``cluster``): installed
into the same environment they replace our files, and a module of that name in the working
directory, which is searched for the user's own code, comes first. Either fails far from its cause.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

OWN_MARK = '__distribution__ = "calsweep"'
_OTHERS = {"calibration": "uncertainty-calibration", "cluster": "cluster"}


def foreign_package(directory: Path) -> str | None:
    """The problem if a name resolves elsewhere, with ``directory`` searched first; else None.

    Call it before either package is imported.
    """
    before = list(sys.path)
    sys.path.insert(0, str(directory))
    try:
        for name, other in _OTHERS.items():
            found = importlib.util.find_spec(name)
            place = None if found is None else found.origin
            if place is not None and OWN_MARK in Path(place).read_text(errors="replace"):
                continue
            searched = found.submodule_search_locations if found else None
            where = place or next(iter(searched or ()), "nowhere")
            return (
                f"the package {name!r} would be imported from {where}, which is not part of "
                f"calsweep; rename or leave that directory, or, if the distribution {other!r} is "
                "installed here (it uses the same import name), install calsweep into a "
                "separate environment"
            )
    finally:
        sys.path[:] = before
    return None
