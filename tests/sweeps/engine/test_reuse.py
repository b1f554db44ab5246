"""Short trials on many slots: every slot gets its process, however many trials the first takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SLOTS = 3
MOST = 300
"""Trials: many more than the first process gets done before the last one has started."""
# Processes take as long to start as many trials do to run, as with torch on a real cluster.
PROGRAM = """
import os, sys, time
from pathlib import Path
import ray
from ray import tune
from ray.tune.search import Searcher
from sweeps.ray_backend.local_ray import started
from sweeps.ray_backend.searcher import PlanScheduler
from sweeps.ray_backend.tune_run import TUNE_ENVIRONMENT

os.environ.update(TUNE_ENVIRONMENT)
slots, most, log = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])


class Short(tune.Trainable):
    started = False

    def setup(self, config):
        if not Short.started:
            time.sleep(config["start"])
            Short.started = True

    def step(self):
        time.sleep(0.1)
        with log.open("a") as out:
            out.write(f"{os.getpid()}\\n")
        return {"done": True}

    def reset_config(self, config):
        return True


class Few(Searcher):
    def __init__(self):
        super().__init__()
        self.running, self.given = set(), 0

    def suggest(self, trial_id):
        at_work = set(log.read_text().splitlines()) if log.exists() else set()
        if self.given == most or len(at_work) == slots:
            return Searcher.FINISHED
        if len(self.running) == slots:
            return None
        self.running.add(trial_id)
        self.given += 1
        # The first is there at once, the others come slowly: machines that join later.
        return {"start": 0.0 if self.given == 1 else 1.0}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.running.discard(trial_id)

    def save(self, path):
        pass

    def restore(self, path):
        pass


def start():
    ray.init(address="local", num_cpus=slots, include_dashboard=False, log_to_driver=False)


if __name__ == "__main__":
    started(start, ray.shutdown)
    searcher = Few()
    tune.Tuner(
        tune.with_resources(Short, {"cpu": 1}),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=PlanScheduler(searcher),
            num_samples=-1,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            storage_path=sys.argv[4],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            verbose=0,
        ),
    ).fit()
"""


def test_processes_that_are_starting_are_not_given_up_for_free_ones(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    log = tmp_path / "log"
    arguments = [str(SLOTS), str(MOST), str(log), str(tmp_path / "tune")]
    done = subprocess.run(
        [sys.executable, "program.py", *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(set(log.read_text().splitlines())) == SLOTS
