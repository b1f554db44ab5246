"""Sweeps over calibration methods: spec, search, records, tracking, report.

From Python: ``run(spec)`` runs or continues a sweep, ``load(name)`` opens one that was run.

>>> spec = {
...     "name": "first",
...     "datasets": ["blobs-1.7"],
...     "methods": {"standard": {"lr": 0.01, "weight_decay": 0}},
...     "training": {"epochs": 20, "batch_size": "full"},
...     "confirm_seeds": 2,
...     "calibrators": ["temperature"],
... }
>>> run(spec).results.groupby(["row", "calibrator"])["ece"].count()["standard"].to_dict()
{'identity': 2, 'temperature': 2}
>>> first = load("first")  # a notebook shows it as a table
>>> first.leaderboard["seeds"].unique().tolist()
[2]
>>> len(first.leaderboard.columns), len(first.leaderboard.full.columns) > 100
(12, True)
>>> first.plot_reliability()  # the winner and the plain network  # doctest: +ELLIPSIS
<Figure size ...>
>>> first.report()  # doctest: +ELLIPSIS
'...report.html'
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.sweep import Sweep

__all__ = ["load", "run"]

# The modules behind these two take seconds to import; the name of a package should not.


def run(
    spec: str | Path | Mapping[str, Any],
    *,
    store: str | Path = "runs",
    tracking: str | None = None,
    address: str | None = None,
) -> Sweep:
    """Run, resume or repeat a sweep, like ``calsweep run``, and open it.

    ``spec`` is a YAML file, the name of a bundled spec, or the same as a mapping; ``store`` a
    directory or URI, ``tracking`` an MLflow URI (default: the spec's, or sqlite in the
    store), ``address`` a running Ray cluster. Raises ``sweeps.errors.UserError``: of its
    subclasses ``sweeps.spec.SpecError`` for an invalid spec and
    ``sweeps.store.StoreError`` for a store that cannot be used. A failed trial is not an
    error, and is not part of the results.
    """
    from sweeps.host.process import left_as_found

    with left_as_found():
        from sweeps.runner import run_spec

        return run_spec(spec, store=store, tracking=tracking, address=address)


def load(sweep: str | Path, *, store: str | Path = "runs") -> Sweep:
    """Open a sweep that was run, by its name or its YAML file.

    ``load(name).results`` is a DataFrame with one line per (dataset, row, calibrator, seed)
    and every metric; ``.leaderboard`` has the means over seeds that answer most questions,
    ``.leaderboard.full`` every metric and interval, ``.analysis`` the comparisons, costs and
    importances; ``.report()`` and ``.export(out)`` work like the commands, and
    ``.plot_reliability()`` draws the winner. Raises ``sweeps.errors.UserError`` if the store has
    no such sweep.
    """
    from sweeps.host.process import left_as_found

    with left_as_found():
        from sweeps.sweep import open_sweep

        return open_sweep(sweep, store)
