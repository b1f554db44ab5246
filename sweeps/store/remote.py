"""The store's file access on an fsspec URI: S3 and anything else fsspec supports.

Meant for object stores, where a PUT is atomic. On a remote file system whose uploads are not
(SFTP, HDFS) a reader may find a partial file; the store's checksums detect it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from sweeps.store.files import StoreError

READERS = 16
_TRIES = 5
_LONGEST_CAUSE = 300
PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "adlfs"),
    **dict.fromkeys(("ssh", "sftp"), "paramiko"),
    "hdfs": "pyarrow",
}
# s3fs would ask for an object's size before reading it: one request more, to no purpose here.
OPTIONS = {protocol: {"max_concurrency": 1} for protocol in ("s3", "s3a")}
# A server's answers to a PUT that must not replace anything: something is or is being put there.
REFUSED = {"PreconditionFailed", "ConditionalRequestConflict"}


class RemoteFiles:
    """Files under an fsspec URI. Listings are not cached: other machines write too."""

    def __init__(self, protocol: str, root: str) -> None:
        self.protocol = protocol
        self.root = root
        self._process = -1
        self._connect()

    def _connect(self) -> None:
        """A connection of this process; one inherited by a fork must not be used."""
        if self._process == os.getpid():
            return
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]

        try:
            # fsspec caches the connection: making a new one for every trial takes 0.2 s.
            self._system, self._base = url_to_fs(
                self.root, use_listings_cache=False, **OPTIONS.get(self.protocol, {})
            )
        except ImportError as error:
            package = PACKAGES.get(self.protocol)
            remedy = f"pip install {package}" if package else _one_line(error)
            raise StoreError(
                f"{self.root}: a package for {self.protocol}:// is missing; {remedy}"
            ) from error
        except Exception as error:  # each file system's library raises its own errors
            raise StoreError(
                f"{self.root}: {_one_line(error)}; a store is a path or a URI such as "
                "s3://bucket/directory"
            ) from error
        self._process = os.getpid()

    def read(self, name: str) -> bytes | None:  # noqa: D102
        with self._errors("read", name):
            try:
                return bytes(self._system.cat_file(self._path(name)))
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    raise
        return None

    def read_all(self, directory: str) -> dict[str, bytes]:  # noqa: D102
        names = self.names(directory)
        with ThreadPoolExecutor(READERS) as pool:
            found = zip(
                names, pool.map(self.read, [f"{directory}/{n}" for n in names]), strict=True
            )
            return {name: content for name, content in found if content is not None}

    def names(self, directory: str) -> list[str]:  # noqa: D102
        return self._listed(directory, "file")

    def directories(self, directory: str) -> list[str]:  # noqa: D102
        return self._listed(directory, "directory")

    def _listed(self, directory: str, kind: str) -> list[str]:
        with self._errors("read", directory):
            path = self._path(directory).rstrip("/")
            try:
                found = self._system.ls(path, detail=True)
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    raise
                return []
            paths = [str(e["name"]).rstrip("/") for e in found if e["type"] == kind]
            inside = [p.rpartition("/")[2] for p in paths if p.rpartition("/")[0] == path]
        return sorted(name for name in inside if name and not name.startswith("."))

    def write(self, name: str, content: bytes) -> None:  # noqa: D102
        with self._errors("write", name):
            self._system.pipe_file(self._path(name), content)

    def create(self, name: str, content: bytes) -> bool:  # noqa: D102
        for _ in range(_TRIES):
            # Checked first, for servers that ignore the condition of the PUT.
            if (there := self.read(name)) is not None:
                return there == content
            with self._errors("write", name):
                try:
                    self._system.pipe_file(self._path(name), content, mode="create")
                    return True
                except (TypeError, ValueError, NotImplementedError):
                    conditions = False
                except OSError as error:
                    conditions = error.errno != errno.ENOSYS
                    refused = isinstance(error, FileExistsError) or _code(error) in REFUSED
                    if conditions and not refused:
                        raise
                if not conditions:  # unknown to the file system or to the server
                    self._system.pipe_file(self._path(name), content)
                    return True
        raise StoreError(
            f"cannot write {self.root}/{name}: other processes keep writing it; try again"
        )

    def delete(self, name: str) -> None:  # noqa: D102
        with self._errors("remove", name), contextlib.suppress(FileNotFoundError):
            self._system.rm_file(self._path(name))

    def delete_tree(self, directory: str) -> None:  # noqa: D102
        with self._errors("remove", directory):
            for path in self._below(directory):
                with contextlib.suppress(FileNotFoundError):
                    self._system.rm_file(path)

    def move(self, source: str, target: str) -> None:  # noqa: D102
        with self._errors("write", target):
            start = len(self._path(source))
            for path in self._below(source):
                with contextlib.suppress(FileNotFoundError):
                    self._system.cp_file(path, self._path(target) + path[start:])
                    self._system.rm_file(path)

    def _below(self, name: str) -> list[str]:
        """The file of this name, or all files in the directory of this name."""
        return [str(path) for path in self._system.find(self._path(name))]

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}" if name else str(self._base)

    @contextlib.contextmanager
    def _errors(self, verb: str, name: str) -> Iterator[None]:
        self._connect()
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # each file system's library raises its own errors
            place = f"{self.root}/{name}".rstrip("/")
            raise StoreError(f"cannot {verb} {place}: {self._cause(error)}") from error

    def _cause(self, error: Exception) -> str:
        text = _one_line(error)
        if _code(error) == "NoSuchBucket":
            return "no such bucket; create it or correct --store"
        if isinstance(error, PermissionError) or "Credentials" in type(error).__name__:
            return f"{text}; check the credentials for {self.protocol}:// and their permissions"
        if isinstance(error, FileNotFoundError):
            return f"{text}; create the bucket or container, or correct --store"
        return f"{text}; check the network and the server, then run the same command again"


def _one_line(error: Exception) -> str:
    """What a library says, which may be pages."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST_CAUSE else f"{text[: _LONGEST_CAUSE - 3]}..."


def _code(error: BaseException) -> str:
    """The error code of an S3 server's answer, or an empty string."""
    response = getattr(error.__cause__, "response", None) or getattr(error, "response", None)
    found = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
    return str(found)
