"""The searches of a sweep, one for each cell: their suggestions and results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sweeps.engine.cell import Cell, Cells, PlannedTrial, objective_values
from sweeps.search import Result
from sweeps.search.stopping import rung_values
from sweeps.spec.schema import Spec
from sweeps.store import Store, TrialRecord


class Searches:
    """Asks the studies of the ``cells`` in turn and persists what they suggest.

    ``persist``: suggestions are stored; ``asked`` is called for every new one.
    """

    def __init__(
        self,
        spec: Spec,
        store: Store,
        make: Cells,
        cells: Mapping[tuple[str, str], Cell],
        *,
        persist: bool,
        asked: Callable[[Cell, int], None],
    ) -> None:
        self.spec, self.store, self.persist, self.asked = spec, store, persist, asked
        self._make = make
        self._turns = deque(cells.values())

    def next_cell(self) -> Cell | None:
        """The cell whose turn it is to suggest something; None if none can now."""
        for _ in range(len(self._turns)):
            self._turns.rotate(-1)
            study = self._turns[0].study
            if not (study.exhausted or study.waiting):
                return self._turns[0]
        return None

    def ask(self, cell: Cell) -> PlannedTrial:
        """The trial of the next suggestion, which is persisted now."""
        number, hyperparameters = cell.study.ask()
        trial = self._make.search_trial(cell, number, hyperparameters)
        if self.persist:
            suggestion = {"number": number, "hyperparameters": hyperparameters, "key": trial.key}
            self.store.write_suggestion(self.spec.name, cell.study_id, number, suggestion)
        self.asked(cell, number)
        return trial

    def ask_round(self, cell: Cell) -> list[PlannedTrial]:
        """The next suggestion; if the search goes in rounds, the whole next round."""
        asked = [self.ask(cell)]
        while cell.study.mid_round:
            asked.append(self.ask(cell))
        return asked

    def persisted(self, cell: Cell) -> Iterator[list[PlannedTrial]]:
        """The trials whose suggestions the store has, round by round.

        What an interrupted round lacks is suggested before the search learns its results, as
        without the interruption.
        """
        suggestions = self.store.suggestions(self.spec.name, cell.study_id)
        known: list[PlannedTrial] = []
        for number in range(max(suggestions, default=-1) + 1):
            if cell.study.budget is not None and number >= cell.study.budget:
                break  # of a larger budget than this spec's
            suggested = self._suggested(cell, number, suggestions.get(number))
            known.append(suggested or self.ask(cell))
            if not cell.study.mid_round:
                yield known
                known = []
        while self.persist and known and cell.study.mid_round:
            known.append(self.ask(cell))
        yield known

    def _suggested(
        self, cell: Cell, number: int, suggestion: Mapping[str, Any] | None
    ) -> PlannedTrial | None:
        """The trial of a persisted suggestion; None if it was damaged or cannot be the study's."""
        if suggestion is None:
            return None
        try:
            hyperparameters = suggestion["hyperparameters"]
            cell.study.replay(number, hyperparameters)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"its study cannot have made it ({error})"
            self.store.reject_suggestion(self.spec.name, cell.study_id, number, reason)
            return None
        return self._make.search_trial(cell, number, hyperparameters)

    def tell(self, cell: Cell, number: int, record: TrialRecord | None) -> None:
        """Tell a search the outcome of one of its trials."""
        for epoch, nll in rung_values(record.curve if record else (), cell.study.rungs).items():
            cell.study.note(number, epoch, nll)
        if record is None or record.status == "failed":
            # At least a second: a search bounded by time alone must end even if everything fails.
            seconds = max(1.0, record.seconds if record else 0.0)
            cell.study.tell(number, Result((), float("nan"), seconds, "failed"))
            return
        values = objective_values(record.validation, self.spec.search.objective)
        nll = record.validation.get("nll", float("nan"))
        cell.study.tell(number, Result(values, nll, record.seconds, record.status))

    def keep_importance(self, cell: Cell) -> None:
        """Store which hyperparameters mattered in an ended search: reports make no study."""
        study, sweep = cell.study, self.spec.name
        if not self.persist or not study.space.searched:
            return
        finished = sum(study.values(number) is not None for number in range(study.asked))
        known = self.store.importance(sweep, cell.study_id)
        if known is None or known.get("trials") != finished:
            found = {"trials": finished, "shares": study.importance()}
            self.store.write_importance(sweep, cell.study_id, found)
