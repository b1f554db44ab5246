"""Run a night unattended: one at a time, within a time limit, with all output logged."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import re
import select
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType

import psutil

from sweeps.errors import UserError
from sweeps.host.secrets import masked
from sweeps.store.files import LocalFiles, StoreError
from sweeps.store.lock import LocalLock, LockedError

LOGS, KEPT_LOGS = "log", 30
LOG_NAME = re.compile(r"\d{4}-\d\d-\d\d-\d{6}(-\d+)?\.log")
GRACE_SECONDS = 300.0
MARGIN_SECONDS = 600.0
"""For starting, reporting and publishing, which the command's own limit may not cover."""
REMINDERS = 3
ECHO_SECONDS = 0.2


class TimeUp(KeyboardInterrupt):
    """The time limit was reached; everything done until then is stored."""


@contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """Hold ``directory/.lock``, which is released when this process ends, however it ends.

    Raises ``LockedError`` naming the process that holds it, its host and since when, and
    ``StoreError`` if the directory cannot be written.
    """
    lock = _lock(directory)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(lock)
        except LockedError:
            who = lock.holder() or "another process"
            place = directory.absolute()
            raise LockedError(
                f"{place}: a night is being run by {who}; wait for it to end, or stop it"
            ) from None
        yield


def is_running(directory: Path) -> bool:
    """Whether a process holds the lock; one on another machine is taken to be alive."""
    return _lock(directory).holder() is not None


def _lock(directory: Path) -> LocalLock:
    directory = directory.absolute()
    return LocalLock(LocalFiles(directory.parent), directory.name)


@contextmanager
def time_limit(seconds: float | None, *, grace: float = GRACE_SECONDS) -> Iterator[None]:
    """Raise ``TimeUp`` in the main thread, wherever it waits, after ``seconds``.

    Libraries in between may convert it (Ray makes it a bare ``KeyboardInterrupt``) or swallow
    it: whatever the body raises after its time, the context raises ``TimeUp`` with that as its
    cause. If the body has not ended ``grace`` seconds later, this process is killed with all its
    children, so that the machine is free in the morning. None means no limit. Raises
    ``ValueError`` for a limit that is not positive or outside the main thread.
    """
    if seconds is None:
        yield
        return
    if not seconds > 0:
        raise ValueError(f"seconds: found {seconds}; use a positive number or None")
    clock = _Clock(seconds, grace)
    clock.start()
    try:
        try:
            yield
        finally:
            clock.armed = False  # from here on the signal raises nothing
    except BaseException as error:
        if clock.expired and not isinstance(error, TimeUp):
            raise TimeUp(clock.message) from error
        raise
    else:
        if clock.expired:
            raise TimeUp(clock.message)
    finally:
        clock.stop()


class _Clock:
    """Signals the main thread when the time is over, repeats the signal, and finally kills.

    A signal of its own, not ``setitimer``: it reaches only the main thread, and does not
    interfere with a timer set by other code.
    """

    def __init__(self, seconds: float, grace: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("time_limit: only the main thread can be interrupted; use it there")
        self.message = f"the time limit of {_duration(seconds)} was reached"
        self.armed = True
        self.expired = False
        self._seconds, self._grace = seconds, grace
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="time limit", daemon=True)
        self._main = threading.get_ident()

    def start(self) -> None:
        self._previous = signal.signal(signal.SIGALRM, self._interrupt)
        # Below the interpreter: a main thread that never releases the GIL would stop ours too.
        faulthandler.dump_traceback_later(
            self._seconds + 1.1 * self._grace + 1, exit=True, file=sys.__stderr__ or sys.stderr
        )
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()  # a signal after the handler is gone would end the process
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, self._previous)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.armed:
            raise TimeUp(self.message)

    def _watch(self) -> None:
        if self._ended.wait(self._seconds):
            return
        self.expired = True
        for _ in range(REMINDERS):  # an exception raised in a destructor is lost
            signal.pthread_kill(self._main, signal.SIGALRM)
            if self._ended.wait(self._grace / REMINDERS):
                return
        words = f"calsweep: {self.message} {_duration(self._grace)} ago: killed\n"
        with contextlib.suppress(OSError):
            os.write(2, words.encode())
        _kill_family()


def _duration(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"


def _kill_family() -> None:
    """End every process below this one, and then this one.

    Not the process group: a shell script, or make, that started us may be in it.
    """
    for _ in range(20):  # a killed process may have started others meanwhile
        below = [each for each in psutil.Process().children(recursive=True) if _is_alive(each)]
        for process in below:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if not below:
            break
    os.kill(os.getpid(), signal.SIGKILL)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


@contextmanager
def logged(directory: Path) -> Iterator[Path]:
    """Also write all output of this process and its children to ``directory/log/DATE-TIME.log``.

    The output goes straight into the file, so that it is complete even if everything is killed,
    and no pipe can block or be leaked by a forked process; a thread copies what the file gains
    to the original standard output. Standard output is then not a terminal: there are plain
    lines, here and in the file, and no live table. An error that ends the body is written to the
    file as well. The newest ``KEPT_LOGS`` logs are kept. Raises ``StoreError`` if the file
    cannot be written.
    """
    path, log = _new_log(directory / LOGS)
    _rotate(directory / LOGS)
    _flush()
    out, err = os.dup(1), os.dup(2)
    os.dup2(log, 1)
    os.dup2(log, 2)
    echo = _Echo(path, out)
    reason = ""
    try:
        with _by_line():
            yield path
    except BaseException as error:
        reason = _reason(error)
        raise
    finally:
        _flush()
        os.dup2(out, 1)
        os.dup2(err, 2)
        echo.finish()  # before the reason: the caller shows the error itself
        with contextlib.suppress(OSError):  # a full disk must not hide it
            os.write(log, reason.encode(errors="replace"))
        for descriptor in (log, out, err):
            os.close(descriptor)


def _new_log(directory: Path) -> tuple[Path, int]:
    stem = f"{datetime.now():%Y-%m-%d-%H%M%S}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    for attempt in range(100):
        path = directory / (f"{stem}-{attempt}.log" if attempt else f"{stem}.log")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            return path, os.open(path, flags, 0o644)
        except FileExistsError as error:
            if not directory.is_dir():
                raise StoreError(f"{directory} is a file; move it away") from error
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}; make it writable") from error
    raise StoreError(f"{directory}: a hundred logs within one second; something starts in a loop")


def _rotate(directory: Path) -> None:
    logs = [path for path in directory.iterdir() if LOG_NAME.fullmatch(path.name)]
    for path in sorted(logs, key=lambda path: path.stem)[:-KEPT_LOGS]:
        path.unlink(missing_ok=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


@contextmanager
def _by_line() -> Iterator[None]:
    """Flush every line: buffered output of a killed process would be lost."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper) or stream.line_buffering:
        yield
        return
    stream.reconfigure(line_buffering=True)
    try:
        yield
    finally:
        stream.reconfigure(line_buffering=False)


def _reason(error: BaseException) -> str:
    if isinstance(error, (UserError, KeyboardInterrupt, SystemExit)):
        return masked(f"calsweep: {str(error) or type(error).__name__}\n")
    return masked("".join(traceback.format_exception(error)))


class _Echo:
    """Copies new content of a growing file to a descriptor, until that breaks."""

    def __init__(self, path: Path, target: int) -> None:
        self._source = path.open("rb", buffering=0)
        self._target = target
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="log echo", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Copy the rest and stop."""
        self._ended.set()
        self._thread.join()
        self._source.close()

    def _follow(self) -> None:
        try:
            while not self._ended.wait(ECHO_SECONDS):
                self._copy()
            self._copy()
        except OSError:
            return  # the reader is gone; the log continues

    def _copy(self) -> None:
        while chunk := self._source.read(65536):
            while chunk:
                select.select([], [self._target], [])
                chunk = chunk[os.write(self._target, chunk) :]
