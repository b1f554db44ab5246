"""The plan behind Ray Tune's Searcher and scheduler interfaces."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.errors import UserError
from sweeps.host.stages import WORKERS, stage
from sweeps.ray_backend.assignment import ASSIGNMENT, AssignedTrial, Assignment, Terms
from sweeps.store import StoreError

log = logging.getLogger("calsweep")

LOST_NODE = 0.02
"""Its share of a death: with three retries a trial survives 150 lost machines."""
WEIGHTS = {
    "node has died": LOST_NODE,
    "node was terminated": LOST_NODE,
    "preempted": LOST_NODE,
    # The machine or the process: it is not known yet.
    "temporarily unavailable": 0.5,
}
"""How Ray words it that a machine, and not only a process, is lost or may be."""
_MISSING = re.compile(r"No module named '(calibration|sweeps|cluster)\b")
_LIVE: dict[int, PlanSearcher] = {}


class _Given:
    """A worker's assignment: the trials that have not ended, and how many there were."""

    def __init__(self, trials: Sequence[PlannedTrial]) -> None:
        self.trials = {trial.key: trial for trial in trials}
        self.company = len(trials)


class PlanSearcher(Searcher):
    """Gives Tune the plan's next trials, and tells the plan when one has ended.

    A trial of Tune is one of ours, or a cohort of them. A store that cannot be used, or a sampler
    that fails, ends the sweep: ``failure`` keeps the error, since Tune wraps it in its own.
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
        """Whether any worker has trained: then a problem of another is that of its own node."""
        self._turned_away: set[str] = set()
        self._builds: dict[str, str] = {}
        self.causes: dict[str, str] = {}
        self._given: dict[str, _Given] = {}
        self._counted: dict[str, int] = {}
        _LIVE[id(self)] = self

    def close(self) -> None:
        """Forget this searcher: Tune does not copy it any more."""
        _LIVE.pop(id(self), None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Tune pickles and copies its arguments, but there must be only one plan."""
        return _live, (id(self),)

    def suggest(self, trial_id: str) -> Any:
        """A configuration; None to wait; FINISHED if there will be no more."""
        self._guarded(self.still_ours)
        room = self.room()
        if len(self._given) >= room:
            return None
        with stage("suggest"):
            cohort = self._guarded(partial(self._next, room))
        if not cohort:
            return str(Searcher.FINISHED) if self.plan.finished else None
        self._given[trial_id] = _Given(cohort)
        return {ASSIGNMENT: Assignment(tuple(map(self._member, cohort)), self.terms)}

    def _next(self, workers: int) -> list[PlannedTrial]:
        if not self.terms.paced:
            return self.plan.next_cohort(workers)
        trial = self.plan.next()  # costs that are compared between nights are measured alone
        return [] if trial is None else [trial]

    def _member(self, trial: PlannedTrial) -> AssignedTrial:
        search = trial.config.phase == "search"
        rungs = self.plan.cells[trial.cell].study.rungs if search else ()
        return AssignedTrial(trial.config, trial.study_id, tuple(rungs))

    def stops(self, trial_id: str, bodies: str) -> bool:
        """Whether the plan stops all trials that are left, now that these have reached a rung.

        Those of a cohort that are stopped have ended; the worker learns of it from the store.
        """
        given = self._given[trial_id]
        stopped = [
            given.trials[key]
            for key, body in json.loads(bodies).items()
            if self._guarded(partial(self.plan.report, given.trials[key], body))
        ]
        if len(stopped) == len(given.trials):
            return True
        self._complete(given, stopped)
        return False

    def add_stages(self, trial_id: str, result: dict[str, Any]) -> None:
        """Count a worker's seconds, once: Tune may report a last result twice."""
        number = result.get("training_iteration", 0)
        if self._counted.get(trial_id) != number:
            self._counted[trial_id] = number
            WORKERS.add(json.loads(result["stages"]))

    def ended(self, trial_id: str, keys: str) -> None:
        """Trials of a cohort have their records; the others continue."""
        given = self._given[trial_id]
        self._complete(given, [given.trials[key] for key in json.loads(keys)])

    def _complete(self, given: _Given, trials: Sequence[PlannedTrial]) -> None:
        for trial in trials:
            del given.trials[trial.key]
            with stage("record"):
                self._guarded(partial(self.plan.complete, trial.key))
            self.on_event(trial)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """All trials that were left have their records, unless their process died."""
        given = self._given.pop(trial_id)
        left = list(given.trials.values())
        if result and "stages" in result:
            self.add_stages(trial_id, result)
        self._counted.pop(trial_id, None)
        if result and "unfit" in result:
            self._turn_away(left, result["unfit"])
            return
        if result and "store_error" in result:
            self.failure = StoreError(result["store_error"])
            raise self.failure
        if error:
            cause = self.causes.pop(trial_id, "for no known reason")
            if _MISSING.search(cause):
                self.failure = StoreError(
                    f"calsweep is missing or incomplete on a node of the cluster ({cause[:300]}); "
                    "install the same version on every node"
                )
                raise self.failure
            self._died(left, cause, given.company)
        else:
            self.attended = True
            self._complete(given, left)

    def _died(self, trials: Sequence[PlannedTrial], cause: str, company: int) -> None:
        weight = weight_of(cause)
        if company > 1 and weight > LOST_NODE:
            log.warning(
                "a process that trained %d trials together died (%s); they continue alone",
                *(company, cause[:300]),
            )
            self._guarded(lambda: self.plan.split(trials))
        else:
            for trial in reversed(trials):  # each is put before those that wait
                self._guarded(partial(self.plan.died, trial, cause, weight))
        for trial in trials:
            self.on_event(trial)

    def _turn_away(self, trials: Sequence[PlannedTrial], reason: str) -> None:
        """A node that joined cannot train: the others continue, if any of them can."""
        if not self.attended:
            self.failure = StoreError(reason)
            raise self.failure
        if reason not in self._turned_away:
            self._turned_away.add(reason)
            log.warning("%s; its trials go to other nodes", reason)
        for trial in reversed(trials):
            self._guarded(partial(self.plan.died, trial, reason, LOST_NODE))
            self.on_event(trial)

    def compare_builds(self, node: str, build: str) -> None:
        """Warn of a build of torch that no earlier node has, once for each build."""
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
    """How much a death counts against a trial's retries, by Ray's description of its cause."""
    return next((weight for words, weight in WEIGHTS.items() if words in cause), 1.0)


class PlanScheduler(FIFOScheduler):
    """Asks the plan at every rung whether a trial continues."""

    def __init__(self, searcher: PlanSearcher) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.searcher = searcher

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """None: Tune starts waiting trials in order.

        FIFO's own answer searches all trials there ever were, at every step, and gives a process
        that has become free to a trial whose own process is starting and is then ended. If trials
        end more often than processes start, machines that join later would never get any work.
        """
        return None

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Process a report; returns whether the trial continues."""
        self.searcher.attended |= not {"unfit", "store_error"} & result.keys()
        if "build" in result:
            self.searcher.compare_builds(str(result["node"]), str(result["build"]))
        if "stages" in result:
            self.searcher.add_stages(trial.trial_id, result)
        if "apart" in result:
            self.searcher.plan.keep_apart(str(result["apart"]))
        if "ended" in result:
            self.searcher.ended(trial.trial_id, result["ended"])
        bodies = result.get("bodies")
        if bodies is not None and self.searcher.stops(trial.trial_id, bodies):
            return str(TrialScheduler.STOP)
        return str(TrialScheduler.CONTINUE)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Keep the reason why a process died; the searcher learns of the death right after."""
        # Tune's own get_error looks where the file will be only later.
        written = Path(trial.error_file) if trial.error_file else None
        lines = written.read_text().splitlines() if written and written.exists() else []
        message = [line.strip() for line in lines if line.strip() and "Failure #" not in line]
        self.searcher.causes[trial.trial_id] = " ".join(message)[:500] or "for no known reason"


class Forget(Callback):
    """Drops the curves of a report: Tune keeps every trial's last result."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Tune lets callbacks change a result in place."""
        result.pop("bodies", None)


def _live(identity: int) -> PlanSearcher:
    return _LIVE[identity]
