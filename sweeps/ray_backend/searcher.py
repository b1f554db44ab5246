"""The plan behind Ray Tune's Searcher and scheduler interfaces."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.errors import UserError
from sweeps.ray_backend.assignment import ASSIGNMENT, Assignment, Terms
from sweeps.store import StoreError

log = logging.getLogger("calsweep")

LOST_NODE = 0.02
"""Of a death: with three retries a trial outlives a hundred and fifty lost machines."""
WEIGHTS = {
    "node has died": LOST_NODE,
    "node was terminated": LOST_NODE,
    "preempted": LOST_NODE,
    # The machine or the process: it is not known yet.
    "temporarily unavailable": 0.5,
}
"""How Ray says that a machine is gone, or may be, and not only a process."""
_MISSING = re.compile(r"No module named '(calibration|sweeps|cluster)\b")
_LIVE: dict[int, PlanSearcher] = {}


class PlanSearcher(Searcher):
    """Hands Tune the plan's next trial and tells the plan when one has ended.

    A store that cannot be used, or a sampler that fails, ends the sweep: ``failure`` keeps
    what it said, because Tune wraps what is raised through it.
    """

    def __init__(
        self,
        plan: Plan,
        terms: Terms,
        on_event: Callable[[PlannedTrial], None],
        still_ours: Callable[[], None] = lambda: None,
        room: Callable[[], int] = lambda: 10**9,
    ) -> None:
        super().__init__()
        self.still_ours = still_ours
        self.room = room
        self.plan = plan
        self.terms = terms
        self.on_event = on_event
        self.failure: UserError | None = None
        self.attended = False
        """Some worker has trained: what another lacks is its own node's fault."""
        self._turned_away: set[str] = set()
        self._builds: dict[str, str] = {}
        self.causes: dict[str, str] = {}
        self._trials: dict[str, PlannedTrial] = {}
        _LIVE[id(self)] = self

    def close(self) -> None:
        """The search is over: nobody copies it any more."""
        _LIVE.pop(id(self), None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Tune pickles and copies what it is given; a plan is one thing and stays one."""
        return _live, (id(self),)

    def suggest(self, trial_id: str) -> Any:
        """A configuration; None to wait; FINISHED when nothing will come any more."""
        self._guarded(self.still_ours)
        if len(self._trials) >= self.room():
            return None
        trial = self._guarded(self.plan.next)
        if trial is None:
            return str(Searcher.FINISHED) if self.plan.finished else None
        self._trials[trial_id] = trial
        rungs = self.plan.cells[trial.cell].study.rungs if trial.config.phase == "search" else []
        return {ASSIGNMENT: Assignment(trial.config, tuple(rungs), self.terms)}

    def stops(self, trial_id: str, body: str) -> bool:
        """Whether the plan stops a trial that has come so far."""
        trial = self._trials[trial_id]
        return bool(self._guarded(lambda: self.plan.report(trial, json.loads(body))))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """The trial's record lies in the store, unless its process died."""
        trial = self._trials.pop(trial_id)
        if result and "unfit" in result:
            self._turn_away(trial, result["unfit"])
            return
        if result and "store_error" in result:
            self.failure = StoreError(result["store_error"])
            raise self.failure
        if error:
            cause = self.causes.pop(trial_id, "for no known reason")
            if _MISSING.search(cause):
                self.failure = StoreError(
                    f"a node of the cluster has no calsweep, or not all of it ({cause[:300]}); "
                    "install the same on every node"
                )
                raise self.failure
            self._guarded(lambda: self.plan.died(trial, cause, weight_of(cause)))
        else:
            self.attended = True
            self._guarded(lambda: self.plan.complete(trial.key))
        self.on_event(trial)

    def _turn_away(self, trial: PlannedTrial, reason: str) -> None:
        """A node that joined cannot train: the others go on, if there are any that can."""
        if not self.attended:
            self.failure = StoreError(reason)
            raise self.failure
        if reason not in self._turned_away:
            self._turned_away.add(reason)
            log.warning("%s; its trials go to other nodes", reason)
        self._guarded(lambda: self.plan.died(trial, reason, LOST_NODE))
        self.on_event(trial)

    def compare_builds(self, node: str, build: str) -> None:
        """Name a node whose build of torch is another than that of those before: once."""
        if build not in self._builds.values() and self._builds:
            other, known = next(iter(self._builds.items()))
            log.warning(
                "node %s has torch %s and node %s has torch %s: their results may differ in the "
                "last digits; install the same build on every node",
                *(node, build, other, known),
            )
        self._builds[node] = build

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the plan is rebuilt from the store."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the plan is rebuilt from the store."""

    def _guarded(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except UserError as error:
            self.failure = error
            raise


def weight_of(cause: str) -> float:
    """How much a death counts against a trial's retries, as far as Ray's words tell."""
    return next((weight for words, weight in WEIGHTS.items() if words in cause), 1.0)


class PlanScheduler(FIFOScheduler):
    """Asks the plan at every rung whether a trial goes on."""

    def __init__(self, searcher: PlanSearcher) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.searcher = searcher

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """None: Tune starts what waits, in order.

        FIFO's own answer looks through all trials there ever were, at every step, and gives
        a process that has become free to a trial whose own is being started, which is ended
        then. Where trials end more often than processes start, machines that join later
        would never get to work.
        """
        return None

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Tune's question after every report."""
        self.searcher.attended |= not {"unfit", "store_error"} & result.keys()
        if "build" in result:
            self.searcher.compare_builds(str(result["node"]), str(result["build"]))
        body = result.get("body")
        if body is not None and self.searcher.stops(trial.trial_id, body):
            return str(TrialScheduler.STOP)
        return str(TrialScheduler.CONTINUE)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Keep why a process died; the searcher is told of the death right after."""
        # Tune's own get_error looks where the file comes only later.
        written = Path(trial.error_file) if trial.error_file else None
        lines = written.read_text().splitlines() if written and written.exists() else []
        message = [line.strip() for line in lines if line.strip() and "Failure #" not in line]
        self.searcher.causes[trial.trial_id] = " ".join(message)[:500] or "for no known reason"


class Forget(Callback):
    """Drops the curves that came with a report: Tune keeps every trial's last result."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Tune lets callbacks change a result in place."""
        result.pop("body", None)


def _live(identity: int) -> PlanSearcher:
    return _LIVE[identity]
