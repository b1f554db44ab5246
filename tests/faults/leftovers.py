"""What sweeps leave behind when they are over: processes and temporary files."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MARK = "CALSWEEP_SCENE"
"""The variable of the environment by which the processes of a scene are known."""
LEAVE_SECONDS = 30.0
"""So long a killed sweep's processes and files may outlive it."""
SYSTEM_PLACE = Path("/tmp")
"""Where a driver's workspace lies if the path of TMPDIR is too long for Ray's sockets."""
SHARED = Path("/dev/shm")
"""Where libraries keep memory that processes share, under names that tell no driver."""


def short_directory() -> Path:
    """A new directory for temporary files with a short path."""
    return Path(tempfile.mkdtemp(prefix="cs"))


@dataclass
class Trace:
    """By what the processes and the files of a scene's commands are known.

    ``pids`` are those of the drivers: the names of their temporary directories tell them.
    Everything in ``temporary`` belongs to them; without one of their own, only those names do.
    ``shared_before`` is what lay in the shared memory before them: all that is new counts.
    """

    directory: Path
    temporary: Path | None = None
    pids: list[int] = field(default_factory=list)
    shared_before: set[Path] | None = None

    def processes(self) -> list[psutil.Process]:
        """The live processes that were started in the scene's directory or for its drivers.

        Known by the mark in their environment, their working directory or their command line:
        Ray's workers may overwrite the first with their title, its servers name their
        directory among their arguments.
        """
        places = [self.directory] if self.temporary is None else [self.directory, self.temporary]
        ours = [rf"{re.escape(str(place))}(?![^/\s=])" for place in places] + self._names()
        known = re.compile("|".join(ours))
        return [p for p in psutil.process_iter() if any(map(known.search, _words(p)))]

    def files(self) -> list[str]:
        """The temporary files and directories that are there."""
        found = [*self.temporary.iterdir()] if self.temporary and self.temporary.exists() else []
        known = re.compile("|".join(self._names()) or "$^")
        for place in {Path(tempfile.gettempdir()), SYSTEM_PLACE}:
            found += [path for path in place.iterdir() if known.search(path.name)]
        if self.shared_before is not None:
            found += {*SHARED.iterdir()} - self.shared_before
        return sorted(_with_content(path) for path in found)

    def left(self, within: float = LEAVE_SECONDS) -> tuple[list[str], list[str]]:
        """The processes and files that are still there after ``within`` seconds.

        Returns two empty lists as soon as nothing is left.
        """
        deadline = time.monotonic() + within
        while True:
            running, files = self.processes(), self.files()
            if not running and not files:
                return [], []
            if time.monotonic() >= deadline:
                return [_name(process) for process in running], files
            time.sleep(0.25)

    def assert_nothing_left(self, within: float = LEAVE_SECONDS) -> None:
        """No process and no temporary file is left within so many seconds."""
        running, files = self.left(within)
        assert (running, files) == ([], []), f"left: processes {running}, files {files}"

    def remove(self) -> None:
        """End what is still running and remove the temporary directory."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)

    def _names(self) -> list[str]:
        """Patterns of the drivers' temporary names: ``calibration.leftovers`` makes them."""
        return [rf"-[0-9a-f]{{8}}{pid & 0xFFFFFF:06x}[0-9a-f]{{18}}" for pid in self.pids]


def _words(process: psutil.Process) -> list[str]:
    """What a process tells of where it comes from; nothing if it has ended."""
    told: list[str] = []
    with contextlib.suppress(psutil.Error, OSError):
        if process.status() == psutil.STATUS_ZOMBIE:
            return []  # it waits for whoever has adopted it
        told.extend(process.cmdline())
    with contextlib.suppress(psutil.Error, OSError):
        told.append(process.cwd())
    with contextlib.suppress(psutil.Error, OSError):
        told.append(process.environ().get(MARK, ""))
    return told


def _with_content(path: Path) -> str:
    """The name of a path and, of a directory, the names in it."""
    inner: list[str] = []
    with contextlib.suppress(OSError):
        inner = sorted(below.name for below in path.iterdir())
    return f"{path}/{{{', '.join(inner)[:200]}}}" if inner else str(path)


def _name(process: psutil.Process) -> str:
    try:
        words = process.cmdline()
    except psutil.Error:
        return f"{process.pid}"
    return f"{process.pid} {' '.join(Path(word).name for word in words[:3])[:60]}"
