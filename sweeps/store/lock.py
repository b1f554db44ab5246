"""One driver per sweep.

On a local path the lock is an ``flock``: it is released when the process ends, however it ends.
On a URI it is a lease, a small object that its holder renews: a lease that was not renewed for
a while, or whose process on this very machine is gone, is taken over. A holder that was cut off
for that long, or whose lock file was deleted, learns of it through ``SweepLock.ensure``; what it
writes until then does no harm, because records are write-once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import socket
import stat
import threading
import time
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from calibration.leftovers import UNKNOWN, is_dead, machine, started
from sweeps.store.files import Files, LocalFiles, StoreError

_TRIES = 10
UNREADABLE = (-1, -1)

log = logging.getLogger("calsweep")


class LockedError(StoreError):
    """Another driver runs this sweep; the message says which, where and since when."""

    exit_code = 2


@dataclass(frozen=True)
class LeaseTimes:
    """Seconds between renewals, until a lease is stale, and until a takeover is confirmed."""

    renew: float = 10.0
    stale: float = 45.0
    settle: float = 1.0


def sweep_lock(files: Files, sweep: str, times: LeaseTimes | None = None) -> SweepLock:
    """The lock of a sweep's directory, not yet held."""
    if isinstance(files, LocalFiles):
        return LocalLock(files, sweep)
    return Lease(files, sweep, times or LeaseTimes())


class SweepLock(ABC):
    """Held inside ``with``. Entering raises ``LockedError`` if another driver holds it."""

    def __init__(self, files: Files, sweep: str) -> None:
        self.files = files
        self.sweep = sweep
        self.name = f"{sweep}/.lock"
        self.lost = threading.Event()
        """Set when another driver has taken over, or may have: stop."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    def ensure(self) -> None:
        """Raise ``LockedError`` if the lock is lost. Cheap, and callable from any thread."""
        if self.lost.is_set():
            raise self._refuse({})

    def holder(self) -> str | None:
        """Who runs the sweep now, for display; None if nobody does. Takes no lock."""
        holder = _holder(self.files.read(self.name) or b"")
        stale = time.time() - holder.get("renewed", 0.0) > LeaseTimes().stale
        if not holder or _is_dead(holder) or (holder["renewed"] and stale):
            return None
        return _who(holder)

    def _refuse(self, holder: dict[str, Any]) -> LockedError:
        who = _who(holder) if holder else "another process"
        return LockedError(
            f"{self.files.root}/{self.sweep}: this sweep is being run by {who}; wait for it to "
            "end, or stop it and run the same command again"
        )


class LocalLock(SweepLock):
    """An ``flock`` on a hidden file; a driver killed by force frees it at once."""

    def __init__(self, files: LocalFiles, sweep: str) -> None:
        super().__init__(files, sweep)
        self._path = files.path / sweep / ".lock"
        self._handle = -1
        self._identity: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        try:
            self._handle, self._identity = self._locked()
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, json.dumps(_self()).encode() + b"\n", 0)
        except BlockingIOError:
            raise self._refuse(_holder(self.files.read(self.name) or b"")) from None
        except OSError as error:
            self._let_go()
            raise self._unlockable(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        # The file stays: if it were removed, two drivers could lock two files of this name.
        with contextlib.suppress(OSError):
            os.ftruncate(self._handle, 0)
        self._let_go()

    def _let_go(self) -> None:
        handle, self._handle, self._identity = self._handle, -1, None
        if handle >= 0:
            # A child forked meanwhile has the handle too: closing this one would not unlock.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    def ensure(self) -> None:
        """Raise ``LockedError`` if the lock file is gone or replaced: a second driver may run."""
        identity = self._identity
        if identity is None:  # not held, or not distinguishable from others
            return
        # The number of the held file cannot have been reused: it is still open.
        if not self.lost.is_set() and _identity_of(self._path) in (identity, UNREADABLE):
            return
        self.lost.set()
        raise LockedError(
            f"{self._path}: the lock file of this run was deleted or replaced, so another "
            "process may run the sweep too; this one stops. The records are safe; do not touch "
            "the file, and run the same command again"
        )

    def _locked(self) -> tuple[int, tuple[int, int] | None]:
        """The file, open and locked, and which one it is. Raises ``OSError``, ``StoreError``."""
        for _ in range(_TRIES):
            handle, identity = self._opened()
            if identity is not None:
                break
            os.close(handle)  # it was deleted meanwhile
        else:  # a file system on which files cannot be distinguished
            handle, identity = self._opened()
        return handle, identity

    def _opened(self) -> tuple[int, tuple[int, int] | None]:
        """The file, open and locked, and which one it is, if its path still leads to it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Write only to a plain file that belongs to the lock.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(self._path, flags, 0o644)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise self._misplaced("is not a plain file")
            if found.st_nlink > 1:
                raise self._misplaced("has a second name (hard link)")
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(handle)
            raise
        identity = (found.st_dev, found.st_ino)
        return handle, identity if _identity_of(self._path) == identity else None

    def _unlockable(self, error: OSError) -> StoreError:
        if error.errno == errno.ELOOP:
            return self._misplaced("is a symbolic link")
        return StoreError(
            f"cannot lock {self._path}: {error.strerror}; make it writable and lockable, "
            "or choose another --store"
        )

    def _misplaced(self, what: str) -> StoreError:
        return StoreError(
            f"cannot lock {self._path}: it {what}, and locking it would overwrite another file; "
            "if no calsweep is running here, delete it and run the same command again"
        )


class Lease(SweepLock):
    """A lock on an object store."""

    def __init__(self, files: Files, sweep: str, times: LeaseTimes) -> None:
        super().__init__(files, sweep)
        self.times = times
        self._token = uuid.uuid4().hex
        self._since = time.time()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> Self:
        if not self.files.create(self.name, self._content()):
            self._take_over()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        # An unreachable server must not hide how the sweep went: the lease becomes stale.
        with contextlib.suppress(StoreError):
            if self._mine():
                self.files.delete(self.name)

    def _take_over(self) -> None:
        """Replace a dead holder's lease. Raises ``LockedError`` if the holder lives."""
        content = self.files.read(self.name) or b""
        holder = _holder(content)
        if holder and not _is_dead(holder):
            if abs(time.time() - holder["renewed"]) < self.times.stale:
                raise self._refuse(holder)
            # The holder's clock may be slow or fast, so watch whether the lease is renewed.
            time.sleep(1.5 * self.times.renew)
        if (self.files.read(self.name) or b"") != content:
            raise self._refuse(_holder(self.files.read(self.name) or b""))
        self.files.write(self.name, self._content())
        # Others may have done the same at the same moment: the last writer holds it.
        time.sleep(self.times.settle)
        if not self._mine():
            raise self._refuse(_holder(self.files.read(self.name) or b""))

    def _keep(self) -> None:
        while not self._done.wait(self.times.renew):
            try:
                if not self._mine():
                    log.warning(
                        "%s/%s was taken over by another driver", self.files.root, self.sweep
                    )
                    self.lost.set()
                    return
                self.files.write(self.name, self._content())
            except StoreError as error:
                # Whether another driver took over is known once the server can be reached again.
                log.warning("the lock cannot be renewed: %s", error)

    def _mine(self) -> bool:
        return _holder(self.files.read(self.name) or b"").get("token") == self._token

    def _content(self) -> bytes:
        now = {"token": self._token, "since": self._since, "renewed": time.time()}
        return json.dumps(_self() | now).encode() + b"\n"


def _identity_of(path: Path) -> tuple[int, int] | None:
    """The identity of the present file; None if there is none, ``UNREADABLE`` if unknown."""
    try:
        found = path.stat(follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:  # a network file system that is briefly unavailable
        return UNREADABLE
    return found.st_dev, found.st_ino


def _who(holder: dict[str, Any]) -> str:
    since = datetime.fromtimestamp(holder["since"], UTC)
    return f"process {holder['pid']} on {holder['host']} since {since:%Y-%m-%d %H:%M:%S} UTC"


def _self() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "machine": machine(),
        "pid": os.getpid(),
        "started": started(os.getpid()),
        "since": time.time(),
    }


def _holder(content: bytes) -> dict[str, Any]:
    """The holder that a lock names; empty if the lock is empty or damaged."""
    try:
        found = json.loads(content)
        numbers = (found["pid"], found["since"], found.get("renewed", 0.0))
        found["pid"], found["since"], found["renewed"] = int(numbers[0]), *map(float, numbers[1:])
        _who({"host": "", **found})  # it may be a time that no calendar has
        return {"host": "an unknown host", "machine": "", "started": UNKNOWN, **found}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError):
        return {}


def _is_dead(holder: dict[str, Any]) -> bool:
    return holder["machine"] == machine() and is_dead(holder["pid"], str(holder["started"]))
