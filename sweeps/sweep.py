"""A sweep that was run, opened from the store by its name, without training anything."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from calibration.metrics.row_scores import RowScores
from calibration.text import count
from sweeps.analysis import Analysis, analyse
from sweeps.analysis.recommendation import Recommendation
from sweeps.analysis.records import (
    CellRecords,
    ConfirmedTrial,
    RowReader,
    SearchTrial,
    SweepRecords,
)
from sweeps.analysis.results import label
from sweeps.engine.cell import Cell
from sweeps.engine.evaluation import is_outdated
from sweeps.engine.plan import Options, Plan
from sweeps.errors import UserError
from sweeps.spec import ORACLE, LoadedSpec, SpecError, load_spec, read_spec
from sweeps.spec.reading import is_there
from sweeps.spec.schema import Spec
from sweeps.store import Store
from sweeps.store.ensembles import calibrator_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sweeps.report.notebook import Leaderboard

SPEC = "spec.yaml"
_PAGE = "report.html"


class Sweep:
    """The results of a sweep so far. Nothing here trains or writes a record.

    A notebook shows it as its leaderboard. Raises ``UserError`` if the store has nothing
    of it.
    """

    def __init__(self, loaded: LoadedSpec, store: Store) -> None:
        self.store = store
        name = loaded.spec.name
        if store.read_file(name, SPEC) is None:
            raise UserError(f"{store.root}: there is no sweep {name!r}; run it first")
        self.extension = extension(store, name)
        self.loaded = self.extension.applied(loaded)

    @property
    def spec(self) -> Spec:
        """Its spec."""
        return self.loaded.spec

    @property
    def name(self) -> str:
        """Its name, also that of its directory in the store."""
        return self.spec.name

    @cached_property
    def plan(self) -> Plan:
        """Its trials and their outcomes, as of the first access."""
        options = Options(persist=False, extra=self.extension.trials)
        plan = Plan(self.loaded, self.store, options)
        plan.replay()
        return plan

    @cached_property
    def records(self) -> SweepRecords:
        """The records of its trials, as of the first access; row scores are read on demand."""
        return records_of(self.plan, self.extension.look(self.spec))

    @property
    def has_results(self) -> bool:
        """Whether any trial has been confirmed."""
        cells = self.records.cells.values()
        return any(trial.done is not None for cell in cells for trial in cell.confirmed)

    @cached_property
    def analysis(self) -> Analysis:
        """Intervals, comparisons with the baseline, ranks, trade-offs, importance, costs."""
        return analyse(self.records)

    @property
    def recommendation(self) -> Recommendation:
        """What to use, what it gains, how surely and at what cost.

        ``recommendation.sentence`` is the answer in words.
        """
        return self.analysis.recommendation

    @property
    def results(self) -> pd.DataFrame:
        """One line per (dataset, row, calibrator, seed) with every metric."""
        return self.analysis.results

    @property
    def leaderboard(self) -> Leaderboard:
        """The deciding metric, main metrics and cost, best first; ``winner`` marks one per dataset.

        At most 12 columns, means over seeds; ``leaderboard.full`` has every metric with its
        spread and interval.
        """
        from sweeps.report.notebook import slim

        return slim(self.analysis.leaderboard)

    def report(self, baseline: str | None = None) -> str:
        """Write the report's page, tables and figures into the store; returns the page's location.

        ``baseline`` is what rows are compared with, as in ``calsweep report --baseline``. Raises
        ``UserError`` if nothing has been confirmed, if there is no such baseline, or with the
        reason if there is no page.
        """
        from calibration.threads import threads
        from sweeps.report.write import write_report

        self.require_results()
        with threads(1):
            written = write_report(self.records, self.store, baseline)
        if _PAGE in written.failures:
            raise UserError(f"{self.name}: {_PAGE} could not be made: {written.failures[_PAGE]}")
        return self.store.location(self.name, _PAGE)

    def export(
        self,
        out: str | Path,
        *,
        dataset: str | None = None,
        row: str | None = None,
        seed: int | None = None,
        accuracy: float | None = None,
        coverage: float | None = None,
    ) -> Path:
        """Write the winner, or another ``row``, as an MLflow model into the new directory ``out``.

        Like ``calsweep export``: ``dataset`` is required if there are several; ``accuracy`` or
        ``coverage`` sets the confidence below which the model abstains. Raises ``UserError`` if
        the sweep is not finished, has no such dataset, row or seed, or ``out`` is taken.
        """
        from sweeps.export.choice import choose
        from sweeps.export.package import Wish, assemble
        from sweeps.export.writing import check_place, write

        place = Path(out)
        check_place(place)
        chosen = choose(self.records, self.analysis, dataset, row, seed)
        write(assemble(self.loaded, self.store, chosen, Wish(accuracy, coverage)), place)
        return place

    def plot_reliability(self, dataset: str | None = None) -> Figure:
        """Reliability diagrams of the winner and of the uncalibrated baseline, side by side.

        Drawn from the scores of the test rows of each one's first confirmed seed. ``dataset``
        may be left out if there is one. Raises ``UserError`` if there is no such dataset, or
        nothing to draw.
        """
        from calibration.plots import reliability_grid
        from sweeps.report.gather import drawn_row

        self.require_results()
        names = list(self.loaded.datasets)
        where = dataset or (names[0] if len(names) == 1 else None)
        if where not in names:
            raise UserError(f"dataset: found {dataset!r}; name one of {', '.join(names)}")
        plain = self.analysis.baseline.row, "identity"
        wanted = dict.fromkeys([self.analysis.selection.winners.get(where, plain), plain])
        there = self.results[self.results["dataset"] == where]
        known = set(zip(there["row"], there["calibrator"], strict=True))
        drawn = {
            label(*pair): drawn_row(self.records, self.results, where, *pair)
            for pair in wanted
            if pair in known
        }
        if not drawn:
            raise UserError(f"{self.name}: neither a winner nor {label(*plain)} on {where}")
        return reliability_grid(
            {name: row.pair for name, row in drawn.items()},
            bins=self.spec.bins,
            groups={name: row.groups for name, row in drawn.items()},
            title=where,
        )

    def __repr__(self) -> str:
        done = f"{self.records.done} of {count(self.records.total, 'trial')} done"
        return f"<Sweep {self.name!r} in {self.store.root}: {done}>"

    def _repr_html_(self) -> str:
        """The leaderboard as a notebook shows it."""
        from sweeps.report.notebook import sweep_html

        return sweep_html(self.records, self.analysis)

    def require_results(self) -> None:
        """Raise ``UserError`` if no trial has been confirmed."""
        if not self.has_results:
            raise UserError(
                f"{self.name}: no trial has been confirmed yet, so there is nothing to report; "
                f"see calsweep status {self.name}"
            )


def records_of(plan: Plan, look: int = 1) -> SweepRecords:
    """The records that a replayed plan has read, as a value; importances are read now."""
    return SweepRecords(
        plan.loaded,
        {place: _cell_records(plan, cell) for place, cell in plan.cells.items()},
        total=plan.total,
        done=plan.done,
        failed=plan.failed,
        finished=plan.finished,
        reasons=plan.reasons,
        look=look,
        row_scores=_row_reader(plan),
    )


def _row_reader(plan: Plan) -> RowReader:
    """Reads and caches the scores of each test row."""
    known: dict[tuple[str, str], RowScores | None] = {}

    def read(trial: ConfirmedTrial, calibrator: str) -> RowScores | None:
        place = trial.key, calibrator
        if place not in known:
            evaluation = trial.evaluations.get(calibrator)
            known[place] = (
                None
                if trial.done is None or evaluation is None
                else plan.store.row_scores(
                    trial.done, plan.spec.evaluation.tag, calibrator, evaluation
                )
            )
        return known[place]

    return read


def _cell_records(plan: Plan, cell: Cell) -> CellRecords:
    study = cell.study
    front, best = set(study.front()), study.best()
    search = [
        SearchTrial(
            number,
            trial.key,
            plan.searched(trial),
            study.values(number) or (),
            on_front=number in front,
            best=number == best,
            summary=plan.summary(trial),
        )
        for number, trial in enumerate(plan.search_trials(cell))
    ]
    confirmed = []
    for trial in plan.confirmed(cell.dataset, cell.row):
        found = plan.result(trial)
        record, evaluations = (None, {}) if found is None else found
        # The store may have evaluations of others, whose code may be gone.
        known = {*plan.spec.calibrator_names, ORACLE}
        wanted = [name for name in evaluations if calibrator_of(name) in known]
        outdated = frozenset(name for name in wanted if is_outdated(name, evaluations[name]))
        confirmed.append(ConfirmedTrial(trial.key, trial.config, record, evaluations, outdated))
    kept = plan.store.importance(plan.spec.name, cell.study_id) if study.space.searched else None
    return CellRecords(cell.dataset, cell.row, plan.chosen(cell), search, confirmed, kept)


def open_sweep(name: str | Path, store: Store | str | Path = "runs") -> Sweep:
    """The sweep of that name, or of that YAML file, in a store.

    Relative paths in the store's own copy of the spec are relative to the original. Raises
    ``UserError`` if there is no such sweep, or if its data is gone or has changed its form.
    """
    place = store if isinstance(store, Store) else Store(store)
    path = Path(name)
    if len(path.parts) > 1 and is_there(path / SPEC):  # as a shell completes it
        return open_sweep(path.name, path.parent)
    if path.suffix in (".yaml", ".yml") or "/" in str(name):
        return Sweep(load_spec(path), place)
    text = _stored_spec(place, str(name))
    if text is None:
        known = ", ".join(sweep_names(place))
        remedy = f"there are: {known}" if known else "nor any other; is --store right?"
        raise UserError(f"{place.root}: there is no sweep {str(name)!r}; {remedy}")
    origin = Path(place.location(str(name), SPEC))
    try:
        written = text.decode()
    except UnicodeDecodeError as error:
        raise SpecError(f"{origin}: not UTF-8 text ({error}); run the sweep again") from None
    return Sweep(read_spec(written, origin, _directory(place, str(name))), place)


def sweep_names(store: Store) -> list[str]:
    """The names of the sweeps that a store holds."""
    return [name for name in store.sweeps() if store.read_file(name, SPEC) is not None]


class Extension(NamedTuple):
    """Additions to a sweep beyond its spec, and how often its results were looked at.

    ``trials`` are search trials for every cell, ``seeds`` confirm seeds, ``looks`` the numbers
    of seeds with which finished results were reported: each is one look.
    """

    trials: int = 0
    seeds: int = 0
    looks: tuple[int, ...] = ()

    def applied(self, loaded: LoadedSpec) -> LoadedSpec:
        """The spec with the added seeds."""
        if not self.seeds:
            return loaded
        more = {"confirm_seeds": loaded.spec.confirm_seeds + self.seeds}
        return replace(loaded, spec=loaded.spec.model_copy(update=more))

    def more(self, trials: int, seeds: int) -> Extension:
        """The larger of this and the requested extension."""
        return self._replace(trials=max(trials, self.trials), seeds=max(seeds, self.seeds))

    def look(self, spec: Spec) -> int:
        """The number, from 1, of the look at the results with this spec's seeds."""
        return len(self.looked(spec).looks)

    def looked(self, spec: Spec) -> Extension:
        """This, after a look at the results; with the same seeds it is the same look."""
        seen = spec.confirm_seeds in self.looks
        return self if seen else self._replace(looks=(*self.looks, spec.confirm_seeds))


NOTHING_ADDED = Extension()


def saved_state(
    loaded: LoadedSpec, store: Store, added: Extension = NOTHING_ADDED
) -> dict[str, Any]:
    """The state of a sweep besides its spec: its extension, and the base of relative paths."""
    state: dict[str, Any] = {
        "extra": added.trials,
        "seeds": added.seeds,
        "looks": list(added.looks),
        "directory": str(loaded.directory),
    }
    if store.local is not None:
        state["from_store"] = os.path.relpath(loaded.directory, store.local)
    return state


def _directory(store: Store, sweep: str) -> Path:
    """The base of relative paths in a sweep's spec, even if it was moved with its store."""
    state = store.state(sweep) or {}
    directory = Path(state.get("directory", "."))
    if not is_there(directory) and store.local is not None and "from_store" in state:
        return store.local / str(state["from_store"])
    return directory


def extension(store: Store, sweep: str) -> Extension:
    """The extension of a sweep beyond its spec."""
    state = store.state(sweep) or {}
    looks = tuple(int(seeds) for seeds in state.get("looks", ()))
    return Extension(int(state.get("extra", 0)), int(state.get("seeds", 0)), looks)


def _stored_spec(store: Store, name: str) -> bytes | None:
    try:
        return store.read_file(name, SPEC)
    except ValueError:  # not a valid name of a sweep
        return None
