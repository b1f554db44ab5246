"""Stores of other versions: refused by name in one message, and left as they are."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from sweeps.cli.main import main
from sweeps.store import Store, StoreError, TrialRecord, encode_tensors
from sweeps.store.codec import STORE_FORMAT, encode_checkpoint, seal
from tests.outcomes import evaluation, outcome, recorded
from tests.sweeps.conftest import Raw, checkpoint_of
from tests.trained import train_sweep

KEY, STUDY = "ab" * 16, "blobs/standard/0123"
OLDER, NEWER = STORE_FORMAT - 1, STORE_FORMAT + 1
SPEC = """\
name: aged
datasets: [blobs-1.7]
model: {name: mlp, widths: [4]}
methods: {standard: {lr: [0.01, 0.1], weight_decay: 0}}
training: {epochs: 3, batch_size: full}
search: {sampler: grid}
confirm_seeds: 1
calibrators: [temperature]
"""


def of_format(content: bytes, number: int) -> bytes:
    """A file of this version as another one would have written it."""
    if not content.startswith(b"{"):
        _, _, tensors = content.split(b"\n", 2)
        return checkpoint_of(tensors, number)
    _, body = content.split(b"\n", 1)
    body, changed = re.subn(rb'(?m)^"format": \d+', b'"format": %d' % number, body)
    assert changed == 1
    return b'{"checksum": "sha256:%s",\n' % sha256(body).hexdigest().encode() + body


def age(root: Path, number: int) -> None:
    """Make all that a store has sealed that of another format."""
    for path in root.rglob("*"):
        if path.suffix in (".json", ".bin"):
            path.write_bytes(of_format(path.read_bytes(), number))


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def message(place: str | Path, number: int) -> str:
    """The beginning of what is said, as a pattern."""
    age, remedy = ("an older", "run the sweep") if number < STORE_FORMAT else ("a newer", "upgrade")
    return re.escape(
        f"{place} was made by {age} version of calsweep (format {number}; this one reads "
        f"{STORE_FORMAT}): {remedy}"
    )


READERS: dict[str, Callable[[Store, TrialRecord], Any]] = {
    "record": lambda store, _: store.record(KEY),
    "files of a record": lambda store, record: store.file(record, "network.pt"),
    "evaluations": lambda store, record: store.evaluations(record, "15-bins"),
    "checkpoint": lambda store, _: store.checkpoint(KEY),
    "live curve": lambda store, _: store.live(KEY),
    "suggestions": lambda store, _: store.suggestions("sweep", STUDY),
    "stopped trial": lambda store, _: store.stopped("sweep", STUDY, KEY),
    "state": lambda store, _: store.state("sweep"),
    "sweep": lambda store, _: store.read_file("sweep", "spec.yaml"),
    "names": lambda store, _: store.sweeps(),
    "lock": lambda store, _: store.lock("sweep").__enter__(),
    "writing a record": lambda store, _: store.file_record("cd" * 16, outcome()),
    "retiring a record": lambda store, record: store.retire(record),
    "rejecting a checkpoint": lambda store, _: store.reject_checkpoint(KEY, "no reason"),
    "writing a file": lambda store, _: store.write_file("another", "spec.yaml", b""),
}
PLACES = {
    "record": f"records/{KEY}/record.json",
    "evaluations": f"records/{KEY}/ATTEMPT/evaluations/15-bins/temperature.json",
    "checkpoint": f"records/{KEY}/checkpoint.bin",
    "live curve": f"records/{KEY}/live.json",
    "suggestions": f"sweep/suggestions/{STUDY}/000003.json",
    "stopped trial": f"sweep/stopped/{STUDY}/{KEY}.json",
    "state": "sweep/.state.json",
}


def fill(root: str | Path) -> Store:
    """A store with one file of every kind."""
    store = Store(root)
    store.write_file("sweep", "spec.yaml", b"name: sweep\n")
    store.write_state("sweep", {"extra": 0})
    store.file_stopped("sweep", STUDY, KEY, outcome("pruned"))
    store.file_record(KEY, outcome(), {"network.pt": encode_tensors({})})
    store.write_evaluation(KEY, "15-bins", "temperature", evaluation())
    store.write_checkpoint(KEY, {"epoch": 3})
    store.write_live(KEY, {"curve": []})
    store.write_suggestion("sweep", STUDY, 3, {"number": 3})
    return store


@pytest.mark.parametrize("number", [OLDER, NEWER])
def test_a_store_of_another_format_is_refused_whole_and_left_untouched(
    root: str, number: int
) -> None:
    store = fill(root)
    record = recorded(store, KEY)
    raw = Raw(store.root)
    for name in raw.names():
        if name.endswith((".json", ".bin")):
            raw.write(name, of_format(raw.read(name), number))
    before = {name: raw.read(name) for name in raw.names()}
    for read in READERS.values():
        with pytest.raises(StoreError, match=message(store.root, number)) as caught:
            read(Store(root), record)
        assert "\n" not in str(caught.value)
    assert {name: raw.read(name) for name in raw.names()} == before


@pytest.mark.parametrize("number", [OLDER, NEWER])
@pytest.mark.parametrize("kind", PLACES)
def test_a_single_file_of_another_format_is_refused_by_name(
    tmp_path: Path, kind: str, number: int
) -> None:
    store = fill(tmp_path)
    record = recorded(store, KEY)
    path = tmp_path / PLACES[kind].replace("ATTEMPT", record.attempt)
    path.write_bytes(of_format(path.read_bytes(), number))
    before = contents(tmp_path)
    with pytest.raises(StoreError, match=message(path, number)):
        READERS[kind](store, record)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("content", [b'{"format": 1, "status": "done"}', b'{"number": 3}'])
def test_what_was_never_sealed_is_of_the_first_format(tmp_path: Path, content: bytes) -> None:
    store = fill(tmp_path)
    path = tmp_path / PLACES["suggestions"]
    path.write_bytes(content)
    with pytest.raises(StoreError, match=message(path, 1)):
        store.suggestions("sweep", STUDY)
    assert path.read_bytes() == content


def test_a_checkpoint_from_before_it_named_the_format_is_refused(tmp_path: Path) -> None:
    store = fill(tmp_path)
    tensors = encode_tensors({"epoch": 3})
    path = tmp_path / PLACES["checkpoint"]
    header = b"calsweep checkpoint 1 sha256:%s\n" % sha256(tensors).hexdigest().encode()
    path.write_bytes(header + tensors)
    with pytest.raises(StoreError, match=message(path, 2)):
        store.checkpoint(KEY)
    assert path.exists()


def test_a_damaged_file_does_not_speak_for_the_store(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "sweep" / ".state.json").write_bytes(b"no JSON")
    assert Store(tmp_path).record(KEY) is not None
    path = tmp_path / PLACES["record"]
    path.write_bytes(of_format(path.read_bytes(), OLDER))
    with pytest.raises(StoreError, match=message(tmp_path, OLDER)):
        Store(tmp_path).state("sweep")
    assert not (tmp_path / "damaged").exists()


def test_a_directory_of_something_else_has_no_format(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.json").write_bytes(b'{"format": 1}')
    assert Store(tmp_path).sweeps() == ["mine"]
    assert Store(tmp_path / "nowhere").sweeps() == []
    assert not (tmp_path / "nowhere").exists()


def test_checkpoints_and_sealed_files_name_the_same_format() -> None:
    assert b'"format": %d' % STORE_FORMAT in seal({})
    assert b"\nformat %d\n" % STORE_FORMAT in encode_checkpoint({})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep; to be copied."""
    directory = tmp_path_factory.mktemp("whole")
    train_sweep(directory, SPEC)
    return directory


COMMANDS = {
    "run": ["run", "spec.yaml"],
    "run another": ["run", "other.yaml"],
    "check": ["check", "spec.yaml"],
    "status": ["status", "aged"],
    "status of all": ["status"],
    "show": ["show", "0123"],
    "report": ["report", "aged"],
    "sync": ["sync", "spec.yaml"],
    "export": ["export", "aged", "--out", "exported"],
    "compare": ["compare", "aged", "aged"],
    "ui": ["ui", "aged"],
}


@pytest.mark.parametrize("number", [OLDER, NEWER])
def test_every_command_refuses_a_store_of_another_format_and_changes_nothing(
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    (tmp_path / "other.yaml").write_text(SPEC.replace("name: aged", "name: other"))
    age(tmp_path / "runs", number)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    before, there = contents(tmp_path), sorted(tmp_path.rglob("*"))
    expected = f"calsweep: {message(tmp_path / 'runs', number)}.*\n"
    for name, words in COMMANDS.items():
        assert main(words) == 1, name
        said = capsys.readouterr().err
        assert re.fullmatch(expected, said), (name, said)
        assert (contents(tmp_path), sorted(tmp_path.rglob("*"))) == (before, there), name


def test_another_store_is_the_remedy(
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("runs", "new"):
        shutil.copytree(whole / "runs", tmp_path / name)
    age(tmp_path / "runs", OLDER)
    monkeypatch.chdir(tmp_path)
    assert main(["status", "aged"]) == 1
    assert main(["status", "aged", "--store", "new"]) == 0
    assert "3 of 3 trials done" in capsys.readouterr().out
