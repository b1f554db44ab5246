"""Real sweeps, hit at random and counted: ``python -m tests.faults.drill --seed 7 --rounds 20``.

Prints a line for every round and ends with 1 if any promise was not kept. The bulky drills
(full disks, a clock set back, many trials, large inputs) are run with ``--bulky`` or by name.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.faults.drills import DRILLS, Drill
from tests.faults.drills.outcome import KINDS, Setting, left_over
from tests.faults.leftovers import SHARED, Trace


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the drills that are asked for."""
    options = _parser().parse_args(arguments)
    # Started in the background of a script it ignores Ctrl-C, and so would every sweep.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    directory = Path(tempfile.mkdtemp(prefix="drill-"))
    everything = Trace(directory, shared_before={*SHARED.iterdir()})
    setting = Setting(directory, options.seed, options.rounds, options.first)
    counted: Counter[str] = Counter()
    rounds = 0
    try:
        for drill in _chosen(options):
            for outcome in drill.play(setting):
                print(outcome, flush=True)
                rounds += 1
                counted.update(violation.kind for violation in outcome.violations)
                everything.pids += outcome.drivers
                if outcome.violations and options.keep:
                    print(f"    kept: {outcome.place}", flush=True)
                else:
                    shutil.rmtree(outcome.place, ignore_errors=True)
    finally:
        if not (options.keep and counted):
            shutil.rmtree(directory, ignore_errors=True)
    left = left_over(everything)  # once more over all rounds, and in the shared memory
    counted.update(violation.kind for violation in left)
    for violation in left:
        print(f"    {violation.kind} at the end: {violation.what}")
    told = ", ".join(f"{counted[kind]} {kind}" for kind in KINDS)
    print(f"{rounds} round{'' if rounds == 1 else 's'}: {told}")
    return 1 if counted else 0


def _chosen(options: argparse.Namespace) -> list[Drill]:
    if options.only:
        return [drill for drill in DRILLS if drill.name == options.only]
    return [drill for drill in DRILLS if drill.bulky == options.bulky]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.drill", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument("--seed", type=int, default=7, help="decides what is hit, and when")
    parser.add_argument("--rounds", type=int, default=20, help="of the random kill drill")
    parser.add_argument("--first", type=int, default=1, help="the round to begin with")
    parser.add_argument("--keep", action="store_true", help="keep the directory of a failed round")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--bulky", action="store_true", help="the drills that take minutes")
    which.add_argument("--only", choices=[drill.name for drill in DRILLS], help="this drill")
    return parser


if __name__ == "__main__":
    sys.exit(main())
