"""A metric of another package: one file with its entry point, and every place shows it."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scipy import stats

from tests.tracked import put_database

pytestmark = pytest.mark.slow

FILE = """
import math
from calibration.metrics import Metric, Shown
from calibration.metrics.proper_scores import nll_of

def perplexity_of(predictions):
    return nll_of(predictions).exp()

PERPLEXITY = Metric(
    name="perplexity",
    title="perplexity",
    description="exponential of the NLL",
    compute=perplexity_of,
    unit="score",
    bounds=(1.0, math.inf),
    needs="rows",
    shown=Shown.LEADERBOARD,
)
"""
SPEC = """\
name: plugged
datasets: [blobs-1.7]
model: {name: mlp, widths: [4]}
methods:
  standard: {lr: 0.05, weight_decay: 0}
  focal: {lr: 0.05, weight_decay: 0, gamma: 2}
training: {epochs: 2, batch_size: full, evaluate_every: 2}
confirm_seeds: 2
calibrators: [temperature, isotonic_top_label]
"""
PROGRAM = """
import json, sys
from pathlib import Path
from mlflow.tracking import MlflowClient
from calibration.metrics.bootstrap import bootstrap_intervals, resample_counts
from sweeps.cli.main import main
from sweeps.runner import sync_sweep
from tests.trained import train_sweep

sweep = train_sweep(Path.cwd(), Path("given.yaml").read_text())
uri = sync_sweep(sweep.loaded, sweep.store).tracking
client = MlflowClient(uri)
experiment = client.get_experiment_by_name("plugged")
runs = client.search_runs([experiment.experiment_id])
parent = next(run for run in runs if "mlflow.parentRunId" not in run.data.tags)
key = sweep.results["key"].iloc[0]
arrays = sweep.store.predictions(sweep.store.record(key))
losses = -arrays["test_logits"].double().log_softmax(-1).gather(1, arrays["test_labels"][:, None])
means = resample_counts(len(losses), 1000, 1).double() @ losses[:, 0] / len(losses)
Path("found.json").write_text(json.dumps({
    "metrics": sorted({name for run in runs for name in run.data.metrics}),
    "table": json.loads(
        Path(client.download_artifacts(parent.info.run_id, "leaderboard.json", ".")).read_text()
    )["columns"],
    "views": str(experiment.tags),
    "estimate": float(losses.mean().exp()),
    "resampled": sorted(means.exp().tolist()),
}))
main(["report", "plugged", "--store", "runs"])
main(["metrics"])
main(["show", key, "--store", "runs"])
"""


@pytest.fixture(scope="module")
def plugged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of a sweep run beside the plug-in, and what was printed."""
    package, work = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("work")
    (package / "perplexing.py").write_text(FILE)
    about = package / "perplexing-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: perplexing\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[calsweep.metrics]\nperplexity = perplexing:PERPLEXITY\n"
    )
    (work / "given.yaml").write_text(SPEC)
    put_database(work / "runs")
    path = os.pathsep.join([str(package), str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=work,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"},
    )
    assert found.returncode == 0, found.stderr
    return work, found.stdout


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as lines:
        return list(csv.DictReader(lines))


def test_every_table_has_it(plugged: tuple[Path, str]) -> None:
    work, printed = plugged
    home = work / "runs" / "plugged"
    for line in rows(home / "results.csv"):
        if line["calibrator"] == "isotonic_top_label":
            assert line["perplexity"] == ""  # it needs whole rows
        else:
            assert float(line["perplexity"]) == pytest.approx(math.exp(float(line["nll"])))
    compared = {line["metric"] for line in rows(home / "comparisons.csv")}
    assert compared == {"ece", "nll", "brier", "error", "perplexity"}
    for name in ("leaderboard.md", "leaderboard.tex", "report.html"):
        assert "perplexity" in (home / name).read_text()
    found = json.loads((work / "found.json").read_text())
    assert {"test/perplexity", "test/perplexity:temperature", "test/perplexity_high"} <= {
        *found["metrics"]
    }
    assert {"perplexity", "perplexity_ci_low", "perplexity_ci_high"} <= {*found["table"]}
    assert "test/perplexity" in found["views"]
    listed = next(line for line in printed.splitlines() if "exponential of the NLL" in line)
    assert "1 … ∞" in listed
    assert "validation NLL" in printed
    assert "perplexity" in printed.split("test data, ")[1]


def test_its_intervals_are_not_cut_to_shares(plugged: tuple[Path, str]) -> None:
    work, _ = plugged
    home = work / "runs" / "plugged"
    seeds = rows(home / "results.csv")
    line = next(
        line
        for line in rows(home / "leaderboard.csv")
        if (line["row"], line["calibrator"]) == ("focal", "temperature")
    )
    values = [
        float(seed["perplexity"])
        for seed in seeds
        if (seed["row"], seed["calibrator"]) == ("focal", "temperature")
    ]
    mean, sd = sum(values) / 2, abs(values[0] - values[1]) / math.sqrt(2)
    half = stats.t.ppf(0.975, 1) * sd / math.sqrt(2)
    assert mean > 1
    assert float(line["perplexity_ci_low"]) == pytest.approx(max(1.0, mean - half), rel=1e-4)
    assert float(line["perplexity_ci_high"]) == pytest.approx(mean + half, rel=1e-4)


def test_its_bootstrap_interval_is_that_of_the_resampled_values(plugged: tuple[Path, str]) -> None:
    work, _ = plugged
    found = json.loads((work / "found.json").read_text())
    first = rows(work / "runs" / "plugged" / "results.csv")[0]
    assert (first["calibrator"], first["seed"]) == ("identity", "1")
    values = found["resampled"]
    middle = sum(values) / len(values)
    for name, share in (("low", 0.025), ("high", 0.975)):
        place = share * (len(values) - 1)
        at = values[int(place)] + (place % 1) * (values[int(place) + 1] - values[int(place)])
        expected = found["estimate"] + at - middle
        assert float(first[f"perplexity_{name}"]) == pytest.approx(expected, rel=1e-4)
