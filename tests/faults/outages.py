"""A sweep whose MLflow server goes away twice, run beside the other fault tests.

It takes two minutes and is mostly asleep, so other tests run meanwhile; the one that asks for
its result comes last in its module and waits for it.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tests.faults.kit import MODULE, Scene, free_port, start_server, stop_server, wait_for

SPEC = """\
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods:
  paced: {method: "paced:Paced", lr: {loguniform: [0.01, 0.1]}, pause: 0.1, weight_decay: 0}
training: {epochs: 20, batch_size: full, evaluate_every: 5}
search: {sampler: random, trials: TRIALS}
confirm_seeds: 1
calibrators: []
"""
CURVE = [5, 10, 15, 20]
TRIALS = 50
OUTAGES = (20.0, 60.0)
# However long a server takes to start, the sweep must not end before it is back for good: until
# then a trial takes six seconds, and the last ten do not come past their middle.
MODULE_OF_SLOW_TRIALS = f"""{MODULE}
class Slow(Paced):
    def loss(self, output, labels, numbers):
        found = super().loss(output, labels, numbers)
        time.sleep(0.0 if self.is_back() else 0.3)
        while numbers["progress"] >= 0.5 and self.is_late() and not self.is_back():
            time.sleep(0.1)
        return found

    def is_back(self):
        return os.path.exists(self.hyperparameters.log + ".back")

    def is_late(self):
        rates = [line.split()[0] for line in open(self.hyperparameters.log)]
        return str(self.hyperparameters.lr) in list(dict.fromkeys(rates))[{TRIALS - 10}:]
"""


class Outages(threading.Thread):
    """The sweep and its server; ``result`` waits for the end and raises what went wrong."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.directory = directory
        self.port = free_port()
        self.log = directory / "steps.log"
        spec = SPEC.replace("TRIALS", str(TRIALS)).replace("pause: 0.1", f'log: "{self.log}"')
        self.scene = Scene(
            directory / "sweep",
            spec.replace("paced:Paced", "paced:Slow"),
            tracking=f"http://127.0.0.1:{self.port}",
            module=MODULE_OF_SLOW_TRIALS,
        )
        self.landed: list[int] = []
        self.server = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._error = error

    def _run(self) -> None:
        place = self.directory / "server"
        place.mkdir()
        self.server = start_server(place, self.port)
        process = self.scene.start(watched=False)
        for outage in OUTAGES:
            done = len(self.scene.records())
            wait_for(lambda done=done: len(self.scene.trials()) > done, process)
            before = len(self.scene.records())
            stop_server(self.server)
            time.sleep(outage)
            self.landed.append(len(self.scene.records()) - before)
            self.server = start_server(place, self.port)
        Path(f"{self.log}.back").touch()
        self.out, self.err = process.communicate()
        self.code = process.returncode

    def result(self) -> Outages:
        self.join()
        if self._error is not None:
            raise self._error
        return self
