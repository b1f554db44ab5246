"""Stores of every kind to test on (a path, a ``file://`` URI, an S3 bucket), and a sweep."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import uuid
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem

from sweeps.store import Store
from sweeps.store.codec import STORE_FORMAT
from tests.tiny import SPEC, calsweep

BUCKET = "sweeps"


def checkpoint_of(tensors: bytes, number: int = STORE_FORMAT) -> bytes:
    """A checkpoint whose checksum is right, whatever its tensors and its format."""
    content = b"format %d\n%s" % (number, tensors)
    return b"calsweep checkpoint sha256:%s\n" % sha256(content).hexdigest().encode() + content


class Raw:
    """The bytes under a store's root, reached without it."""

    def __init__(self, root: str) -> None:
        bucket = re.fullmatch(r"s3://([^/]+)/(.+)", root)
        self.directory = Path(root)
        self.bucket = None
        if bucket:
            self.bucket, self.prefix = boto3.resource("s3").Bucket(bucket[1]), bucket[2]

    def names(self) -> list[str]:
        if self.bucket is None:
            files = [path for path in self.directory.rglob("*") if path.is_file()]
            return sorted(str(path.relative_to(self.directory)) for path in files)
        found = self.bucket.objects.filter(Prefix=f"{self.prefix}/")
        return sorted(trial.key.removeprefix(f"{self.prefix}/") for trial in found)

    def read(self, name: str) -> bytes:
        if self.bucket is None:
            return (self.directory / name).read_bytes()
        return bytes(self.bucket.Object(f"{self.prefix}/{name}").get()["Body"].read())

    def write(self, name: str, content: bytes) -> None:
        if self.bucket is None:
            (self.directory / name).parent.mkdir(parents=True, exist_ok=True)
            (self.directory / name).write_bytes(content)
        else:
            self.bucket.put_object(Key=f"{self.prefix}/{name}", Body=content)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of an S3 server."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # else a line per request
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_root(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty place in the bucket, reachable through what the environment says."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "user")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "password")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    S3FileSystem.clear_instance_cache()  # connections made with another environment
    # Every time: moto's mocks, which other tests in this process use, empty its server as well.
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/runs"


@pytest.fixture(params=["path", "file", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is to be: one of each kind."""
    if request.param == "s3":
        return str(request.getfixturevalue("s3_root"))
    return str(tmp_path / "runs") if request.param == "path" else (tmp_path / "r u n s").as_uri()


@pytest.fixture
def store(root: str) -> Store:
    return Store(root)


@pytest.fixture
def raw(store: Store) -> Raw:
    return Raw(store.root)


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished tiny sweep and what the command printed; to be looked at, not changed.

    The processes of pytest-xdist share it: whoever comes first runs it, others wait.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    directory, printed = shared / "swept", shared / "swept.txt"
    with (shared / "swept.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            directory.mkdir(exist_ok=True)
            (directory / "tiny.yaml").write_text(SPEC)
            done = calsweep(directory, "run", "tiny.yaml", "--profile")
            assert done.returncode == 0, done.stderr
            printed.write_text(done.stdout)
    return directory, printed.read_text()
