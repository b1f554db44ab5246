"""The random kill drill: a sweep is hit at a random moment and run again until it is done.

Then everything is counted and compared with the same sweep left alone. The seed decides what is
hit, at which moment of the sweep and how long after it, so that a round can be repeated as
nearly as real processes allow.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from typing import NamedTuple

from tests.faults.drills.counting import Result, differences, result_of
from tests.faults.drills.hits import PAIRS, Before, Moment, Victim
from tests.faults.drills.launching import DONE_SECONDS, Launch, run_to_end
from tests.faults.drills.outcome import Outcome, Setting, Violation, left_over
from tests.faults.kit import Scene
from tests.faults.leftovers import short_directory

SPEC = """\
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods:
  paced: {method: "paced:Paced", lr: [0.01, 0.03, 0.1], pause: 0.08, weight_decay: 0}
  drawn: {method: "paced:Paced", lr: {loguniform: [0.01, 0.1]}, pause: 0.04, weight_decay: 0}
  long: {method: "paced:Paced", lr: 0.05, pause: 0.55, weight_decay: 0}
training: {epochs: 12, batch_size: full, evaluate_every: 3}
search: {sampler: random, trials: 4, seed: 5}
confirm_seeds: 2
calibrators: [temperature, isotonic]
"""
END_SECONDS = 60.0
"""Within these a driver that was hit has ended: a lost Ray is noticed, a signal is heard."""
ATTEMPTS = 3
SECOND_HIT = 0.3
"""How often the run after the first hit is hit, too."""


class Hit(NamedTuple):
    """What is hit at which moment, and so many seconds after it."""

    moment: Moment
    victim: Victim
    delay: float

    def __str__(self) -> str:
        return f"{self.victim.name} at {self.moment.name} +{self.delay:.2f} s"


def random_kills(setting: Setting) -> Iterator[Outcome]:
    """So many rounds, and before them the sweep left alone."""
    calm = Scene(setting.directory / "calm", SPEC, temporary=short_directory())
    try:
        run_to_end(calm)
        expected = result_of(calm)
        for number, hits in islice(_plan(setting), setting.rounds):
            yield _round(setting, number, hits, expected)
    finally:
        calm.trace.remove()
        shutil.rmtree(calm.directory)


def _plan(setting: Setting) -> Iterator[tuple[int, list[Hit]]]:
    """The rounds from the first asked for: every pair once before any comes again."""
    chance = random.Random(setting.seed)
    waiting: list[tuple[Moment, Victim]] = []
    for number in count(1):
        hits = []
        for _ in range(1 + (chance.random() < SECOND_HIT)):
            waiting = waiting or chance.sample(PAIRS, len(PAIRS))
            moment, victim = waiting.pop()
            hits.append(Hit(moment, victim, chance.uniform(0.0, moment.spread)))
        if number >= setting.first:
            yield number, hits


def _round(setting: Setting, number: int, hits: list[Hit], expected: Result) -> Outcome:
    began = time.monotonic()
    place = setting.directory / f"round-{number}"
    # In cohorts, which the sweep left alone is not trained in.
    scene = Scene(place, SPEC + "cohort: 3\n", temporary=short_directory())
    what = f"round {number}  {', then '.join(map(str, hits))}"
    outcome = Outcome(what, "", 0.0, place, drivers=scene.trace.pids)
    try:
        chance = random.Random(f"{setting.seed} {number}")
        seen = [_strike(scene, hit, chance, outcome.violations) for hit in hits]
        seen.append(_finish(scene, outcome.violations))
        if (scene.root / "mlflow.db").exists():
            outcome.violations.extend(differences(expected, result_of(scene)))
        outcome.violations.extend(left_over(scene.trace))
    finally:
        scene.trace.remove()
    return replace(outcome, seen="; ".join(seen), seconds=time.monotonic() - began)


def _strike(scene: Scene, hit: Hit, chance: random.Random, violations: list[Violation]) -> str:
    """Run the sweep and hit it; what came of that run."""
    kept = scene.attempts()
    launch = Launch(scene)
    before = Before.of(scene)
    deadline = time.monotonic() + DONE_SECONDS
    while launch.running and not hit.moment.come(launch, before):
        if time.monotonic() > deadline:
            violations.append(Violation("wrong", f"never came to {hit.moment.name}"))
            break
        time.sleep(0.01)
    time.sleep(hit.delay)
    if not launch.running or not hit.victim.hit(launch, chance):
        seen = "nothing to hit"
        code, expected = launch.end(), {0}
    else:
        code = launch.end(END_SECONDS if hit.victim.code else DONE_SECONDS)
        expected = {0, hit.victim.code}
        seen = f"ended {code}"
    if code is None:
        violations.append(Violation("wrong", f"hung after {hit}"))
    elif code not in expected:
        violations.append(Violation("wrong", f"exit code {code} after {hit}: {launch.said[-600:]}"))
    _check_words(launch, violations)
    _check_kept(scene, kept, violations)
    return f"{seen} after {time.time() - launch.began:.0f} s"


def _finish(scene: Scene, violations: list[Violation]) -> str:
    """Run the same command until it says that all is done."""
    for attempt in range(1, ATTEMPTS + 1):
        kept = scene.attempts()
        launch = Launch(scene)
        code = launch.end()
        _check_words(launch, violations)
        _check_kept(scene, kept, violations)
        if code == 0:
            return f"done at attempt {attempt}"
        violations.append(Violation("wrong", f"run again, it ended {code}: {launch.said[-600:]}"))
    return f"not done after {ATTEMPTS} attempts"


def _check_words(launch: Launch, violations: list[Violation]) -> None:
    said = launch.said
    if "Traceback" in said:
        start = said.index("Traceback")
        violations.append(Violation("wrong", f"a traceback: …{said[start:][-600:]}"))


def _check_kept(scene: Scene, kept: dict[str, str], violations: list[Violation]) -> None:
    """No finished trial was trained again."""
    now = scene.attempts()
    for key, attempt in kept.items():
        if key not in now:
            violations.append(Violation("lost", f"the record of trial {key}"))
        elif now[key] != attempt:
            violations.append(Violation("doubled", f"trial {key} was trained again"))
