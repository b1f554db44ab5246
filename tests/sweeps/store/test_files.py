"""File access: all or nothing, one winner, clear words when it fails; on a path and on S3."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import boto3
import pytest

from sweeps.store import Store, StoreError
from sweeps.store.files import LocalFiles, open_files, write_atomically
from sweeps.store.remote import RemoteFiles
from tests.disks import small_disk
from tests.outcomes import outcome, recorded

KEY = "ab" * 16
PROCESSES = 4
# Forked, not started anew: that is quick, and a store must survive it.
FORK = multiprocessing.get_context("fork")


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    """Readers that look all the time see one of the two contents and no third."""
    path = tmp_path / "file"
    contents = [bytes([i]) * 200_000 for i in (1, 2)]
    write_atomically(path, contents[0])
    seen: set[bytes] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(100):
        write_atomically(path, contents[i % 2])
    stop.set()
    reader.join()
    assert seen <= set(contents)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot write .*file/x"):
        write_atomically(tmp_path / "file" / "x", b"")


def test_every_file_system_does_the_same(root: str) -> None:
    files = open_files(root)
    files.write("a/b/x", b"1")
    files.write("a/b/x", b"2")
    assert files.create("a/b/y", b"3")
    assert not files.create("a/b/y", b"4")
    assert files.create("a/b/y", b"3")  # its own, the answer to the first try being lost
    files.write("a/b/.hidden", b"")
    files.write("a/b/deep/z", b"5")
    assert files.names("a/b") == ["x", "y"]
    assert files.read_all("a/b") == {"x": b"2", "y": b"3"}
    assert (files.names("a"), files.names("nowhere"), files.read_all("nowhere")) == ([], [], {})
    files.move("a/b/x", "c/x")
    files.move("a/b", "c/tree")
    files.move("nowhere", "c/nothing")
    assert files.names("c") == ["x"]
    assert files.read_all("c/tree") == {"y": b"3"}
    assert files.read("c/tree/deep/z") == b"5"
    assert files.read("a/b/y") is None
    files.delete("c/x")
    files.delete("c/x")
    files.delete_tree("c/tree")
    files.delete_tree("c/tree")
    assert files.names("c") == []
    assert files.read("c/tree/deep/z") is None
    files.write("c/tree/deep/z", b"6")  # where a directory had been, as far as it remembers
    assert files.read("c/tree/deep/z") == b"6"


def _file_at_once(
    store: Store, name: int, rounds: int, barrier: Barrier, won: multiprocessing.Queue
) -> None:
    for round_ in range(rounds):
        barrier.wait()
        key = f"{round_:032x}"
        if store.file_record(key, outcome(epochs=name), {"mine": bytes([name]) * 5000}):
            won.put((key, name))


@pytest.mark.parametrize(("kind", "rounds"), [("path", 100), ("s3", 6)])
def test_of_processes_that_file_one_key_exactly_one_wins(
    kind: str, rounds: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = str(tmp_path) if kind == "path" else request.getfixturevalue("s3_root")
    store = Store(root)
    store.record(KEY)  # connected before the fork
    barrier, won = FORK.Barrier(PROCESSES), FORK.Queue()
    workers = [
        FORK.Process(target=_file_at_once, args=(store, name, rounds, barrier, won), daemon=True)
        for name in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    winners = dict(won.get(timeout=60) for _ in range(rounds))
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert won.empty()
    assert sorted(winners) == [f"{round_:032x}" for round_ in range(rounds)]
    for key, name in winners.items():
        record = recorded(store, key)
        assert record.epochs == name
        assert store.file(record, "mine") == bytes([name]) * 5000
        if store.local:
            there = sorted(path.name for path in (store.local / "records" / key).iterdir())
            assert there == sorted([record.attempt, "record.json"])


def _file_for_ever(root: Path) -> None:
    store = Store(root)
    for number in range(100_000):
        store.write_checkpoint(f"{number:032x}", {"n": number})
        long = outcome(config={"n": list(range(5000))})
        store.file_record(f"{number:032x}", long, {"a": b"x" * 50_000})


def test_a_killed_writer_leaves_nothing_half_done(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for _ in range(5):
        writer = FORK.Process(target=_file_for_ever, args=(tmp_path,), daemon=True)
        writer.start()
        before = len(list((tmp_path / "records").glob("*/record.json")))
        while len(list((tmp_path / "records").glob("*/record.json"))) < before + 3:
            time.sleep(0.001)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
    keys = [path.name for path in (tmp_path / "records").iterdir()]
    whole = {key: record for key in keys if (record := store.record(key)) is not None}
    assert len(whole) >= 15
    assert all(store.intact(record) for record in whole.values())
    for key in set(keys) - set(whole):
        assert store.file_record(key, outcome(), {"a": b"new"})
        assert store.file(recorded(store, key), "a") == b"new"
    assert not (tmp_path / "damaged").exists()


def test_without_hard_links_the_first_still_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    files = open_files(tmp_path)
    assert files.create("x", b"1")
    assert not files.create("x", b"2")
    assert files.read("x") == b"1"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.fixture
def full_soon(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "400k") as place:
        yield place


@pytest.mark.slow
def test_a_full_disk_spoils_nothing_and_room_mends_it(full_soon: Path) -> None:
    store = Store(full_soon / "runs")
    old, new = "aa", "bb"
    assert store.file_record(old, outcome(), {"a": b"x" * 10_000})
    store.write_checkpoint(new, {"epoch": 1})
    ballast = full_soon / "ballast"
    free = os.statvfs(full_soon)
    ballast.write_bytes(bytes(free.f_bavail * free.f_frsize - 40_000))
    before = sorted(full_soon.rglob("*"))
    calls = [
        lambda: store.file_record(new, outcome(), {"a": b"x" * 30_000, "b": bytes(30_000)}),
        lambda: store.file_record(new, outcome(config={"long": "x" * 60_000})),
        lambda: store.write_checkpoint(new, {"epoch": 2, "text": "x" * 60_000}),
        lambda: store.write_file("sweep", "report.html", b"x" * 60_000),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=rf"cannot write {full_soon}/runs/.*no space left"):
            call()
    after = sorted(p for p in full_soon.rglob("*") if p != full_soon / "runs" / "sweep")
    assert after == before  # no half-written file, no directory of an attempt
    assert store.intact(recorded(store, old))
    assert store.record(new) is None
    assert store.checkpoint(new) == {"epoch": 1}
    ballast.unlink()
    assert calls[0]()
    assert store.intact(recorded(store, new))
    calls[3]()
    assert store.files("sweep") == ["report.html"]


@pytest.mark.slow
def test_a_read_only_disk_can_be_read(full_soon: Path) -> None:
    store = Store(full_soon / "runs")
    store.file_record("aa", outcome(), {"a": b"1"})
    store.file_record("bb", outcome(), {"a": b"1"})
    (full_soon / "runs" / "records" / "bb" / "record.json").write_bytes(b"damaged")
    subprocess.run(["mount", "-o", "remount,ro", full_soon], check=True)
    try:
        for call in (
            lambda: store.file_record("cc", outcome()),
            lambda: store.file_record("cc", outcome(), {"a": b"1"}),
            lambda: store.write_checkpoint("cc", {}),
            lambda: store.write_suggestion("sweep", "study", 0, {}),
            lambda: store.retire(recorded(store, "aa")),
            lambda: store.lock("sweep").__enter__(),
        ):
            with pytest.raises(StoreError, match=rf"{full_soon}/runs/.*[Rr]ead-only"):
                call()
        assert store.intact(recorded(store, "aa"))
        assert store.record("bb") is None
    finally:
        subprocess.run(["mount", "-o", "remount,rw", full_soon], check=True)
    assert store.file_record("cc", outcome(), {"a": b"1"})
    assert store.file_record("bb", outcome())
    assert (full_soon / "runs" / "damaged" / "bb-1" / "record.json").read_bytes() == b"damaged"


@pytest.mark.parametrize(
    ("root", "word"),
    [
        ("gs://bucket/runs", "pip install gcsfs"),
        ("nonsense://bucket/runs", "nonsense"),
        ("s3://", "s3://bucket/directory"),
        ("simplecache::s3://bucket/runs", "not the URI of one directory"),
        ("file://runs", "file:///a/path"),
        ("~nobody-of-this-name/runs", "nobody-of-this-name"),
    ],
)
def test_a_root_that_cannot_be_is_refused_at_once(
    root: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(StoreError, match=word):
        Store(root)


def test_what_a_library_says_in_pages_is_one_line(s3_root: str) -> None:
    with pytest.raises(StoreError, match="Invalid bucket name") as caught:
        Store(f"s3://bucket{'?' * 2000}/runs").record(KEY)
    said = str(caught.value).replace("?", "")
    assert "\n" not in said
    assert len(said) < 500


def test_a_missing_bucket_is_named(s3_root: str) -> None:
    store = Store("s3://no-such-bucket/runs")
    for call in (
        lambda: store.record(KEY),
        lambda: store.files("sweep"),
        lambda: store.write_file("sweep", "x", b""),
        lambda: store.file_record(KEY, outcome()),
    ):
        with pytest.raises(StoreError, match=r"s3://no-such-bucket/runs: .*create it"):
            call()


def test_missing_credentials_are_named(
    s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StoreError, match=r"credentials for s3://"):
        Store(s3_root).record(KEY)


def test_an_unreachable_server_is_named(s3_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreError, match=r"cannot read s3://.*check the network"):
        Store(s3_root).write_file("sweep", "x", b"")


@pytest.mark.parametrize("error", [NotImplementedError("mode"), OSError(errno.ENOSYS, "unknown")])
def test_a_server_without_conditions_is_asked_first(
    s3_root: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    files = open_files(s3_root)
    assert isinstance(files, RemoteFiles)
    real = files._system.pipe_file

    def pipe_file(path: str, content: bytes, mode: str = "overwrite") -> None:
        if mode == "create":
            raise error
        real(path, content)

    monkeypatch.setattr(files._system, "pipe_file", pipe_file)
    assert files.create("x", b"1")
    assert not files.create("x", b"2")
    assert files.read("x") == b"1"


def test_an_answer_that_got_lost_does_not_lose_the_record(
    s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is on the server though the client never heard: its files must stay."""
    store = Store(s3_root)
    files = store._files
    assert isinstance(files, RemoteFiles)
    real = files._system.pipe_file

    def pipe_file(path: str, content: bytes, **options: str) -> None:
        real(path, content, **options)
        if path.endswith("record.json"):
            raise TimeoutError("no answer")

    monkeypatch.setattr(files._system, "pipe_file", pipe_file)
    with pytest.raises(StoreError, match="no answer"):
        store.file_record(KEY, outcome(), {"a": b"1"})
    again = Store(s3_root)
    assert again.file(recorded(again, KEY), "a") == b"1"


def test_what_another_client_writes_is_seen_at_once(s3_root: str) -> None:
    files = open_files(s3_root)
    assert files.names("a") == []
    assert files.read("a/x") is None
    bucket, prefix = s3_root.removeprefix("s3://").split("/", 1)
    client = boto3.client("s3")
    client.put_object(Bucket=bucket, Key=f"{prefix}/a/x", Body=b"1")
    assert files.names("a") == ["x"]
    assert not files.create("a/x", b"2")
    client.delete_object(Bucket=bucket, Key=f"{prefix}/a/x")
    assert files.names("a") == []
    assert files.create("a/x", b"2")


def test_a_directory_removed_behind_its_back_is_made_again(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path / "runs")
    files.write("a/x", b"1")
    (tmp_path / "runs" / "a" / "x").unlink()
    (tmp_path / "runs" / "a").rmdir()
    files.write("a/x", b"2")
    assert files.read("a/x") == b"2"
