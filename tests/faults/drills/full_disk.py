"""The disk is full in every phase of a sweep: a clear message, nothing corrupt, and on it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.disks import fill, small_disk
from tests.faults.drills.counting import Result, assert_same, result_of
from tests.faults.drills.kills import SPEC
from tests.faults.drills.launching import Launch, run_to_end, until
from tests.faults.drills.outcome import Outcome, Setting, judged
from tests.faults.kit import Scene
from tests.faults.leftovers import Trace, short_directory

SIZE = "48M"


def _any(pattern: str) -> Callable[[Scene], bool]:
    return lambda scene: any(scene.root.glob(pattern))


PHASES: dict[str, Callable[[Scene], bool]] = {
    "database": _any(".mlflow-*/mlflow.db"),
    "suggestion": _any("*/suggestions/**/*.json"),
    "record": _any("records/*/record.json"),
    "checkpoint": _any("records/*/live.json"),
    "evaluation": _any("records/*/*/evaluations/*/*.json"),
    "report": _any("*/results.csv"),
}
"""The disk is filled as soon as the first file of the phase is there."""


def full_disk(setting: Setting) -> Iterator[Outcome]:
    """Each phase with a disk of its own; the database's is not the store's."""
    calm = Scene(setting.directory / "calm-disk", SPEC, temporary=short_directory())
    try:
        run_to_end(calm)
        expected = result_of(calm)
    finally:
        calm.trace.remove()
    for phase in PHASES:
        yield from judged(
            f"disk full at the first {phase}",
            setting.directory / f"full-{phase}",
            lambda place, phase=phase: _fill_store(place, phase, expected),
        )
    yield from judged(
        "disk full while the sweep is published",
        setting.directory / "full-publication",
        lambda place: _fill_at_publication(place, expected),
    )
    yield from judged(
        "disk of the database full",
        setting.directory / "full-database",
        lambda place: _fill_database(place, expected),
    )


def _fill_store(place: Path, phase: str, expected: Result) -> str:
    temporary = short_directory()
    try:
        with small_disk(place / "disk", SIZE) as disk:
            scene = Scene(disk / "sweep", SPEC, temporary=temporary)
            launch = until(scene, PHASES[phase])
            ballast = fill(disk)
            code = launch.end()
            said = launch.said
            _assert_clear(code, said)
            kept = scene.attempts()
            ballast.unlink()
            run_to_end(scene)
            assert kept.items() <= scene.attempts().items(), "a finished trial was trained again"
            assert_same(expected, result_of(scene))
            return f"ended {code} with {len(kept)} records, then done"
    finally:
        Trace(place, temporary).remove()


def _fill_at_publication(place: Path, expected: Result) -> str:
    """The report, written last, is there: only MLflow needs more room."""
    temporary = short_directory()
    try:
        with small_disk(place / "disk", SIZE) as disk:
            scene = Scene(disk / "sweep", SPEC, temporary=temporary)
            launch = until(scene, _any("*/report.html"))
            ballast = fill(disk)
            _assert_unpublished(launch)
            ballast.unlink()
            run_to_end(scene, command="sync")
            assert_same(expected, result_of(scene))
            return "the sweep is done, and sync publishes it"
    finally:
        Trace(place, temporary).remove()


def _fill_database(place: Path, expected: Result) -> str:
    """The sweep itself does not need it, and ``sync`` brings it to date."""
    temporary = short_directory()
    try:
        with small_disk(place / "disk", SIZE) as disk:
            uri = f"sqlite:///{disk / 'mlflow.db'}"
            scene = Scene(place / "sweep", SPEC, tracking=uri, temporary=temporary)
            launch = until(scene, lambda scene: bool(scene.records()))
            ballast = fill(disk)
            _assert_unpublished(launch)
            assert scene.records().keys() == expected.epochs.keys(), "records are missing"
            ballast.unlink()
            run_to_end(scene, command="sync")
            scene.assert_exact(len(expected.epochs), [3, 6, 9, 12], {"FINISHED"})
            return "the sweep is done, and sync publishes it"
    finally:
        Trace(place, temporary).remove()


def _assert_unpublished(launch: Launch) -> None:
    code = launch.end()
    assert code == 0, f"ended {code}: {launch.said[-2000:]}"
    assert "Traceback" not in launch.said, launch.said[-2000:]
    assert "calsweep sync spec.yaml" in launch.said, launch.said[-2000:]


def _assert_clear(code: int | None, said: str) -> None:
    assert code is not None, "it hangs"
    assert "Traceback" not in said, said[-2000:]
    assert code == 1, f"ended {code}: {said[-2000:]}"
    assert "o space left" in said, f"the reason is not told: {said[-2000:]}"
