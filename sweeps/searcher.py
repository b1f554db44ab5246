"""The plan behind Ray Tune's Searcher interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.tune.search import Searcher

from sweeps.plan import Entry, Plan

_LIVE: dict[int, PlanSearcher] = {}


class PlanSearcher(Searcher):
    """Hands Tune the plan's next trial and tells the plan when one has ended."""

    def __init__(
        self, plan: Plan, shared: dict[str, Any], on_event: Callable[[Entry], None]
    ) -> None:
        super().__init__()
        self.plan = plan
        self.shared = shared
        self.on_event = on_event
        self._entries: dict[str, Entry] = {}
        _LIVE[id(self)] = self

    def __reduce__(self) -> tuple[Any, ...]:
        """Tune pickles and copies what it is given; a plan is one thing and stays one."""
        return _live, (id(self),)

    def suggest(self, trial_id: str) -> Any:
        """A configuration; None to wait; FINISHED when nothing will come any more."""
        entry = self.plan.next()
        if entry is None:
            return str(Searcher.FINISHED) if self.plan.finished else None
        self._entries[trial_id] = entry
        return self.shared | {"trial": entry.config.model_dump(mode="json")}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """The trial's record lies in the store, unless its process died too often."""
        entry = self._entries.pop(trial_id)
        self.plan.complete(entry.key)
        self.on_event(entry)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the plan is rebuilt from the store."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the plan is rebuilt from the store."""


def _live(identity: int) -> PlanSearcher:
    return _LIVE[identity]
