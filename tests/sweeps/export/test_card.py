"""The card's sentences and figures: each true of the model at hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from calibration.evaluation import cross_fitted
from calibration.metrics import METRICS, Shown
from sweeps.cli.main import main
from sweeps.export.card import card
from sweeps.export.markdown import confidence
from sweeps.export.package import Package, Wish
from sweeps.sweep import open_sweep
from tests.exported import Swept

pytestmark = pytest.mark.slow

OUT = Path("model")
TIED = "standard + isotonic_top_label"


def chapter(package: Package, title: str) -> str:
    return card(package, OUT).split(f"## {title}\n")[1].split("\n## ")[0]


def test_ties_are_named_where_they_bring_in_more_rows(swept: Swept) -> None:
    chosen = swept.package("table", TIED, wish=Wish(coverage=0.5)).chosen
    arrays = swept.store.predictions(chosen.record)
    output = cross_fitted(
        "isotonic_top_label",
        arrays["validation_logits"],
        arrays["validation_labels"],
        seed=chosen.trial.config.seed,
    )
    levels, rows = output.unique(return_counts=True)
    most = levels[rows.argmax()]  # one more row than lies above it brings in all of them
    coverage = ((output > most).sum().item() + 1) / len(output)
    package = swept.package("table", TIED, wish=Wish(coverage=coverage))
    share = (output >= package.description.threshold).double().mean().item()
    assert share > coverage + 0.02
    said = chapter(package, "Abstention")
    assert f"at least {100 * coverage:.1f} % ({100 * share:.1f} % because of ties)" in said
    assert "cross-fitted calibrators" in said


def test_a_share_rounded_up_to_whole_rows_is_no_tie(swept: Swept) -> None:
    package = swept.package("table", "standard + temperature", wish=Wish(coverage=0.5))
    assert package.on_validation.kept == 38  # of 75
    said = chapter(package, "Abstention")
    assert "at least 50.0 % of the validation rows are accepted" in said
    assert "ties" not in said


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1.0, "1"),
        (0.9709181, "0.970918"),
        (0.9999999, "0.9999999"),
        (1 - 4e-10, "0.9999999996"),
        (1 - 2**-53, "0.9999999999999999"),
    ],
)
def test_a_confidence_below_1_does_not_look_like_1(value: float, written: str) -> None:
    assert confidence(value) == written


def test_a_threshold_near_1_is_told_from_1_on_the_card_and_the_screen(
    swept: Swept,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweeps.export.package.coverage_threshold", lambda *_: 1 - 1e-9)
    assert swept.export("table", tmp_path / "model", "--coverage", "0.5") == 0
    assert "below a confidence of 0.999999999;" in " ".join(capsys.readouterr().out.split())
    assert "below **0.999999999**" in (tmp_path / "model" / "README.md").read_text()


def test_the_help_says_that_coverage_is_a_least_share(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "at least the share C of the validation rows, more only if" in said


def test_intervals_over_seeds_are_the_reports(swept: Swept) -> None:
    """Also for a method that trains on fewer rows, as it holds some out."""
    table = open_sweep("table", swept.store).leaderboard.full
    for _, row in table[table["calibrator"] == "temperature"].iterrows():
        package = swept.package("table", f"{row['row']} + temperature")
        said = chapter(package, "Results on test rows")
        for metric in METRICS.names(Shown.DETAIL):
            name = METRICS.title(metric)
            low, high = row[f"{metric}_ci_low"], row[f"{metric}_ci_high"]
            shown = f"{row[metric]:.4f} [{low:.4f}, {high:.4f}] |"
            assert any(
                line.startswith(f"| {name} |") and line.endswith(shown)
                for line in said.splitlines()
            ), (name, shown)


def test_the_only_seed_has_its_own_interval(swept: Swept) -> None:
    package = swept.package("several", "standard", dataset="digits")
    said = chapter(package, "Results on test rows")
    own = next(line for line in said.splitlines() if line.startswith("| ECE |")).split(" | ")
    assert own[1] == own[2].removesuffix(" |")
    assert "[" in own[1]
    assert "over seeds" not in said


def test_the_winner_is_said_to_be_chosen_by_validation_data(swept: Swept) -> None:
    package = swept.package("table")
    said = chapter(package, "How it was chosen")
    assert f"On validation data only, which chose `{package.chosen.label}`" in said
    best = "Of all rows on this dataset that were measured on every seed, it is the simplest"
    assert best in said
    assert "Of its networks this is the one with the lowest cross-fitted validation NLL" in said
    fewer = replace(package, chosen=replace(package.chosen, planned=3))
    said = chapter(fewer, "How it was chosen")
    assert best not in said
    assert "measured on as many seeds as it (2)" in said


def test_what_was_asked_for_is_said_to_be(swept: Swept) -> None:
    winner = swept.package("table").chosen
    named = chapter(swept.package("table", winner.label), "How it was chosen")
    assert "By hand" in named
    assert "is also what validation data would choose" in named
    assert "On validation data only" not in named
    other = chapter(swept.package("table", TIED), "How it was chosen")
    assert "is not what validation data would choose" in other
    assert "lowest cross-fitted" not in other
    assert (
        "the one with the lowest validation NLL before its calibrator" in other
    )  # it has none itself
    seed = chapter(swept.package("table", seed=2), "How it was chosen")
    assert "Its seed, 2, was chosen by hand" in seed
    assert "Of its networks" not in seed


def test_a_search_is_named_where_there_was_one(swept: Swept) -> None:
    """The joint method's own hyperparameters are searched by default."""
    searched = chapter(swept.package("table", "joint"), "How it was chosen")
    assert "hyperparameters were searched with another seed" in searched
    fixed = chapter(swept.package("several", dataset="digits"), "How it was chosen")
    assert "hyperparameters were fixed" in fixed
    assert "searched with" not in fixed
    assert "It is the row's only network" in fixed
