"""Reading a finished sweep: nothing is searched, and nothing is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
import torch

from calibration.calibrators import CALIBRATORS, Calibrator
from sweeps.analysis.two_sweeps import compare_sweeps, other_circumstances
from sweeps.cli.status_view import trials
from sweeps.export.choice import choose
from sweeps.export.package import Wish, assemble
from sweeps.nightly.run.collection import collect
from sweeps.report.gather import drawn_row, rows_to_show
from sweeps.report.write import write_report
from sweeps.store import Store
from sweeps.store.files import LocalFiles
from sweeps.sweep import Sweep, open_sweep
from tests.outcomes import evaluation
from tests.trained import finish, train_sweep

SPEC = """\
name: read
datasets: [blobs-1.7]
model: {name: mlp, widths: [4]}
methods:
  standard: {lr: {loguniform: [0.01, 0.1]}, weight_decay: 0}
  focal: {lr: 0.05, weight_decay: 0, gamma: {uniform: [0.0, 3.0]}}
training: {epochs: 8, batch_size: full, evaluate_every: 2}
search: {sampler: tpe, trials: 6}
scheduler: {name: asha, grace: 2}
confirm_seeds: 2
calibrators: [temperature]
"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return train_sweep(tmp_path_factory.mktemp("read"), SPEC)


def test_analysing_and_exporting_make_no_study(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a study was made")

    searched = Sweep(sweep.loaded, sweep.store).plan.cells["blobs-1.7", "focal"].study
    assert len(searched.trials()) == 6
    expected = {"gamma": 1.0}
    assert searched.importance() == expected
    monkeypatch.setattr(optuna, "create_study", refuse)
    opened = open_sweep("read", sweep.store)
    written = write_report(opened.records, opened.store)
    assert not written.failures
    shares = written.analysis.importance.set_index(["row", "hyperparameter"])[
        "importance"
    ].to_dict()
    assert shares == {("standard", "lr"): 1.0, ("focal", "gamma"): 1.0}
    assert choose(opened.records, opened.analysis, "blobs-1.7").is_winner
    # A finished sweep that is run again has nothing to ask for either.
    again = finish(sweep.loaded.directory / "spec.yaml", sweep.store)
    assert again.plan.finished


def test_an_evaluation_by_a_calibrator_that_is_gone_is_left_alone(tmp_path: Path) -> None:
    """A spec may drop a calibrator of the user's own, whose module is deleted then."""
    trained = train_sweep(tmp_path, SPEC.replace("trials: 6", "trials: 1"))
    key = trained.records.confirmed("blobs-1.7", "focal")[0].key
    trained.store.write_evaluation(key, "15-bins", "gone_module:Mine", evaluation())
    later = open_sweep("read", trained.store)
    assert "gone_module:Mine" in later.records.confirmed("blobs-1.7", "focal")[0].evaluations
    assert later.results.equals(trained.results)
    assert write_report(later.records, later.store).failures == {}


COMMANDS: dict[str, Callable[[Sweep], object]] = {
    "report": lambda sweep: write_report(sweep.records, sweep.store),
    "export": lambda sweep: assemble(
        sweep.loaded, sweep.store, choose(sweep.records, sweep.analysis, "blobs-1.7"), Wish()
    ),
    "status": trials,
    "compare": lambda sweep: (
        compare_sweeps(sweep.analysis, sweep.analysis),
        other_circumstances(sweep.analysis, sweep.analysis),
    ),
    "nightly": lambda sweep: collect({"read": sweep.loaded}, sweep.store, ["ece", "nll"]),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_reads_each_record_once(
    command: str, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a remote store each reading is a request."""
    drawn = rows_to_show(sweep.records, sweep.analysis.leaderboard, "blobs-1.7")
    reads: Counter[str] = Counter()
    read = LocalFiles.read

    def counted(files: LocalFiles, name: str) -> bytes | None:
        reads[name] += 1
        return read(files, name)

    monkeypatch.setattr(LocalFiles, "read", counted)
    COMMANDS[command](open_sweep("read", Store(sweep.store.root)))
    of_trials = {name: count for name, count in reads.items() if name.startswith("records/")}
    records = [name for name in of_trials if name.endswith("/record.json")]
    evaluations = [name for name in of_trials if "/evaluations/" in name]
    assert len(records) == 2 * 6 - sweep.plan.pruned + 2 * 2
    assert len(evaluations) == 2 * 2 * 3  # two calibrators and the oracle
    # What single rows scored is needed where seeds share their test rows; here, for diagrams only.
    scores = [name for name in of_trials if "/row-scores/" in name]
    assert len(scores) == (len(drawn) if command == "report" else 0)
    assert {of_trials[name] for name in [*records, *evaluations, *scores]} == {1}


def test_a_report_fits_no_calibrator(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, fitted = open_sweep("read", sweep.store), []

    def counted(calibrator: Calibrator, *data: object) -> Calibrator:
        fitted.append(calibrator)
        return calibrator

    for name in CALIBRATORS:
        monkeypatch.setattr(CALIBRATORS[name], "fit", counted)
    files: dict[str, bytes] = {}
    written = write_report(opened.records, opened.store, write=files.__setitem__)
    assert written.failures == {}
    assert "figures/blobs-1.7_reliability.png" in files
    opened.plot_reliability()
    assert fitted == []
    # What is drawn is what was evaluated, to the precision that is stored.
    (first, *_) = opened.records.confirmed("blobs-1.7", "focal")
    assert first.record is not None
    arrays = opened.store.predictions(first.record)
    confidence, predicted = arrays["test_logits"].double().softmax(-1).max(-1)
    drawn = drawn_row(opened.records, opened.results, "blobs-1.7", "focal", "identity")
    assert drawn.seed == first.config.seed
    assert torch.equal(drawn.confidence, confidence.float().double())
    assert torch.equal(drawn.correct, predicted == arrays["test_labels"])


def test_row_scores_are_read_once_and_only_of_what_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: Counter[str] = Counter()
    read = LocalFiles.read
    text = SPEC.replace("blobs-1.7", "iris").replace("trials: 6", "trials: 1")
    text = text.replace("[temperature]", "[temperature, vector, beta]")
    plan = train_sweep(tmp_path, text.replace("confirm_seeds: 2", "confirm_seeds: 3"))

    def counted(files: LocalFiles, name: str) -> bytes | None:
        reads[name] += 1
        return read(files, name)

    monkeypatch.setattr(LocalFiles, "read", counted)
    opened = open_sweep("read", Store(plan.store.root))
    write_report(opened.records, opened.store)
    compare_sweeps(opened.analysis, opened.analysis)
    scores = {name: count for name, count in reads.items() if "/row-scores/" in name}
    chosen = opened.analysis.selection.calibrators
    as_is = sum(name != "identity" for name in chosen.values())
    assert set(scores.values()) == {1}
    # The recommendation compares with the plain network as it is and with temperature, too.
    assert len(scores) <= 3 * (len(chosen) + max(as_is, 1) + 1)
