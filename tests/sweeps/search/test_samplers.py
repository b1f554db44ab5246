"""Samplers of other packages: found by name or import path, resumed, and refused with a reason."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from calibration.hyperparameters import Choice, Uniform
from sweeps.engine.plan import Plan
from sweeps.search import SAMPLERS, Result, Sampler, Study, unsupported
from sweeps.search.config import SearchConfig
from sweeps.search.samplers import SamplerError
from sweeps.search.space import Space
from sweeps.spec import SpecError, load_spec
from sweeps.store import Store
from tests.trained import finish

# Every trial but the first is within a hundredth of the best one's learning rate.
FILE = """
import numpy
from optuna.samplers import BaseSampler
from optuna.search_space import intersection_search_space
from sweeps.search import Sampler

class NearTheBest(BaseSampler):
    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)

    def infer_relative_search_space(self, study, trial):
        return intersection_search_space(study.get_trials(deepcopy=False))

    def sample_relative(self, study, trial, search_space):
        if not search_space:
            return {}
        best = study.best_params
        return {name: best[name] + self.random.uniform(-0.01, 0.01) for name in search_space}

    def sample_independent(self, study, trial, name, distribution):
        return self.random.uniform(0.3, 0.7)

class Near(Sampler):
    description = "near the best one"

    def make(self, seed):
        return NearTheBest(seed)

class Unfinished(Sampler):
    description = "has no make"

class Failing(Sampler):
    description = "raises"

    def make(self, seed):
        raise RuntimeError("no licence")
"""
SPEC = """\
name: near
datasets: [blobs-1.7]
model: {name: mlp, widths: [4]}
methods: {standard: {lr: {uniform: [0.2, 0.8]}, weight_decay: 0}}
training: {epochs: 1, batch_size: full}
search: {sampler: near, trials: 9}
confirm_seeds: 1
calibrators: []
"""
SPACE = Space({}, {"x": Uniform(0.0, 1.0), "kind": Choice((1, 2))}, {"x": {"kind": (2,)}})


@pytest.fixture(autouse=True)
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package ``nearby`` with its entry point, as pip would install it."""
    package = tmp_path / "package"
    about = package / "nearby-1.0.dist-info"
    about.mkdir(parents=True)
    (package / "nearby.py").write_text(FILE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nearby\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[calsweep.samplers]\nnear = nearby:Near\n")
    monkeypatch.syspath_prepend(package)
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "nearby", raising=False)
    monkeypatch.setattr(SAMPLERS, "_entries", dict(SAMPLERS._entries))
    monkeypatch.setattr(SAMPLERS, "_entry_points_loaded", False)


def suggested(place: Path, text: str, *limits: int) -> list[dict[str, Any]]:
    """What the sweep's search asked for, trained in as many sittings as there are limits."""
    place.mkdir()
    (place / "near.yaml").write_text(text)
    for limit in limits:
        sweep = finish(place / "near.yaml", Store(place / "runs"), limit)
    (cell,) = Plan(sweep.loaded, sweep.store).cells.values()
    found = sweep.store.suggestions("near", cell.study_id)
    return [found[number]["hyperparameters"] for number in sorted(found)]


@pytest.mark.parametrize("name", ["near", "nearby:Near"])
def test_a_plug_in_is_used_and_resumes_to_the_same_suggestions(tmp_path: Path, name: str) -> None:
    text = SPEC.replace("sampler: near", f"sampler: {name}")
    whole = suggested(tmp_path / "whole", text, 9)
    rates = [values["lr"] for values in whole]
    assert len(set(rates)) == 9
    assert all(abs(rate - rates[0]) <= 0.01 * number for number, rate in enumerate(rates))
    assert suggested(tmp_path / "parts", text, 2, 1, 6) == whole


def problem(tmp_path: Path, sampler: str) -> str:
    path = tmp_path / "bad.yaml"
    path.write_text(SPEC.replace("sampler: near", f"sampler: {sampler}"))
    with pytest.raises(SpecError) as found:
        load_spec(path)
    return str(found.value)


def test_what_is_no_sampler_is_told_with_the_place_and_the_nearest_name(tmp_path: Path) -> None:
    at = f"{tmp_path}/bad.yaml:6: search.sampler: "
    assert problem(tmp_path, "neer") == f"{at}unknown sampler 'neer'; did you mean 'near'?"
    assert problem(tmp_path, "tpa").startswith(f"{at}unknown sampler 'tpa'; did you mean 'tpe'")
    assert problem(tmp_path, "nearby:Naer").startswith(f"{at}cannot import sampler 'nearby:Naer'")
    not_one = problem(tmp_path, "nearby:NearTheBest")
    assert not_one == f"{at}'nearby:NearTheBest' is not a subclass of Sampler"


def test_a_sampler_that_raises_is_named_with_its_trial() -> None:
    study = Study(SPACE, SearchConfig(sampler="nearby:Failing"), 0, "blobs/focal")
    with pytest.raises(SamplerError) as found:
        study.ask()
    told = "blobs/focal, trial 0: the sampler 'nearby:Failing' failed: RuntimeError: no licence"
    assert str(found.value) == told
    study = Study(SPACE, SearchConfig(sampler="nearby:Unfinished"), 0, "blobs/focal")
    with pytest.raises(SamplerError, match="Unfinished' failed: TypeError: Can't instantiate"):
        study.ask()


def test_what_a_sampler_does_not_support_is_told_before_anything_runs() -> None:
    kind: type[Sampler] = SAMPLERS["near"]
    config = SearchConfig(sampler="near")
    assert unsupported(config, SPACE) is None
    kind.conditions = False
    assert "'x' has one; write cmaes or gp or grid" in str(unsupported(config, SPACE))
    assert unsupported(config, Space({}, {"x": Uniform(0.0, 1.0)})) is None
    kind.several_objectives = False
    several = SearchConfig(sampler="near", objective=["error", "ece"])
    assert "near supports one objective" in str(unsupported(several, SPACE))


def test_only_samplers_that_keep_notes_are_asked_about_replayed_trials() -> None:
    for keeps, raised in ((False, 3), (True, 0)):
        SAMPLERS["nearby:Failing"].keeps_notes = keeps
        study = Study(SPACE, SearchConfig(sampler="nearby:Failing"), 0, "x")
        for number in range(3):
            study.replay(number, {"kind": 1})
            study.tell(number, Result((1.0,), 1.0, 1.0, "done"))
        with pytest.raises(SamplerError, match=f"x, trial {raised}: "):
            study.ask()
