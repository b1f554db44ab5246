"""What a sweep is given beyond its spec, and the looks at its results that are counted."""

from __future__ import annotations

from pathlib import Path

from sweeps.analysis.row_evidence import VERDICTS_ABOUT
from sweeps.analysis.statistics import look_factor
from sweeps.cli import report
from sweeps.report.headline import looks
from sweeps.sweep import Extension, extension, open_sweep, saved_state
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


def test_added_seeds_are_known_to_who_reads_later(tmp_path: Path) -> None:
    trained = train_sweep(tmp_path, SPEC)
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


def test_a_look_is_one_number_of_seeds(tmp_path: Path) -> None:
    spec = train_sweep(tmp_path, SPEC).spec
    once = Extension().looked(spec)
    assert (once.looks, once.look(spec)) == ((2,), 1)
    assert once.looked(spec) == once
    more = spec.model_copy(update={"confirm_seeds": 5})
    assert once.look(more) == 2
    assert once.looked(more).looks == (2, 5)


def test_a_fourth_look_is_said_to_be_unprotected(tmp_path: Path) -> None:
    trained = train_sweep(tmp_path, SPEC)
    for number, words in ((1, ""), (3, "at most 5 %"), (4, "no longer protected")):
        history = Extension(looks=(2, *range(3, 2 + number)))
        trained.store.write_state("extended", saved_state(trained.loaded, trained.store, history))
        said = looks(open_sweep("extended", trained.store).records)
        assert words in said
        assert bool(said) == (number > 1)


def test_the_command_offers_what_verdicts_can_be_about() -> None:
    assert tuple(VERDICTS_ABOUT) == report.ABOUT_CHOICES
