"""Pages of the documentation, executed from top to bottom as a reader would.

``sh`` blocks are typed in, a block whose first line names a file is written to it, other Python
is executed, and a ``text`` block is what the commands before it print, up to its numbers. What a
test of another file runs is a ``console`` block.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sweeps.cli.main import main
from sweeps.engine.plan import Plan
from sweeps.engine.trial import TrialRun
from sweeps.store import Store
from tests.pages import BLOCK
from tests.trained import no_pictures

FILE = re.compile(r"# ([\w./-]+\.(?:py|yaml|toml))\n")
NUMBER = re.compile(r"[−-]?\d[\d,.]*(?:e-?\d+)?")
ANY_NUMBER = r"[−-]?\d[\d,.]*(?:e-?\d+)?"
FAILED = re.compile(r"#.*\bexit code (\d+)")


def train_here(plan: Plan, store: Store, *, paced: bool = False, **_: Any) -> None:
    """What Ray would do, in this process."""
    while (trial := plan.next()) is not None:
        attempt = TrialRun(
            trial.config,
            store,
            calibrators=plan.spec.calibrator_names,
            evaluation=plan.spec.evaluation,
            paced=paced,
        )
        with no_pictures():
            assert attempt.advance(600)
        plan.complete(trial.key)


@contextlib.contextmanager
def at(directory: Path) -> Iterator[None]:
    """Be there, with modules of that directory importable; no Ray."""
    before = list(sys.path), set(sys.modules)
    with (
        contextlib.chdir(directory),
        patch("sweeps.runner.train", train_here),
        patch.dict(os.environ, {"COLUMNS": "100"}),
    ):
        sys.path.insert(0, str(directory))
        try:
            yield
        finally:
            sys.path[:] = before[0]
            for name in set(sys.modules) - before[1]:
                place = getattr(sys.modules[name], "__file__", None)
                if place and Path(place).is_relative_to(directory):
                    del sys.modules[name]


def execute(page: Path, directory: Path) -> str:
    """Execute a page there; all that was printed. Fails where it does something else."""
    printed, seen, names = "", 0, {"__name__": "page"}
    with at(directory):
        for language, text in BLOCK.findall(page.read_text()):
            named = FILE.match(text)
            output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
            if named:
                place = directory / named[1]
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
            elif language == "python":
                with contextlib.redirect_stdout(output):
                    exec(compile(text, f"{page.name}: {text.splitlines()[0]}", "exec"), names)
            elif language == "sh":
                for line in text.splitlines():
                    typed(line, output)
            elif language == "text":
                assert re.search(shown(text), unwrapped(printed[seen:])), (
                    f"{page.name} shows\n{text}\nbut this was printed:\n{printed[seen:]}"
                )
                seen = len(printed)
            printed += written(output)
    return printed


def written(output: io.TextIOWrapper) -> str:
    """What is in it; some commands write bytes to a stream's buffer."""
    output.seek(0)
    return output.read()


def typed(line: str, output: io.TextIOWrapper) -> None:
    """Run one ``calsweep`` command."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    program, *arguments = words
    assert program == "calsweep", line
    expected = FAILED.search(line)
    errors = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    output.write(errors.getvalue())
    assert code == (int(expected[1]) if expected else 0), f"{line}\n{written(output)}"


def shown(text: str) -> str:
    """A pattern for what is printed: any numbers, and anything for ``…``."""
    pieces = [
        ANY_NUMBER.join(re.escape(part) for part in NUMBER.split(piece))
        for piece in unwrapped(text).split("…")
    ]
    return ".*".join(pieces)


def unwrapped(text: str) -> str:
    """Lines as they would be without an end of the screen."""
    return " ".join(text.split())
