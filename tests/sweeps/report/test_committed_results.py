"""The committed results of the bundled specs: they belong to the specs and can be made again.

To the bit they can be made again on the type of machine that made them; here on any.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from sweeps.engine.cell import Cells
from sweeps.engine.plan import Options, Plan
from sweeps.engine.trial import TrialRun
from sweeps.report.paper_table import across, table_rows
from sweeps.spec import load_spec
from sweeps.spec.schema import Evaluation, PublishedTable
from sweeps.specs import SPECS
from sweeps.store import Store

RESULTS = SPECS / "results"
PAGE = Path(__file__).parents[3] / "docs" / "pages" / "papers" / "index.md"
TABLES = (
    *("bo4sc_table1", "bo4sc_ablation", "bo4sc_figure3"),
    *("meta_regularization_small", "cifar10_small"),
)


def committed(name: str) -> tuple[pd.DataFrame, PublishedTable]:
    written = yaml.safe_load((SPECS / f"{name}.yaml").read_text())
    return pd.read_csv(RESULTS / f"{name}.csv"), PublishedTable.model_validate(written["table"])


@pytest.mark.parametrize("name", TABLES)
def test_committed_tables_have_the_rows_of_their_specs(name: str) -> None:
    lines, table = committed(name)
    assert list(lines["row"].unique()) == list(table.rows)
    assert list(lines["metric"].unique()) == table.metrics
    by_seed = lines["by_seed"].dropna().str.split().map(lambda values: [float(v) for v in values])
    seeds = yaml.safe_load((SPECS / f"{name}.yaml").read_text())["confirm_seeds"]
    assert set(by_seed.map(len)) == {seeds}
    means = by_seed.map(lambda values: sum(values) / len(values))
    assert means.to_numpy() == pytest.approx(lines.loc[means.index, "mean"].to_numpy(), abs=2e-5)


def test_the_documentation_shows_what_was_committed() -> None:
    text = PAGE.read_text()
    lines, table = committed("bo4sc_table1")
    for line in across(lines, table, "ece")[2:]:
        assert line in text


@pytest.mark.parametrize("name", TABLES[1:])
def test_the_documentation_shows_the_tables_of_one_dataset(name: str) -> None:
    text = PAGE.read_text()
    for row in table_rows(*committed(name))[1:]:
        assert f"| {' | '.join(row)} |" in text


def table_of_learners(results: pd.DataFrame, rows: list[str]) -> list[str]:
    """Test NLL of every row on every table: alone → with the calibrator of least validation NLL."""
    lines = []
    for row in rows:
        cells = []
        for _, of_row in results[results["row"] == row].groupby("dataset", sort=False):
            alone = of_row[of_row["calibrator"] == "identity"].iloc[0]
            chosen = of_row.loc[of_row["validation/nll"].idxmin()]
            cell = f"{alone['nll']:.3f} → {chosen['nll']:.3f} ± {chosen['nll_sd']:.3f}"
            cells.append(f"**{cell}**" if of_row["winner"].any() else cell)
        lines.append(f"| {' | '.join([row, *cells])} |")
    return lines


def test_the_documentation_shows_the_table_of_learners() -> None:
    results = pd.read_csv(RESULTS / "tables.csv")
    written = yaml.safe_load((SPECS / "tables.yaml").read_text())
    assert list(results["dataset"].unique()) == written["datasets"]
    assert set(results["row"]) == set(written["methods"])
    assert (results["seeds"] == written["confirm_seeds"]).all()
    assert (results.groupby("dataset")["winner"].sum() == 1).all()
    text = PAGE.read_text()
    for line in table_of_learners(results, list(written["methods"])):
        assert line in text


def test_the_documentation_says_what_the_survey_found() -> None:
    results = pd.read_csv(RESULTS / "survey.csv")
    winner = results.loc[results["validation/nll"].idxmin()]
    plain = results[(results["row"] == "standard") & (results["calibrator"] == "identity")].iloc[0]
    assert (winner["row"], winner["calibrator"]) == ("focal_label_smoothing", "temperature")
    text = " ".join(PAGE.read_text().partition("\n## The field\n")[2].split())
    for said in (
        f"a test NLL of {winner['nll']:.3f} and an error of {winner['error']:.1%}",
        f"against {plain['nll']:.3f} and {plain['error']:.1%} for cross-entropy",
        f"Its ECE, {winner['ece']:.3f}, ",
        f"as is cross-entropy's {plain['ece']:.3f}.",
    ):
        assert said.replace("%", " %") in text, said


@pytest.mark.slow
def test_cells_of_the_bo4sc_table_can_be_made_again(tmp_path: Path) -> None:
    """One network trained until validation data stops it, and one of BO4SC, both from scratch.

    The first is stopped after 150 epochs at a small rate, in which the last bits where processors
    differ grow to about 2e-5 of a probability; 0.005 is five of the thousand test points in
    another bin. A thousand bilevel steps amplify them until nothing of the seed is left, so that
    the second has to lie where the committed seeds lie.
    """
    lines, table = committed("bo4sc_table1")
    store = Store(tmp_path)
    plan = Plan(load_spec(SPECS / "bo4sc_table1.yaml"), store, Options(persist=False))
    for row, tolerance in (("Early stopping", 0.005), ("BO4SC", None)):
        here = lines[(lines["dataset"] == "blobs-1.7") & (lines["row"] == row)].set_index("metric")
        chosen = str(here["chosen"].fillna("").iloc[0]).split()
        hyperparameters = {
            k: yaml.safe_load(v) for k, _, v in (pair.partition("=") for pair in chosen)
        }
        ours = table.rows[row]
        fixed = plan.cells["blobs-1.7", ours].study.space.fixed
        config = Cells(plan.loaded).config(
            "blobs-1.7", ours, fixed | hyperparameters, plan.spec.seed + 1, "confirm"
        )
        trial = TrialRun(
            config, store, calibrators=["identity"], evaluation=Evaluation(plan.spec.bins)
        )
        assert trial.advance(seconds=600)
        found = store.evaluations(store.record(config.key()), "15-bins")["identity"].test
        for metric in ("ece", "nll"):
            cell = here.loc[metric]
            if tolerance is not None:
                first = float(str(cell["by_seed"]).split()[0])
                assert found[metric] == pytest.approx(first, abs=tolerance)
            else:
                assert found[metric] == pytest.approx(cell["mean"], abs=4 * cell["sd"])
