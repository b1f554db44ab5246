"""``sweeps.run`` and ``sweeps.load`` leave the process of their caller as it was.

What they are called for is the example in the docstring of ``sweeps``, which has to hold, too.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sweeps.host.process import left_as_found, quiet

LEVELS = {"alembic": "WARNING", "mlflow": "INFO", "optuna": "INFO", "ray": "INFO"}
"""As the libraries set them when they are imported."""
CALLER = f"""
import doctest, json, logging, os, random, signal, sys, threading, torch

def state():
    return {{
        "environment": dict(os.environ),
        "path": sys.path,
        "hook": repr(sys.excepthook),
        "handlers": [repr(signal.getsignal(number)) for number in signal.valid_signals()],
        "random": hash(random.getstate()),
        "torch": [torch.get_num_threads(), torch.get_rng_state().tolist()],
        "threads": [thread.name for thread in threading.enumerate()],
        "root": [logging.root.level, repr(logging.root.handlers)],
        "levels": [logging.getLogger(name).level for name in ("calsweep", "sqlalchemy")],
    }}

logging.getLogger("sqlalchemy").setLevel("ERROR")
torch.set_num_threads(2)
states = [json.dumps(state())]
import sweeps
found = doctest.testmod(sweeps)
states.append(json.dumps(state()))
rows = len(sweeps.load("first").results)
states.append(json.dumps(state()))
from sweeps.ray_backend import searcher
levels = {{name: logging.getLevelName(logging.getLogger(name).level) for name in {[*LEVELS]}}}
levels["ray.tune"] = logging.getLevelName(logging.getLogger("ray.tune").level)
print(json.dumps([*map(json.loads, states), found, rows, levels, len(searcher._LIVE)]))
"""


@pytest.mark.slow
def test_a_caller_finds_the_process_as_it_was(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CALLER], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    before, run, loaded, (failed, attempted), rows, levels, live = json.loads(done.stdout)
    assert failed == 0
    assert attempted >= 3
    assert run == before
    assert loaded == before
    assert rows == 2 * 3  # the network, its calibrator, the oracle, on two seeds each
    assert levels == LEVELS | {"ray.tune": "NOTSET"}
    assert live == 0
    assert done.stderr == ""


def test_what_is_changed_comes_back_after_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "before")
    logger, path, hook = logging.getLogger("a.library"), list(sys.path), sys.excepthook
    handler = signal.getsignal(signal.SIGUSR1)

    @left_as_found()
    def fail() -> None:
        os.environ.update(KEPT="after", NEW="1")
        sys.path.insert(0, "elsewhere")
        sys.excepthook = lambda *_: None
        signal.signal(signal.SIGUSR1, lambda *_: None)
        logger.setLevel(logging.CRITICAL)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert os.environ["KEPT"] == "before"
    assert "NEW" not in os.environ
    assert (sys.path, sys.excepthook) == (path, hook)
    assert signal.getsignal(signal.SIGUSR1) is handler
    assert logger.level == logging.NOTSET


def test_it_works_in_a_thread_which_can_set_no_handler() -> None:
    failed: list[Exception] = []

    def work() -> None:
        try:
            with left_as_found(), quiet({"a.library": logging.ERROR}):
                pass
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == []
