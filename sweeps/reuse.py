"""Reused processes that do not keep others from starting.

A process takes seconds to start (it imports torch), so trials reuse those that have become
free. But Tune lets a free process take over a trial whose own process is being started, and
ends the latter. Where trials end more often than processes start, the machines of a cluster
that join later, or all but the first, would never get to work.
"""

from __future__ import annotations

from typing import Any


def let_processes_start() -> None:
    """From now on a process that has its place keeps its trial; a free one takes the next.

    Changes Ray Tune 2.60's controller in this process. One whose place is still to come
    (a cluster that may grow) gives its trial away as before.
    """
    from ray.tune.execution.tune_controller import TuneController

    take_over = TuneController._maybe_reuse_cached_actor
    if take_over.__module__ == __name__:
        return  # it has been changed before

    def maybe_reuse(self: Any, trial: Any) -> bool:
        own = self._trial_to_actor.get(trial)
        starting = own is not None and trial not in self._resetting_trials
        if starting and self._actor_manager.is_actor_started(own):
            return False
        return bool(take_over(self, trial))

    TuneController._maybe_reuse_cached_actor = maybe_reuse  # type: ignore[method-assign]
