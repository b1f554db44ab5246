"""Damaged and hostile files: always noticed, never believed, never executed, never deleted."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.store import EvaluationRecord, Store, StoreError, encode_arrays, encode_tensors
from sweeps.store.codec import (
    STORE_FORMAT,
    DamagedError,
    decode_checkpoint,
    encode_checkpoint,
    seal,
    unseal,
)
from sweeps.store.sealed import sealed
from tests.outcomes import evaluation, outcome, recorded
from tests.sweeps.conftest import Raw, checkpoint_of

KEY, STUDY = "ab" * 16, "blobs/standard/0123"
CURVE = [{"epoch": 1, "validation/nll": 0.3}]
OUTCOME = outcome(config={"seed": 1}, curve=CURVE, times=[1.5])
FILES = {
    "predictions.npz": encode_arrays({"validation_logits": torch.randn(9, 3)}),
    "network.pt": encode_tensors({"parameters": torch.randn(5)}),
}
STATE = {"parameters": torch.arange(40.0), "curve": [{"epoch": 1}], "rng": torch.arange(9)}
SUGGESTION = {"number": 3, "hyperparameters": {"lr": 0.01, "method": "x"}}


class Place(NamedTuple):
    """A file of the store below, and what reads it: None for nothing."""

    name: str
    read: Callable[[Store], Any]


def _file(store: Store, name: str) -> bytes | None:
    record = store.record(KEY)
    try:
        return None if record is None else store.file(record, name)
    except StoreError:
        return None


def _evaluation(store: Store) -> EvaluationRecord | None:
    record = store.record(KEY)
    return None if record is None else store.evaluations(record, "15-bins").get("temperature")


PLACES = {
    "record": Place("records/KEY/record.json", lambda s: s.record(KEY)),
    "predictions": Place("records/KEY/*/predictions.npz", lambda s: _file(s, "predictions.npz")),
    "network": Place("records/KEY/*/network.pt", lambda s: _file(s, "network.pt")),
    "map": Place("records/KEY/*/evaluations/15-bins/temperature.json", _evaluation),
    "checkpoint": Place("records/KEY/checkpoint.bin", lambda s: s.checkpoint(KEY)),
    "live": Place("records/KEY/live.json", lambda s: s.live(KEY)),
    "suggestion": Place(
        f"sweep/suggestions/{STUDY}/000003.json", lambda s: s.suggestions("sweep", STUDY).get(3)
    ),
    "stopped": Place(f"sweep/stopped/{STUDY}/KEY.json", lambda s: s.stopped("sweep", STUDY, KEY)),
}


def fill(root: str) -> Store:
    """A store with one file in every place."""
    store = Store(root)
    store.file_stopped("sweep", STUDY, KEY, OUTCOME)
    assert store.file_record(KEY, OUTCOME, FILES)
    store.write_evaluation(KEY, "15-bins", "temperature", evaluation())
    store.write_evaluation(KEY, "15-bins", "isotonic", evaluation(test={"ece": 0.5}))
    store.write_checkpoint(KEY, STATE)
    store.write_live(KEY, {"curve": CURVE})
    for number in (2, 3):
        store.write_suggestion("sweep", STUDY, number, SUGGESTION)
    return store


def path_of(place: Place, names: list[str]) -> str:
    pattern = Path(place.name.replace("KEY", KEY))
    (found,) = [name for name in names if Path(name).match(str(pattern))]
    return found


def spoilt(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


@pytest.mark.parametrize("place", PLACES)
def test_a_damaged_file_is_set_aside_with_a_warning_and_can_be_made_again(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = fill(str(tmp_path / "runs"))
    raw = Raw(store.root)
    name = path_of(PLACES[place], raw.names())
    content = spoilt(raw.read(name))
    raw.write(name, content)
    with caplog.at_level(logging.WARNING, logger="calsweep"):
        assert PLACES[place].read(store) is None
        assert PLACES[place].read(store) is None
    (warning,) = [r.getMessage() for r in caplog.records if r.name == "calsweep"]
    assert f"{store.root}/{name}" in warning
    aside = [n for n in raw.names() if n.startswith("damaged/") and n.endswith(Path(name).name)]
    assert [raw.read(n) for n in aside] == [content]
    assert "/".join(aside[0].split("/")[:2]) in warning
    of_the_trial = place in ("record", "predictions", "network")
    assert (store.record(KEY) is None) == of_the_trial
    assert list(store.suggestions("sweep", STUDY)) == ([2] if place == "suggestion" else [2, 3])
    if not of_the_trial:
        assert store.intact(recorded(store, KEY))
        assert "isotonic" in store.evaluations(recorded(store, KEY), "15-bins")
    store.file_record(KEY, OUTCOME, FILES)
    store.file_stopped("sweep", STUDY, KEY, OUTCOME)
    store.write_evaluation(KEY, "15-bins", "temperature", evaluation())
    store.write_suggestion("sweep", STUDY, 3, SUGGESTION)
    store.write_live(KEY, {})
    store.write_checkpoint(KEY, STATE)
    assert store.intact(recorded(store, KEY))
    assert PLACES[place].read(store) is not None


def test_damage_is_set_aside_in_a_bucket_too(s3_root: str) -> None:
    store = fill(s3_root)
    raw = Raw(s3_root)
    lost = {}
    for place in ("map", "checkpoint", "live", "suggestion", "stopped", "predictions"):
        name = path_of(PLACES[place], raw.names())
        lost[name.rpartition("/")[2]] = spoilt(raw.read(name))
        raw.write(name, spoilt(raw.read(name)))
        assert PLACES[place].read(store) is None
    assert store.record(KEY) is None
    aside = [name for name in raw.names() if name.startswith("damaged/")]
    assert lost.items() <= {name.rpartition("/")[2]: raw.read(name) for name in aside}.items()
    # With the trial went its other files.
    assert {"network.pt", "record.json", "isotonic.json"} <= {n.rpartition("/")[2] for n in aside}
    assert not [name for name in raw.names() if name.startswith("records/")]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["missing", "empty", "longer", "of another attempt"])
def test_a_record_is_intact_only_with_all_its_files(tmp_path: Path, name: str, how: str) -> None:
    store = fill(str(tmp_path / "runs"))
    (path,) = (tmp_path / "runs" / "records" / KEY).glob(f"*/{name}")
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "longer":
        path.write_bytes(path.read_bytes() + b"\0")
    else:
        path.write_bytes(encode_arrays({"validation_logits": torch.zeros(9, 3)}))
    assert not store.intact(recorded(store, KEY))
    assert store.record(KEY) is None
    moved = tmp_path / "runs" / "damaged" / f"{KEY}-1"
    assert (moved / "record.json").exists()
    assert name in (moved / "reason.txt").read_text()


def test_a_damaged_file_is_in_nobody_s_way(tmp_path: Path) -> None:
    store = fill(str(tmp_path))
    for path in (
        tmp_path / "records" / KEY / "record.json",
        tmp_path / "sweep" / "stopped" / STUDY / f"{KEY}.json",
    ):
        path.write_bytes(path.read_bytes()[:-1])
    store.file_stopped("sweep", STUDY, KEY, outcome("pruned", epochs=2))
    assert store.file_record(KEY, outcome(epochs=3))
    stopped = store.stopped("sweep", STUDY, KEY)
    assert stopped is not None
    assert stopped.epochs == 2
    assert recorded(store, KEY).epochs == 3


def test_what_another_process_has_repaired_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(str(tmp_path))
    read = store._files.read
    seen: list[str] = []

    def damaged_at_first(name: str) -> bytes | None:
        seen.append(name)
        return b"damaged" if seen.count(name) == 1 else read(name)

    monkeypatch.setattr(store._files, "read", damaged_at_first)
    assert store.record(KEY) is None
    assert store.checkpoint(KEY) is None
    assert store.record(KEY) is not None
    assert store.checkpoint(KEY) is not None
    assert not (tmp_path / "damaged").exists()


def test_another_trial_s_record_is_not_taken(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.file_record(KEY, OUTCOME)
    (tmp_path / "records" / "cdcd").mkdir()
    shutil.copy(tmp_path / "records" / KEY / "record.json", tmp_path / "records" / "cdcd")
    assert store.record("cdcd") is None
    assert store.record(KEY) is not None


def test_a_record_that_lists_files_elsewhere_is_not_followed(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    entry = {"sha256": hashlib.sha256(b"secret").hexdigest(), "size": 6}
    path = tmp_path / "runs" / "records" / KEY / "record.json"
    path.parent.mkdir(parents=True)
    for attempt, name in (("a" * 32, "../../../../secret"), ("../../..", "secret")):
        files = {name: entry}
        forged = {**OUTCOME.model_dump(), "key": KEY, "attempt": attempt, "files": files}
        path.write_bytes(sealed(f"records/{KEY}/record.json", forged))
        assert store.record(KEY) is None
        assert not path.exists()
    assert secret.exists()
    honest = {**forged, "attempt": "a" * 32}
    path.write_bytes(sealed(f"records/{KEY}/record.json", honest))
    assert store.record(KEY) is not None


@st.composite
def damages(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Some bytes changed, cut off, left out or added."""
    kind = draw(st.sampled_from(["flip", "truncate", "remove", "insert", "zero"]))
    place = draw(st.floats(0, 1, exclude_max=True))
    mask = draw(st.integers(1, 255))

    def damage(content: bytes) -> bytes:
        at = int(place * len(content))
        if kind == "truncate":
            return content[:at]
        if kind == "remove":
            return content[:at] + content[at + 1 + mask % 16 :]
        if kind == "insert":
            return content[:at] + bytes([mask]) + content[at:]
        if kind == "zero":
            return content[:at] + bytes(len(content) - at)
        return content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]

    return damage


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template") / "runs"
    fill(str(root))
    return root


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(place=st.sampled_from(sorted(PLACES)), damage=damages())
def test_no_damage_is_ever_believed(
    template: Path, tmp_path: Path, place: str, damage: Callable[[bytes], bytes]
) -> None:
    copy = tmp_path / "runs"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(template, copy)
    name = path_of(PLACES[place], Raw(str(copy)).names())
    content = (copy / name).read_bytes()
    damaged = damage(content)
    (copy / name).write_bytes(damaged)
    found = PLACES[place].read(Store(copy))
    assert (found is not None) == (damaged == content)
    assert (copy / name).exists() == (damaged == content)


def test_every_single_byte_of_a_sealed_file_counts() -> None:
    content = seal({"key": KEY, "x": [1.5, "é", None], "status": "done"})
    assert unseal(content)["x"] == [1.5, "é", None]
    for at in range(len(content)):
        for value in set(range(256)) - {content[at]}:
            with pytest.raises(DamagedError):
                unseal(content[:at] + bytes([value]) + content[at + 1 :])
        with pytest.raises(DamagedError):
            unseal(content[:at])


def test_every_single_bit_of_a_checkpoint_counts() -> None:
    content = encode_checkpoint({"epoch": 3})
    assert decode_checkpoint(content) == {"epoch": 3}
    for at in range(len(content)):
        for bit in range(8):
            flipped = bytes([content[at] ^ (1 << bit)])
            with pytest.raises(DamagedError):
                decode_checkpoint(content[:at] + flipped + content[at + 1 :])
        with pytest.raises(DamagedError):
            decode_checkpoint(content[:at])


@given(
    values=st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=8,
        ),
    )
)
@settings(max_examples=50, deadline=None)
def test_what_is_sealed_comes_back(values: dict[str, Any]) -> None:
    values = {k: v for k, v in values.items() if k not in ("checksum", "format")}
    found = unseal(seal(values))
    assert found.pop("format") == STORE_FORMAT
    assert found.pop("checksum").startswith("sha256:")
    assert found == _finite(values)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return {"nan": "nan", "inf": "inf", "-inf": "-inf"}.get(str(value), value)


class Evil:
    """Unpickled, it makes a directory."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.mark,)


def evil_bytes(kind: str, mark: Path) -> bytes:
    """A file of some kind that makes a directory ``mark`` if it is unpickled."""
    if kind == "pickle":
        return pickle.dumps(Evil(mark), protocol=2)
    if kind == "torch":
        return encode_tensors({"parameters": Evil(mark)})
    buffer = io.BytesIO()
    array = np.array([Evil(mark)], dtype=object)
    if kind == "npz":
        np.savez(buffer, allow_pickle=True, logits=array)
    else:
        np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def test_the_hostile_file_is_a_real_one(tmp_path: Path) -> None:
    pickle.loads(evil_bytes("pickle", tmp_path / "executed"))
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize("kind", ["pickle", "torch", "npz", "npy"])
def test_nothing_is_unpickled(tmp_path: Path, template: Path, kind: str) -> None:
    mark = tmp_path / "executed"
    content = evil_bytes(kind, mark)
    for place in PLACES.values():
        copy = Path(shutil.copytree(template, tmp_path / f"runs-{len(list(tmp_path.iterdir()))}"))
        (copy / path_of(place, Raw(str(copy)).names())).write_bytes(content)
        assert place.read(Store(copy)) is None
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["pickle", "torch", "npz", "npy"])
def test_nothing_is_unpickled_even_with_the_right_checksum(tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "executed"
    content = evil_bytes(kind, mark)
    store = Store(tmp_path / "runs")
    store.file_record(KEY, OUTCOME, dict.fromkeys(FILES, content))
    record = recorded(store, KEY)
    assert store.intact(record)
    with pytest.raises(StoreError, match=r"predictions\.npz"):
        store.predictions(record)
    with pytest.raises(StoreError, match=r"network\.pt"):
        store.tensors(record, "network.pt")
    (tmp_path / "runs" / "records" / KEY / "checkpoint.bin").write_bytes(checkpoint_of(content))
    assert store.checkpoint(KEY) is None
    assert not mark.exists()
