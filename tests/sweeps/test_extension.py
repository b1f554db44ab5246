"""What a sweep is given beyond its spec, and the looks at its results that are counted."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from sweeps.analysis.row_evidence import About
from sweeps.analysis.statistics import look_factor
from sweeps.cli import report
from sweeps.cli.run import _introduction
from sweeps.report.headline import looks
from sweeps.spec import load_spec
from sweeps.spec.ready import spec_path
from sweeps.sweep import Extension, Sweep, extension, open_sweep, saved_state
from tests.trained import train_sweep

SPEC = """\
name: extended
datasets: [blobs-1.7]
model: {name: mlp, widths: [4]}
methods: {standard: {lr: 0.1, weight_decay: 0}, focal: {lr: 0.1, weight_decay: 0, gamma: 1}}
training: {epochs: 2, batch_size: full, evaluate_every: 2}
confirm_seeds: 2
calibrators: []
equivalence: {nll: 0.3}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A finished sweep; each test writes down what it was given."""
    return train_sweep(tmp_path_factory.mktemp("extended"), SPEC)


def test_added_seeds_are_known_to_who_reads_later(trained: Sweep) -> None:
    store = trained.store
    added = Extension(seeds=3, looks=(2,))
    store.write_state("extended", saved_state(trained.loaded, store, added))
    assert extension(store, "extended") == added
    later = open_sweep("extended", store)
    assert later.spec.confirm_seeds == 5
    assert (later.records.total, later.records.done, later.plan.finished) == (10, 4, False)
    # The seeds that are there keep their keys, and those that are added go on from them.
    seeds = [trial.config.seed for trial in later.records.confirmed("blobs-1.7", "focal")]
    assert seeds == [1, 2, 3, 4, 5]
    assert [trial.done is not None for trial in later.records.confirmed("blobs-1.7", "focal")] == [
        *(True, True, False, False, False)
    ]
    # Their results will be the second look, and are judged as such.
    assert later.records.look == 2
    lines = later.analysis.comparisons.set_index(["row", "metric"])
    nll = lines.loc["focal", "nll"]
    assert nll["region"] == 0.3
    assert nll["p_holm"] >= min(1.0, look_factor(2) * nll["p"]) - 1e-12


def test_a_look_is_one_number_of_seeds(trained: Sweep) -> None:
    spec = trained.spec
    once = Extension().looked(spec)
    assert (once.looks, once.look(spec)) == ((2,), 1)
    assert once.looked(spec) == once
    more = spec.model_copy(update={"confirm_seeds": 5})
    assert once.look(more) == 2
    assert once.looked(more).looks == (2, 5)


def test_a_fourth_look_is_said_to_be_unprotected(trained: Sweep) -> None:
    for number, words in ((1, ""), (3, "at most 5 %"), (4, "no longer protected")):
        history = Extension(looks=(2, *range(3, 2 + number)))
        trained.store.write_state("extended", saved_state(trained.loaded, trained.store, history))
        said = looks(open_sweep("extended", trained.store).records)
        assert words in said
        assert bool(said) == (number > 1)


def test_a_run_opens_with_the_seeds_and_trials_that_it_will_have() -> None:
    loaded = load_spec(spec_path(Path("quickstart")))
    spec = loaded.spec
    before = Extension(trials=4, looks=(spec.confirm_seeds,))
    added = before.more(trials=2, seeds=1)
    assert added == Extension(trials=4, seeds=1, looks=(spec.confirm_seeds,))
    assert _introduction(spec, 0).endswith(" · 6 search trials each + 5 seeds confirmed")
    line = _introduction(added.applied(loaded).spec, added.trials)
    assert line.endswith(" · 10 search trials each + 6 seeds confirmed")


def test_the_command_offers_what_verdicts_can_be_about() -> None:
    assert get_args(About) == report.ABOUT_CHOICES
