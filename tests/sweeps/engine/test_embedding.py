"""Heads on a frozen backbone: embedded once, kept in the store, test rows at the end only."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from calibration.data.embedded import EmbeddedDataset
from calibration.models import Encoder
from sweeps.engine import embedding
from sweeps.engine.dry_run import try_rows
from sweeps.engine.embedding import embedded_dataset, embedding_key
from sweeps.engine.estimate import estimate
from sweeps.engine.identity import TrialConfig
from sweeps.engine.networks import fresh_run, raw_dataset
from sweeps.engine.plan import Plan
from sweeps.engine.trial import TrialRun
from sweeps.ray_backend.gpu_share import trial_bytes
from sweeps.spec import LoadedSpec, SpecError, load_spec
from sweeps.store import Store
from sweeps.sweep import Sweep
from tests.pretrained import HEADS, reviews, text_encoder, timm_weights
from tests.trained import train_sweep

SEARCHED = re.sub(r"  focal.*\n", "", HEADS)
"""One row: its search comes first."""


class Passes:
    """Counts the rows that encoders embed."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    @property
    def large(self) -> list[int]:
        """Without the looks that a check takes at a row or two."""
        return [count for count in self.rows if count > 2]


@pytest.fixture
def passes() -> Iterator[Passes]:
    counted, real = Passes(), Encoder.embed

    def embed(self: Encoder, inputs: Tensor, **how: object) -> Tensor:
        counted.rows.append(len(inputs))
        return real(self, inputs, **how)  # type: ignore[arg-type]

    embedding._ARRAYS.clear()
    with patch.object(Encoder, "embed", embed):
        yield counted
    embedding._ARRAYS.clear()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    timm_weights(tmp_path / "weights.pt")
    return tmp_path


def loaded(directory: Path, text: str = HEADS) -> LoadedSpec:
    (directory / "heads.yaml").write_text(text)
    return load_spec(directory / "heads.yaml")


def first_trial(directory: Path, text: str = HEADS) -> TrialConfig:
    trial = Plan(loaded(directory, text), Store(directory / "runs")).next()
    assert trial is not None
    return trial.config


def attempt(config: TrialConfig, store: Store) -> TrialRun:
    return TrialRun(config, store, calibrators=[], evaluation=None)  # type: ignore[arg-type]


def another_process() -> None:
    """What a process remembers is gone."""
    embedding._ARRAYS.clear()


def test_a_sweep_embeds_every_part_once_and_its_records_keep_heads(
    directory: Path, passes: Passes
) -> None:
    sweep = train_sweep(directory, HEADS)
    records = [sweep.store.record(key) for key in sweep.store.trial_keys()]
    assert [record.status for record in records if record is not None] == ["done"] * (3 + 2 + 2)
    dataset = sweep.loaded.datasets["digits"]
    rows = sum(len(part.labels) for part in (dataset.pool, dataset.test(0)))  # type: ignore[attr-defined]
    assert sum(passes.large) == rows == 1797
    for record in records:
        assert record is not None
        network = sweep.store.tensors(record, "network.pt")
        if network is not None:
            assert network["parameters"].shape == (96 * 10 + 10,)
        assert record.environment["timm"]
    # Another process trains nothing and embeds nothing.
    another_process()
    train_sweep(directory, HEADS.replace("trials: 3", "trials: 4"))
    assert sum(passes.large) == rows
    assert not list((directory / "runs" / "embeddings").glob("*.claim"))


def test_test_rows_are_embedded_after_a_confirm_trial_only(directory: Path, passes: Passes) -> None:
    with patch.object(EmbeddedDataset, "test", side_effect=AssertionError("read too early")):
        sweep = train_sweep(directory, SEARCHED, limit=3)  # the search
    records = [sweep.store.record(key) for key in sweep.store.trial_keys()]
    assert [record.status for record in records if record is not None] == ["done"] * 3
    config = first_trial(directory)
    assert sweep.store.embeddings(embedding_key(config, "training")) is not None
    assert sweep.store.embeddings(embedding_key(config, "test")) is None
    train_sweep(directory, SEARCHED)
    found = sweep.store.embeddings(embedding_key(config, "test"))
    assert found is not None
    assert found.shape == (449, 96)


def test_heads_see_the_rows_that_other_models_see(directory: Path) -> None:
    config = first_trial(directory)
    raw = raw_dataset(config)
    embedded = embedded_dataset(config, raw, None)
    for held_out in (False, True):
        ours = embedded.split(config.protocol, 3, held_out=held_out)
        theirs = raw.split(config.protocol, 3, held_out=held_out)
        assert torch.equal(ours.train.labels, theirs.train.labels)
        assert torch.equal(ours.validation.labels, theirs.validation.labels)
    encoder = embedding.encoder_of(config.model.name, config.model.options)  # type: ignore[union-attr]
    assert torch.allclose(
        ours.validation.inputs[:5],
        encoder.embed(theirs.validation.inputs[:5], batch_size=5),
        rtol=1e-3,
        atol=1e-4,
    )


def test_a_kill_between_embedding_and_training_costs_nothing(
    directory: Path, passes: Passes
) -> None:
    config, store = first_trial(directory), Store(directory / "runs")
    attempt(config, store).prepare()
    before = list(passes.rows)
    another_process()
    later = attempt(config, store)
    later.prepare()
    assert later.advance(600)
    assert passes.rows == before
    record = store.record(config.key())
    assert record is not None
    assert record.status == "done"


def test_a_kill_while_embedding_costs_that_pass_alone(
    directory: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, store = first_trial(directory), Store(directory / "runs")
    key = embedding_key(config, "training")
    assert store.claim_embeddings(key)  # whoever did that is gone
    monkeypatch.setattr(embedding, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(embedding, "POLL_SECONDS", 0.05)
    embedded_dataset(config, raw_dataset(config), store)
    assert passes.large == [1348]
    assert store.embeddings_claim(key) is None


def test_of_two_workers_one_embeds_and_the_other_waits(
    directory: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, store = first_trial(directory), Store(directory / "runs")
    monkeypatch.setattr(embedding, "POLL_SECONDS", 0.01)
    inputs, key = raw_dataset(config).pool.inputs, embedding_key(config, "training")  # type: ignore[attr-defined]
    found: list[Tensor] = []
    workers = [
        threading.Thread(target=lambda: found.append(embedding._stored(config, key, inputs, store)))
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert passes.large == [1348]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert not store.file_embeddings(key, found[0] + 1), "write-once"
    assert torch.equal(store.embeddings(key), found[0])  # type: ignore[arg-type]


def test_who_fails_to_embed_lets_others_try(directory: Path) -> None:
    config, store = first_trial(directory), Store(directory / "runs")
    (directory / "weights.pt").unlink()
    embedding._ARRAYS.clear()
    with patch.object(Encoder, "embed", side_effect=RuntimeError("out of memory")):
        trial = attempt(config, store)
        trial.prepare()
        assert trial.advance(600)
    record = store.record(config.key())
    assert record is not None
    assert record.reason == "RuntimeError: out of memory"
    assert store.embeddings_claim(embedding_key(config, "training")) is None


def test_damaged_embeddings_are_made_again(directory: Path, passes: Passes) -> None:
    config, store = first_trial(directory), Store(directory / "runs")
    key = embedding_key(config, "training")
    embedded_dataset(config, raw_dataset(config), store)
    intact = store.embeddings(key)
    path = directory / "runs" / "embeddings" / f"{key}.bin"
    path.write_bytes(path.read_bytes()[:-20])
    another_process()
    embedded_dataset(config, raw_dataset(config), store)
    assert passes.large == [1348, 1348]
    assert torch.equal(store.embeddings(key), intact)  # type: ignore[arg-type]


def test_keys_follow_the_content_of_weights_and_not_their_place(directory: Path) -> None:
    given = first_trial(directory)
    keys = {"trial": given.key(), "data": embedding_key(given, "training")}
    (directory / "weights.pt").rename(directory / "moved.pt")
    moved = first_trial(directory, HEADS.replace("weights.pt", "moved.pt"))
    assert (moved.key(), embedding_key(moved, "training")) == tuple(keys.values())
    assert embedding_key(given, "test") != keys["data"]

    mlp = first_trial(directory, HEADS.replace("weights.pt", "moved.pt, head: mlp"))
    assert mlp.key() != given.key()
    assert embedding_key(mlp, "training") == keys["data"], "heads share embeddings"
    timm_weights(directory / "other.pt", seed=1)
    others = [
        HEADS.replace("weights.pt", "other.pt"),
        HEADS.replace("weights.pt, size: 16", "moved.pt, size: 24"),
        HEADS.replace("weights.pt", "moved.pt, batch_size: 32"),
    ]
    for text in others:
        config = first_trial(directory, text)
        assert config.key() != given.key()
        assert embedding_key(config, "training") != keys["data"]
    threads = given.model_copy(
        update={"training": given.training.model_copy(update={"threads": 2})}
    )
    for config in (threads, given.model_copy(update={"device": "cuda"})):
        assert embedding_key(config, "training") != keys["data"]


def test_weights_that_changed_since_are_not_used(directory: Path) -> None:
    config = first_trial(directory)
    timm_weights(directory / "weights.pt", seed=5)
    embedding.encoder_of.__globals__["_encoder"].cache_clear()
    with pytest.raises(ValueError, match="not those that the sweep was started with"):
        fresh_run(config.model_copy(update={"seed": 1}))


def test_checks_try_heads_and_estimate_them(directory: Path, passes: Passes) -> None:
    spec = loaded(directory)
    assert [(tried.row, tried.failure) for tried in try_rows(spec)] == [
        ("standard", ""),
        ("focal", ""),
    ]
    assert sum(passes.large) < 1000, "a few rows, for all methods"
    assert all(seconds > 0 for seconds in estimate(spec).values())
    assert trial_bytes(spec) > 0


REFUSED = {
    "augmented": (
        HEADS.replace("epochs: 3", "epochs: 3, augmentation: crop_flip"),
        "training.augmentation.*a frozen backbone sees every row once",
    ),
    "no weights": (
        HEADS.replace("weights.pt", "nowhere.pt"),
        "nowhere.pt: there is no such",
    ),
    "not said": (HEADS.replace("weights: weights.pt, ", ""), "option 'weights' is required"),
    "a table": (HEADS.replace("[digits]", "[iris]"), r"datasets.0.*needs .* images.*'iris' has a"),
    "points": (HEADS.replace("[digits]", "[bac]"), "images, but 'bac' has a table"),
    "columns": (HEADS.replace("gamma: 2", "gamma: 2, numeric_inputs: robust"), "no columns"),
    "mistyped": (HEADS.replace("size: 16", "siz: 16"), "unknown option 'siz'; did you mean 'size'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_specs_that_do_not_fit_are_refused(case: str, directory: Path) -> None:
    text, message = REFUSED[case]
    with pytest.raises(SpecError, match=message):
        loaded(directory, text)


TEXTS = """\
name: texts
datasets: [{name: table, path: reviews.csv, target: label, text: review}]
model: {name: "hf:tiny", weights: encoder, head: mlp, widths: [16]}
methods: {standard: {lr: 0.02, weight_decay: 0}}
training: {epochs: 15, batch_size: 64}
confirm_seeds: 1
calibrators: [temperature]
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    directory = tmp_path_factory.mktemp("texts")
    text_encoder(directory / "encoder")
    reviews(400).to_csv(directory / "reviews.csv", index=False)
    return train_sweep(directory, TEXTS)


@pytest.fixture(scope="module")
def tuned_texts(texts: Sweep) -> Sweep:
    text = TEXTS.replace("head: mlp, widths: [16]", "frozen: false").replace(": 15,", ": 6,")
    text = text.replace("weight_decay: 0", "weight_decay: 0, backbone_lr: 1, freeze_epochs: 1")
    return train_sweep(texts.loaded.directory, text.replace("name: texts", "name: tuned-texts"))


def test_checks_try_texts_and_estimate_the_whole_network(tuned_texts: Sweep) -> None:
    loaded = tuned_texts.loaded
    assert [(tried.row, tried.failure) for tried in try_rows(loaded)] == [("standard", "")]
    assert all(seconds > 0 for seconds in estimate(loaded).values())
    assert trial_bytes(loaded) > 8 * 4 * 8000


@pytest.mark.parametrize("how", ["texts", "tuned_texts"])
def test_texts_are_learned_and_exported_with_their_encoder(
    how: str, request: pytest.FixtureRequest
) -> None:
    from sweeps.export.choice import choose
    from sweeps.export.package import Wish, assemble
    from sweeps.export.signature import example

    texts: Sweep = request.getfixturevalue(how)
    chosen = choose(texts.records, texts.analysis, None, None, None)
    package = assemble(texts.loaded, texts.store, chosen, Wish())
    assert len(package.classifier.predict(example(package.description))) == 1
    frame = reviews(400)
    found = package.classifier.predict(frame)
    right = found["class"] == frame["label"]
    assert right.mean() > 0.9, "one word decides"
    one = package.classifier.predict(frame.iloc[[7]])["confidence"].iloc[0]
    assert one == pytest.approx(found["confidence"].iloc[7], abs=1e-4)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('{name: "hf:tiny", weights: encoder, head: mlp, widths: [16]}', "mlp", "need a model hf:"),
        ("standard: {lr: 0.02, weight_decay: 0}", "random_forest: {}", "reads numbers"),
        ("text: review", "text: stars", "column 'stars' does not hold texts"),
        ("text: review", "text: revue", "no text column 'revue'; did you mean 'review'"),
    ],
)
def test_texts_that_do_not_fit_are_refused(
    before: str, after: str, message: str, texts: Sweep
) -> None:
    path = texts.loaded.directory / "bad.yaml"
    path.write_text(TEXTS.replace(before, after))
    with pytest.raises(SpecError, match=message):
        load_spec(path)
