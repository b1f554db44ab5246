"""An MLflow server on this machine, for as long as it is needed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from calibration.leftovers import temporary_name
from sweeps.errors import UserError
from sweeps.host import reaper
from sweeps.host.secrets import masked, without_secrets
from sweeps.tracking.mlflow.drivers import with_driver

_HOST = "127.0.0.1"
FIRST_PORT = 5000
PORTS_TRIED = 100
START_SECONDS = 600.0
LOG_READ = 10_000
_ENVIRONMENT = {
    # Jobs are not needed to look at runs, and their processes take a gigabyte.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


class ServerError(UserError):
    """The server did not start, or ended; the message says why."""

    exit_code = 1


def free_port(first: int = FIRST_PORT, tried: int = PORTS_TRIED, host: str = _HOST) -> int | None:
    """The first free port from ``first`` on; None if all are taken."""
    ports = range(first, min(first + tried, 65536))
    return next((port for port in ports if _is_free(host, port)), None)


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class MlflowServer:
    """A server on a tracking database, which starts when the context is entered.

    None of its processes outlives the context or the process that entered it, however that
    ends. Its output is kept in case it fails, or shown directly if ``aloud``.
    """

    def __init__(
        self,
        uri: str,
        port: int,
        *,
        host: str = _HOST,
        arguments: Sequence[str] = ("--workers", "1"),
        environment: Mapping[str, str] | None = None,
        aloud: bool = False,
    ) -> None:
        self.uri = with_driver(uri)
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._command = ["-m", "mlflow", "server", "--host", host, "--port", str(port), *arguments]
        # The database is passed in the environment, so that no process list shows a password.
        database = {"MLFLOW_BACKEND_STORE_URI": self.uri}
        self._environment = _ENVIRONMENT | database | dict(environment or {})
        self._mark = Path(temporary_name("mlflow-server-"))
        self._aloud = aloud
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # without a name: nothing is left behind
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        kept = Path(__file__).parent / "kept.py"
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(kept), sys.executable, *self._command],
            env=os.environ | self._environment | {reaper.MARK: str(self._mark)},
            stdin=subprocess.PIPE,
            stdout=None if self._aloud else self._log,
            stderr=None if self._aloud else subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
            reaper.end_processes(self._mark)  # the process that keeps it may have been killed
        self._log.close()

    def wait_until_it_answers(self) -> None:
        """Return once it can be used. Raises ``ServerError`` if it does not start."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise self._error("did not start")
            try:
                with urllib.request.urlopen(f"{self._near}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.1)
        raise self._error(f"did not answer within {START_SECONDS:.0f} s")

    def wait(self) -> None:
        """Wait until it ends by itself, which it should not; then raises ``ServerError``."""
        if self._process is not None:
            self._process.wait()
        raise self._error("ended")

    @property
    def _near(self) -> str:
        """Its address from this machine: a wildcard address cannot be connected to."""
        return self.address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")

    def _error(self, what: str) -> ServerError:
        lines = self._logged().strip().splitlines()[-5:]
        message = without_secrets("\n".join(lines), self.uri) or "it printed nothing"
        message = "see above" if self._aloud else message
        return ServerError(f"the MLflow server on {masked(self.uri)} {what}: {message}")

    def _logged(self) -> str:
        """The end of its output; the position in the file is shared with the server."""
        log = self._log.fileno()
        size = os.fstat(log).st_size
        return os.pread(log, LOG_READ, max(0, size - LOG_READ)).decode(errors="replace")
