"""File access for the store: the same few methods on a local directory or an fsspec URI.

Names are relative to the root, their parts joined by ``/``. Writes are atomic: a local file is
written next to its destination (under a hidden name, which no listing shows and which identifies
its writer) and moved there; on an object store a PUT is atomic.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from calibration.leftovers import is_leftover, temporary_name
from sweeps.errors import UserError

DRAFT = ".draft-"
MODE = 0o644
NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}


class StoreError(UserError):
    """The store cannot be read or written; the message names the path, cause and remedy."""

    exit_code = 1


class Files(Protocol):
    """The file operations that the store needs. Every method raises ``StoreError``."""

    root: str

    def read(self, name: str) -> bytes | None:
        """A file's content, or None if there is no such file."""

    def read_all(self, directory: str) -> dict[str, bytes]:
        """The files directly in a directory, by their names in it."""

    def names(self, directory: str) -> list[str]:
        """The names of the files directly in a directory, sorted; hidden ones left out."""

    def directories(self, directory: str) -> list[str]:
        """The names of the directories in a directory, hidden ones left out, sorted."""

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file that does not exist; False, with nothing changed, if it does.

        Of several concurrent writers exactly one gets True. A file with identical content
        counts as this caller's own: over a network the answer to a first try may get lost.
        """

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens if there is none."""

    def delete_tree(self, directory: str) -> None:
        """Remove a directory and its content; nothing happens if there is none."""

    def move(self, source: str, target: str) -> None:
        """Move a file or a whole directory; nothing happens if there is none."""


def open_files(root: str | Path) -> Files:
    """The file system of a path or a URI. Raises ``StoreError`` if there is none for it."""
    text = str(root)
    protocol, separator, rest = text.partition("://")
    if not separator or isinstance(root, Path):
        return LocalFiles(Path(root))
    if protocol in ("file", "local"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise StoreError(
                f"{text}: not an absolute path; write {protocol}:///a/path or a bare path"
            )
        return LocalFiles(Path(unquote(parts.path)))
    if "::" in protocol or not rest.strip("/"):
        raise StoreError(f"{text}: not the URI of one directory; write e.g. s3://bucket/directory")
    from sweeps.store.remote import RemoteFiles  # a local store needs no fsspec

    return RemoteFiles(protocol, text.rstrip("/"))


def write_atomically(path: Path, content: bytes) -> None:
    """Write a local file atomically. Raises ``StoreError``."""
    LocalFiles(path.parent).write(path.name, content)


def clear_drafts(directory: Path) -> tuple[list[str], list[str]]:
    """Remove the drafts of killed writers in and below a directory; never a living writer's.

    Returns the names of the directories and of the files directly in it.
    """
    found: tuple[list[str], list[str]] | None = None
    for place, directories, names in os.walk(directory):
        found = found or (list(directories), names)
        for name in names:
            if name.startswith(DRAFT) and is_leftover(Path(place, name)):
                with contextlib.suppress(OSError):  # it harms nobody
                    Path(place, name).unlink()
    return found or ([], [])


class LocalFiles:
    """Files under a local directory."""

    def __init__(self, root: Path) -> None:
        try:
            self.path = root.expanduser().resolve()
        except (RuntimeError, OSError) as error:
            raise StoreError(f"{root}: cannot be a directory: {error}; choose another") from error
        self.root = str(self.path)
        self._made: set[str] = set()

    def read(self, name: str) -> bytes | None:  # noqa: D102
        path = self.path / name
        with _local_errors("read", path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def read_all(self, directory: str) -> dict[str, bytes]:  # noqa: D102
        found = ((name, self.read(f"{directory}/{name}")) for name in self.names(directory))
        return {name: content for name, content in found if content is not None}

    def names(self, directory: str) -> list[str]:  # noqa: D102
        path = self.path / directory
        with _local_errors("read", path):
            try:
                with os.scandir(path) as entries:
                    files = [e.name for e in entries if not e.name.startswith(".") and e.is_file()]
            except FileNotFoundError:
                return []
        return sorted(files)

    def directories(self, directory: str) -> list[str]:  # noqa: D102
        path = self.path / directory
        with _local_errors("read", path):
            try:
                with os.scandir(path) as entries:
                    found = [entry.name for entry in entries if entry.is_dir()]
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(name for name in found if not name.startswith("."))

    def write(self, name: str, content: bytes) -> None:  # noqa: D102
        path = self.path / name
        with _local_errors("write", path), self._draft(path, content) as draft:
            draft.replace(path)

    def create(self, name: str, content: bytes) -> bool:  # noqa: D102
        path = self.path / name
        with _local_errors("write", path), self._draft(path, content) as draft:
            try:
                path.hardlink_to(draft)
            except FileExistsError:
                return path.read_bytes() == content
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                # Some network mounts have no links: then the first wins, except for a short race.
                if path.exists():
                    return False
                draft.replace(path)
        return True

    def delete(self, name: str) -> None:  # noqa: D102
        path = self.path / name
        with _local_errors("remove", path):
            path.unlink(missing_ok=True)

    def delete_tree(self, directory: str) -> None:  # noqa: D102
        path = self.path / directory
        with _local_errors("remove", path), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def move(self, source: str, target: str) -> None:  # noqa: D102
        path = self.path / target
        with _local_errors("write", path), contextlib.suppress(FileNotFoundError):
            self._make(path.parent)
            (self.path / source).rename(path)

    @contextlib.contextmanager
    def _draft(self, path: Path, content: bytes) -> Iterator[Path]:
        """The content under a hidden name next to ``path``, removed at the end."""
        draft = path.with_name(temporary_name(DRAFT))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._make(path.parent)
        try:
            handle = os.open(draft, flags, MODE)
        except FileNotFoundError:  # the directory was removed after it was made
            self._made.clear()
            self._make(path.parent)
            handle = os.open(draft, flags, MODE)
        try:
            with os.fdopen(handle, "wb", buffering=0) as file:
                os.fchmod(handle, MODE)
                rest = memoryview(content)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(handle)
            yield draft
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)

    def _make(self, directory: Path) -> None:
        if str(directory) not in self._made:
            directory.mkdir(parents=True, exist_ok=True)
            self._made.add(str(directory))


@contextlib.contextmanager
def _local_errors(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {verb} {path}: {_local_cause(error)}") from error


def _local_cause(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no space left; free some and run the same command again, or choose another --store"
    if error.errno == errno.EROFS:
        return "the file system is read-only; mount it writable or choose another --store"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "permission denied: read-only for this user; allow writing or choose another --store"
    return f"{error.strerror or error}; choose another --store"
