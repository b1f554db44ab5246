"""A suite: the sweeps that run every night, how they are judged, and how long they may take.

A suite is a YAML file::

    name: nightly
    sweeps: [nightly/bo4sc.yaml, nightly/digits.yaml]    # relative to the suite's file
    time_limit: 40m
    judge: {level: 0.05, minimum: {ece: 0.01}, cost: 0.3}

Nights are comparable only if they do the same work: a search whose trials depend on the clock,
or on the order in which other trials end, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibration.text import count
from sweeps.nightly.judge.comparison import FEWEST
from sweeps.nightly.judge.rules import Judge
from sweeps.search import SAMPLERS
from sweeps.search.fields import Duration
from sweeps.spec import LoadedSpec, ProblemError, SpecError, load_spec
from sweeps.spec.loading import explain
from sweeps.spec.reading import parse, place, read_text
from sweeps.spec.ready import spec_path
from sweeps.spec.schema import Spec, Tracking
from sweeps.specs import SPECS

READY = SPECS / "nightly.yaml"
_LONGEST_NAME = 80
"""For the name of a sweep in a suite, which is extended by the night's date."""
ENOUGH_SEEDS = 5
"""With fewer, a test paired over seeds and corrected over all cells detects almost nothing."""


class Suite(BaseModel):
    """The content of a suite's file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
    sweeps: Annotated[list[str], Field(min_length=1, max_length=100)]
    judge: Judge = Judge()
    time_limit: Duration | None = None


@dataclass(frozen=True)
class LoadedSuite:
    """A checked suite, its text, and its sweeps by their own names."""

    suite: Suite
    text: str
    path: Path
    sweeps: dict[str, LoadedSpec]

    @property
    def name(self) -> str:
        """The suite's name, also that of its directory and of its MLflow experiment."""
        return self.suite.name

    @property
    def notes(self) -> list[str]:
        """Notes on the sweeps, such as datasets that are missing on this machine."""
        return [
            f"{name}: {note}"
            for name, each in self.sweeps.items()
            for note in (*each.notes, *_few_seeds(each.spec))
        ]


def load_suite(given: Path | None = None) -> LoadedSuite:
    """Read and check a suite: a file or the name of a bundled suite, by default ``nightly``.

    Raises ``SpecError`` with file, line, field, value and remedy; writes nothing.
    """
    path = suite_path(given)
    text = read_text(path)
    written, lines = parse(path, text)
    try:
        suite = _validated(written)
        return LoadedSuite(suite, text, path, dict(_sweeps(suite, path)))
    except ProblemError as problem:
        raise SpecError(place(path, problem.location, lines, str(problem))) from None


def suite_path(given: Path | None = None) -> Path:
    """The file of a suite: as given, or of the bundled suite of that name (``nightly``)."""
    return READY if given is None else spec_path(given)


def _few_seeds(spec: Spec) -> Iterator[str]:
    if spec.confirm_seeds < ENOUGH_SEEDS:
        yield (
            f"{count(spec.confirm_seeds, 'seed')}: a comparison over fewer than {ENOUGH_SEEDS} "
            "detects little; write confirm_seeds: 5 or more"
        )


def for_night(loaded: LoadedSpec, suite: str, night: str) -> LoadedSpec:
    """The sweep of one night: named by its date, in the suite's MLflow experiment."""
    name, tracking = f"{loaded.spec.name}-{night}", Tracking(experiment=suite)
    written = {**loaded.written, "name": name, "tracking": {"experiment": suite}}
    text = yaml.dump(written, Dumper=_Plain, sort_keys=False, allow_unicode=True)
    spec = loaded.spec.model_copy(update={"name": name, "tracking": tracking})
    return replace(loaded, spec=spec, text=text, written=written)


class _Plain(yaml.SafeDumper):
    """YAML without anchors: merged keys are written out."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _validated(written: dict[str, Any]) -> Suite:
    if "methods" in written and "sweeps" not in written:
        raise ProblemError(
            ("methods",), "this is the spec of one sweep; a suite lists such files under 'sweeps'"
        )
    try:
        return Suite.model_validate(written)
    except ValidationError as error:
        location, message = explain(error, Suite)
        raise ProblemError(location, message) from None


def _sweeps(suite: Suite, path: Path) -> Iterator[tuple[str, LoadedSpec]]:
    names: set[str] = set()
    for index, entry in enumerate(suite.sweeps):
        file = path.parent / entry
        if not file.is_file():
            raise ProblemError(
                ("sweeps", index), f"found {entry!r}; no such file next to {path.name}"
            )
        loaded = load_spec(file)
        name = loaded.spec.name
        if name in names:
            raise ProblemError(("sweeps", index), f"a second sweep is named {name!r}; rename one")
        names.add(name)
        _check_repeatable(loaded, file)
        yield name, loaded


def _check_repeatable(loaded: LoadedSpec, file: Path) -> None:
    """Raise ``SpecError`` for a sweep that could differ between nights without any change."""
    problem = _unrepeatable(loaded.spec)
    if problem is not None:
        _, lines = parse(file, read_text(file))
        raise SpecError(place(file, problem.location, lines, str(problem)))


def _unrepeatable(spec: Spec) -> ProblemError | None:
    search = spec.search
    if len(spec.name) > _LONGEST_NAME:
        return ProblemError(
            ("name",), f"found {len(spec.name)} characters; in a suite at most {_LONGEST_NAME}"
        )
    if spec.confirm_seeds < FEWEST:
        return ProblemError(
            ("confirm_seeds",),
            f"found {spec.confirm_seeds}; nights are compared over seeds, and that takes at "
            f"least {FEWEST}; write {ENOUGH_SEEDS} or more",
        )
    if spec.tracking.uri is not None:
        return ProblemError(
            ("tracking",), "a suite's sweeps are tracked together; remove it and use --tracking"
        )
    if not any(spec.space(row).searched for row in spec.methods):
        return None
    if search.time is not None:
        return ProblemError(
            ("search", "time"),
            f"found {search.time:g} s: the number of trials in that time varies from night to "
            "night; write search.trials instead",
        )
    if SAMPLERS[search.sampler].learns:
        others = " or ".join(name for name, other in SAMPLERS.items() if not other.learns)
        return ProblemError(
            ("search", "sampler"),
            f"found {search.sampler!r}, which learns from trials in the order in which they "
            f"happen to end, so nights are not comparable; write {others}",
        )
    if spec.scheduler.name != "none":
        return ProblemError(
            ("scheduler",),
            f"found {spec.scheduler.name!r}, which stops trials by the progress of others at "
            "the time, so nights are not comparable; remove it",
        )
    return None
