"""The store's contract, on every kind of file system, and its names."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from calibration.metrics.row_scores import row_scores
from sweeps.store import (
    RESERVED_NAMES,
    Store,
    StoreError,
    encode_arrays,
    encode_tensors,
    file_name,
)
from sweeps.store.codec import STORE_FORMAT
from tests.outcomes import changed, evaluation, outcome, recorded
from tests.sweeps.conftest import Raw

KEY, OTHER = "ab" * 16, "cd" * 16
ARRAYS = {"validation_logits": torch.randn(7, 3), "validation_labels": torch.arange(7)}
NETWORK = {"parameters": torch.randn(5), "method": {}, "epoch": 3}
OUTCOME = outcome(
    config={"seed": 1}, curve=[{"epoch": 1, "validation/nll": 0.1 + 0.2}], times=[1.5]
)
FILES = {"predictions.npz": encode_arrays(ARRAYS), "network.pt": encode_tensors(NETWORK)}
STUDY = "blobs-1.7/standard/0123abcd"


def same(found: Any, expected: Any) -> bool:
    """Equality of nested values down to the bits of tensors."""
    if isinstance(expected, torch.Tensor):
        return torch.equal(found, expected) and found.dtype == expected.dtype
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in found)
    return bool(found == expected)


def test_a_record_is_found_whole_with_its_files(store: Store, raw: Raw) -> None:
    assert store.record(KEY) is None
    assert store.file_record(KEY, OUTCOME, FILES)
    record = recorded(store, KEY)
    assert changed(record) == OUTCOME
    assert record.key == KEY
    home = f"records/{KEY}/{record.attempt}"
    assert raw.names() == [f"{home}/{name}" for name in sorted(FILES)] + [
        f"records/{KEY}/record.json"
    ]
    assert store.intact(record)
    assert store.file(record, "network.pt") == FILES["network.pt"]
    assert store.file(record, "history.npz") is None
    assert store.arrays(record, "history.npz") is None
    assert same(store.predictions(record), ARRAYS)
    assert same(store.tensors(record, "network.pt"), NETWORK)
    assert store.evaluations(record, "15-bins") == {}
    assert store.evaluation_tags(record) == []
    assert Store(store.root).record(KEY) == record


def test_a_record_without_predictions_says_so(store: Store) -> None:
    store.file_record(KEY, outcome("failed"))
    with pytest.raises(StoreError, match=f"{KEY}.*no predictions"):
        store.predictions(recorded(store, KEY))


def test_a_record_s_files_are_read_without_reading_it_again(store: Store, raw: Raw) -> None:
    store.file_record(KEY, OUTCOME, FILES)
    record = recorded(store, KEY)
    raw.write(f"records/{KEY}/record.json", b"damaged since")
    assert same(store.predictions(record), ARRAYS)
    assert store.intact(record)
    assert store.extra(record, "reliability.png") is None
    assert raw.read(f"records/{KEY}/record.json") == b"damaged since"


def test_a_record_is_plain_json_with_a_checksum_of_its_bytes(store: Store, raw: Raw) -> None:
    curve = [{"epoch": n + 1, "loss": x} for n, x in enumerate((math.nan, -math.inf, 1.5))]
    measured = {"nll": 0.5, "own": math.nan}
    done = outcome(curve=curve, times=[1.0, 2.0, 3.0], validation=measured)
    store.file_record(KEY, done, FILES)
    content = raw.read(f"records/{KEY}/record.json")
    loaded = json.loads(content)
    first, rest = content.split(b"\n", 1)
    assert loaded["checksum"] == f"sha256:{hashlib.sha256(rest).hexdigest()}"
    assert first == b'{"checksum": "%s",' % loaded["checksum"].encode()
    assert [row["loss"] for row in loaded["curve"]] == ["nan", "-inf", 1.5]
    assert (loaded["format"], loaded["place"]) == (STORE_FORMAT, f"{KEY}/record.json")
    record = recorded(store, KEY)
    assert [row["loss"] for row in record.curve[1:]] == [-math.inf, 1.5]
    assert math.isnan(record.curve[0]["loss"])
    assert math.isnan(record.validation["own"])
    assert loaded["attempt"] == record.attempt
    listed = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for name, content in FILES.items()
    }
    assert loaded["files"] == listed


def test_the_first_record_stays(store: Store, raw: Raw) -> None:
    assert store.file_record(KEY, outcome(seconds=1.0), FILES)
    names = raw.names()
    assert not store.file_record(KEY, outcome(seconds=2.0), {"predictions.npz": b"other"})
    record = recorded(store, KEY)
    assert record.seconds == 1
    assert raw.names() == names
    assert store.intact(record)
    assert same(store.predictions(record), ARRAYS)


def test_what_a_trial_needs_on_its_way_goes_when_it_ends(store: Store, raw: Raw) -> None:
    assert store.checkpoint(KEY) is None
    assert store.live(KEY) is None
    for key in (KEY, OTHER):
        for epoch in (1, 2):
            store.write_checkpoint(key, NETWORK | {"epoch": epoch})
            store.write_live(key, {"epoch": epoch, "curve": [{"nll": float("inf")}]})
        assert same(store.checkpoint(key), NETWORK | {"epoch": 2})
        assert store.live(key) == {"epoch": 2, "curve": [{"nll": "inf"}]}
    store.file_record(KEY, OUTCOME)
    store.file_stopped("sweep", STUDY, OTHER, outcome("pruned"))
    for key in (KEY, OTHER):
        assert store.checkpoint(key) is None
        assert store.live(key) is None
    assert raw.names() == [f"records/{KEY}/record.json", f"sweep/stopped/{STUDY}/{OTHER}.json"]


def test_extras_and_maps_belong_to_the_record_they_were_made_of(store: Store) -> None:
    with pytest.raises(StoreError, match="no record"):
        store.write_extra(KEY, "reliability.png", b"")
    with pytest.raises(StoreError, match="no record"):
        store.write_evaluation(KEY, "15-bins", "temperature", evaluation())
    store.file_record(KEY, OUTCOME, FILES)
    record = recorded(store, KEY)
    store.write_extra(KEY, "reliability.png", b"drawn")
    made = evaluation(intervals={"ece": (0.2, 0.3)}, large={"nll": 0.1 + 0.2}, converged=False)
    failed, coarse = evaluation(failed="a bug"), evaluation(test={"ece": 0.5})
    store.write_evaluation(KEY, "15-bins", "temperature", made)
    store.write_evaluation(KEY, "15-bins", "my_package.maps:Own", failed)
    store.write_evaluation(KEY, "30-bins", "temperature", coarse)
    assert store.extra(record, "reliability.png") == b"drawn"
    assert store.extra(record, "else.png") is None
    assert store.evaluations(record, "15-bins") == {
        "temperature": made,
        "my_package.maps:Own": failed,
    }
    assert store.evaluations(record, "30-bins") == {"temperature": coarse}
    assert sorted(store.evaluation_tags(record)) == ["15-bins", "30-bins"]
    assert store.intact(record)
    with pytest.raises(ValueError, match=r"predictions\.npz"):
        store.write_extra(KEY, "predictions.npz", b"")
    store.retire(record)
    store.file_record(KEY, OUTCOME, FILES)
    again = recorded(store, KEY)
    assert store.extra(again, "reliability.png") is None
    assert store.evaluations(again, "15-bins") == {}


def test_a_retired_trial_is_kept_and_can_be_tried_again(store: Store, raw: Raw) -> None:
    for number in (1, 2):
        assert store.file_record(KEY, outcome("failed", epochs=number), FILES)
        store.write_evaluation(KEY, "15-bins", "temperature", evaluation())
        record = recorded(store, KEY)
        store.retire(record)
        assert store.record(KEY) is None
        place = f"retired/{KEY}-{number}"
        assert json.loads(raw.read(f"{place}/record.json"))["epochs"] == number
        assert raw.read(f"{place}/{record.attempt}/network.pt") == FILES["network.pt"]
    names = raw.names()
    assert not [name for name in names if name.startswith("records")]
    store.retire(record)
    assert raw.names() == names


def test_a_record_that_has_been_replaced_is_not_retired(store: Store) -> None:
    store.file_record(KEY, outcome("failed"))
    seen = recorded(store, KEY)
    Store(store.root).retire(seen)
    Store(store.root).file_record(KEY, OUTCOME, FILES)
    store.retire(seen)
    assert store.intact(recorded(store, KEY))
    assert recorded(store, KEY).status == "done"


def test_suggestions_come_back_by_number(store: Store, raw: Raw) -> None:
    assert store.suggestions("sweep", STUDY) == {}
    made = {n: {"number": n, "hyperparameters": {"lr": 10.0**-n, "x": "é"}} for n in (0, 2, 31)}
    for number, suggestion in made.items():
        store.write_suggestion("sweep", STUDY, number, suggestion)
    store.write_suggestion("sweep", "blobs-1.7/standard/other", 1, {"number": 1})
    raw.write(f"sweep/suggestions/{STUDY}/.000007.json.0123", b"a killed writer's")
    assert store.suggestions("sweep", STUDY) == made


def test_a_stopped_trial_is_one_study_s_affair(store: Store) -> None:
    assert store.outcome("sweep", STUDY, KEY) is None
    store.file_stopped("sweep", STUDY, KEY, outcome("pruned", epochs=1))
    store.file_stopped("sweep", STUDY, KEY, outcome("pruned", epochs=2))
    stopped = store.stopped("sweep", STUDY, KEY)
    assert stopped is not None
    assert (stopped.status, stopped.epochs, stopped.key) == ("pruned", 1, KEY)
    assert store.outcome("sweep", STUDY, KEY) == stopped
    assert store.stopped("sweep", "another/study", KEY) is None
    assert store.record(KEY) is None
    # Another sweep trains it whole: this study has still stopped it.
    store.file_record(KEY, OUTCOME)
    assert store.outcome("sweep", STUDY, KEY) == stopped
    assert store.outcome("sweep", "another/study", KEY) == store.record(KEY)


def test_a_sweep_s_files_are_listed_without_what_is_not_theirs(store: Store, raw: Raw) -> None:
    assert store.files("sweep") == []
    assert store.read_file("sweep", "report.html") is None
    other = Store(store.root)
    for name in ("report.html", "empty.csv", "figures/a.png", "figures/b.png"):
        other.write_file("sweep", name, name.encode() if name != "empty.csv" else b"")
    raw.write("sweep/.report.html.0123", b"a killed writer's")
    store.write_suggestion("sweep", STUDY, 0, {})
    store.file_stopped("sweep", STUDY, KEY, outcome("pruned"))
    with store.lock("sweep"):
        assert store.files("sweep") == ["empty.csv", "report.html"]
    assert store.files("sweep", "figures") == ["figures/a.png", "figures/b.png"]
    assert store.files("sweep", "nowhere") == []
    assert store.read_file("sweep", "figures/a.png") == b"figures/a.png"
    assert store.read_file("sweep", "empty.csv") == b""
    other.write_file("sweep", "report.html", b"new")
    other.write_file("sweep", "figures/c.png", b"")
    assert store.read_file("sweep", "report.html") == b"new"
    assert store.files("sweep", "figures")[-1] == "figures/c.png"
    assert store.location("sweep", "report.html") == f"{store.root}/sweep/report.html"
    assert store.location("sweep") == f"{store.root}/sweep"


def test_the_root_is_what_another_process_opens(store: Store, root: str, tmp_path: Path) -> None:
    if root.startswith("s3"):
        assert (store.root, store.local) == (root, None)
    else:
        assert store.root == str(store.local)
        assert store.local == tmp_path / ("runs" if "://" not in root else "r u n s")


def test_home_and_relative_paths_are_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert Store("~/runs").local == Store("runs").local == Store(Path("runs")).local
    assert Store("runs").root == str(tmp_path / "runs")


BAD_NAMES = ["", ".", "..", ".hidden", "/etc/passwd", "a/../b", "a//b", "a\\b", "a\0b", "x*", "a\n"]


@pytest.mark.parametrize("name", [*BAD_NAMES, "../x", "suggestions/x", "stopped/x", "importance/x"])
def test_file_names_cannot_escape(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path / "runs")
    store.file_record(KEY, OUTCOME)
    record = recorded(store, KEY)
    before = sorted(tmp_path.rglob("*"))
    for call in (
        lambda: store.write_file("sweep", name, b""),
        lambda: store.read_file("sweep", name),
        lambda: store.files("sweep", name or ".."),
        lambda: store.file_record(OTHER, OUTCOME, {name: b""}),
        lambda: store.file(record, name),
        lambda: store.write_extra(KEY, name, b""),
        lambda: store.extra(record, name),
        lambda: store.write_evaluation(KEY, name, "x", evaluation()),
        lambda: store.write_evaluation(KEY, "tag", name, evaluation()),
        lambda: store.evaluations(record, name),
    ):
        with pytest.raises(ValueError, match=r"name|tag"):
            call()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", [*BAD_NAMES, "a/b", *sorted(RESERVED_NAMES)])
def test_sweep_names_cannot_escape(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path / "runs")
    for call in (
        lambda: store.write_file(name, "x", b""),
        lambda: store.files(name),
        lambda: store.location(name),
        lambda: store.lock(name),
        lambda: store.suggestions(name, STUDY),
        lambda: store.write_suggestion(name, STUDY, 0, {}),
        lambda: store.file_stopped(name, STUDY, KEY, OUTCOME),
    ):
        with pytest.raises(ValueError, match="sweep"):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("study", ["", ".", "..", "a/../../b", "/a", "a/", "a\0", "a\\b"])
def test_study_names_cannot_escape(tmp_path: Path, study: str) -> None:
    store = Store(tmp_path / "runs")
    with pytest.raises(ValueError, match="study"):
        store.write_suggestion("sweep", study, 0, {})
    with pytest.raises(ValueError, match="study"):
        store.stopped("sweep", study, KEY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["", "..", "k", "AB", "ab/..", "ab\n", "0" * 65])
def test_keys_are_hexadecimal(tmp_path: Path, key: str) -> None:
    store = Store(tmp_path / "runs")
    for call in (
        lambda: store.record(key),
        lambda: store.file_record(key, OUTCOME, FILES),
        lambda: store.checkpoint(key),
        lambda: store.write_checkpoint(key, {}),
        lambda: store.write_live(key, {}),
        lambda: store.stopped("sweep", STUDY, key),
        lambda: store.file_stopped("sweep", STUDY, key, OUTCOME),
    ):
        with pytest.raises(ValueError, match="key"):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("entry", ["checksum", "format"])
def test_the_seal_s_own_entries_are_not_the_caller_s(tmp_path: Path, entry: str) -> None:
    with pytest.raises(ValueError, match=entry):
        Store(tmp_path).write_live(KEY, {entry: 1})


def test_file_names_keep_what_is_usual() -> None:
    assert file_name("bo4sc T=5/../x") == "bo4sc_T_5_.._x"


def test_row_scores_belong_to_their_evaluation(tmp_path: Path) -> None:
    """Another version's are not read; those that contradict it are set aside, and it with them."""
    store = Store(tmp_path)
    store.file_record("ab", outcome())
    record = recorded(store, "ab")
    logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(50) % 3
    rows = row_scores(logits.softmax(-1), labels, logits.argmax(-1))
    test = {"error": float((logits.argmax(-1) != labels).double().mean())}
    test |= {"nll": float(cross_entropy(logits.double(), labels)), "ece": 0.1}
    found = evaluation("temperature", test=test)
    assert store.row_scores(record, "tag", "temperature", found) is None
    store.write_evaluation("ab", "tag", "temperature", found, rows)
    again = store.row_scores(record, "tag", "temperature", found)
    assert again is not None
    assert again.labels == rows.labels
    for name in ("confidence", "correct", "nll", "brier"):
        assert torch.equal(getattr(again, name), getattr(rows, name))
    other = found.model_copy(update={"version": "another"})
    assert store.row_scores(record, "tag", "temperature", other) is None
    assert store.evaluations(record, "tag")
    better = evaluation("temperature", test=test | {"nll": 0.1})
    store.write_evaluation("ab", "tag", "temperature", better)
    assert store.row_scores(record, "tag", "temperature", better) is None
    assert store.evaluations(record, "tag") == {}  # the sweep's next run makes both again
    (reason,) = (tmp_path / "damaged").rglob("reason.txt")
    assert "its nll is" in reason.read_text()
