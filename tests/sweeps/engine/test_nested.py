"""``protocol: nested``: no row both guides the search and judges what it found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from calibration.data import PROTOCOLS, Dataset, Part, Protocol, Splits, load_dataset
from sweeps.engine import networks
from sweeps.sweep import Sweep
from tests.trained import train_sweep

SPEC = """\
name: nested
datasets: [DATASET]
model: {name: mlp, widths: [8]}
methods:
  standard: {lr: {loguniform: [0.01, 0.5]}, weight_decay: 0}
  bo4sc: {lr: 0.05, weight_decay: 0, inner_steps: 1, outer_lr: 5.0, sharpness: 30.0}
training: {epochs: 6, batch_size: full, stop_on: STOP}
search: {sampler: tpe, trials: 2}
confirm_seeds: 1
calibrators: [temperature]
protocol: nested
"""


class Poisoned(Dataset):
    """A dataset whose rows of one part are all wrong; its fingerprint says nothing of it."""

    def __init__(self, inner: Dataset, part: str) -> None:
        self.inner, self.part = inner, part
        self.name, self.kind, self.class_names = inner.name, inner.kind, inner.class_names
        self.independent_draws = inner.independent_draws

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def split(self, protocol: Protocol, seed: int, *, held_out: bool) -> Splits:
        splits = self.inner.split(protocol, seed, held_out=held_out)
        part: Part = getattr(splits, self.part)
        labels = (part.labels + 1) % self.classes
        wrong = Part(part.inputs.flip(0), labels)
        return replace(splits, **{self.part: wrong})

    def test(self, seed: int) -> Part:
        return self.inner.test(seed)


@pytest.fixture
def clean_datasets() -> Iterator[None]:
    before = dict(networks._PROVIDED)
    yield
    networks._PROVIDED.clear()
    networks._PROVIDED.update(before)
    networks._SPLITS.clear()


def trained(directory: Path, dataset: str, stop: str, poisoned: str | None) -> Sweep:
    inner = load_dataset(dataset, {})
    networks.provide(inner if poisoned is None else Poisoned(inner, poisoned))
    directory.mkdir()
    return train_sweep(directory, SPEC.replace("DATASET", dataset).replace("STOP", stop))


def seen(sweep: Sweep) -> dict[str, tuple[object, ...]]:
    """What training, stopping and search made of the data, by trial."""
    found = {}
    for cell in sweep.plan.cells.values():
        confirmed = sweep.plan.confirmed(cell.dataset, cell.row)
        for trial in [*sweep.plan.search_trials(cell), *confirmed]:
            record = sweep.store.record(trial.key)
            assert record is not None
            assert record.status == "done"
            network = sweep.store.tensors(record, "network.pt")
            weights = None if network is None else network["parameters"].tolist()
            found[f"{trial.key} {trial.config.phase} {cell.row}"] = (
                record.curve,
                record.best_epoch,
                record.validation,
                weights,
            )
    return found


def judged(sweep: Sweep) -> dict[tuple[str, str], dict[str, float]]:
    """What calibrators came to, on the rows that choose among them and on test rows."""
    dataset = next(iter(sweep.loaded.datasets))
    return {
        (row, name): {f"validation/{m}": v for m, v in evaluation.validation.items()}
        | evaluation.test
        for row in sweep.spec.methods
        for trial in sweep.records.confirmed(dataset, row)
        for name, evaluation in trial.evaluations.items()
    }


@pytest.mark.parametrize("dataset", ["blobs-1.7", "iris"])
def test_rows_set_apart_reach_neither_training_nor_stopping_nor_search(
    dataset: str, tmp_path: Path, clean_datasets: None
) -> None:
    clean = trained(tmp_path / "clean", dataset, "nll", None)
    poisoned = trained(tmp_path / "poisoned", dataset, "nll", "apart")
    # The same suggestions and choices, hence the same keys, and all that training made.
    assert seen(poisoned) == seen(clean)
    # What was poisoned is what chooses: identity has the same map and another score.
    name = ("standard", "identity")
    assert judged(poisoned)[name]["validation/nll"] > judged(clean)[name]["validation/nll"]
    assert judged(poisoned)[name]["nll"] == judged(clean)[name]["nll"]
    temperature = ("standard", "temperature")
    assert judged(poisoned)[temperature]["nll"] != judged(clean)[temperature]["nll"]


def test_rows_that_stop_and_search_reach_neither_calibrators_nor_the_choice(
    tmp_path: Path, clean_datasets: None
) -> None:
    # The last epoch is kept, and one suggestion confirmed: only the choice is left to be misled.
    text = SPEC.replace("{loguniform: [0.01, 0.5]}", "0.1").replace("STOP", "none")
    inner = load_dataset("iris", {})
    sweeps = []
    for part in (None, "validation"):
        networks.provide(inner if part is None else Poisoned(inner, part))
        (tmp_path / str(part)).mkdir()
        sweeps.append(train_sweep(tmp_path / str(part), text.replace("DATASET", "iris")))
    clean, poisoned = sweeps
    assert judged(poisoned) == judged(clean)
    assert poisoned.analysis.selection == clean.analysis.selection
    for (key, ours), theirs in zip(seen(poisoned).items(), seen(clean).values(), strict=True):
        assert ours[3] == theirs[3], key  # the weights
        assert ours[2] != theirs[2], key  # what validation rows said of them


@pytest.mark.parametrize("name", ["blobs-1.7", "digits"])
@pytest.mark.parametrize("share", [False, True])
def test_methods_that_learn_on_held_out_rows_get_none_that_choose(name: str, share: bool) -> None:
    protocol = PROTOCOLS["nested"].model_copy(update={"share_validation": share})
    splits = load_dataset(name, {}).split(protocol, 3, held_out=True)
    assert splits.apart is not None
    assert splits.meta_validation is not None
    rows = {tuple(row.flatten().tolist()) for row in splits.apart.inputs}
    for part in (splits.train, splits.validation, splits.meta_validation):
        assert rows.isdisjoint(tuple(row.flatten().tolist()) for row in part.inputs)
    assert splits.meta_validation.inputs.equal(splits.validation.inputs) == share
