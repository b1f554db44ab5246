"""An MLflow server on this machine, for as long as someone looks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType

from sweeps.masking import masked

HOST = "127.0.0.1"
FIRST_PORT = 5000
PORTS_TRIED = 100
START_SECONDS = 120.0
ENVIRONMENT = {
    # Jobs are no part of looking at runs, and their processes take a gigabyte.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


class ServerError(RuntimeError):
    """The server did not start, or ended; the message says why."""


def free_port(first: int = FIRST_PORT, tried: int = PORTS_TRIED) -> int | None:
    """The first port from ``first`` on that nobody listens on; None if all are taken."""
    ports = range(first, min(first + tried, 65536))
    return next((port for port in ports if _is_free(port)), None)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


class UiServer:
    """A server on a tracking database, which starts as the context is entered.

    No process of it outlives the context, nor the process that entered it, in whatever way
    that ends.
    """

    def __init__(self, uri: str, port: int) -> None:
        self.uri = uri
        self.address = f"http://{HOST}:{port}"
        self._port = port
        self._log = tempfile.NamedTemporaryFile(prefix="calsweep-mlflow-", suffix=".log")  # noqa: SIM115
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> UiServer:
        arguments = ["-m", "mlflow", "server", "--host", HOST, "--port", str(self._port)]
        arguments += ["--workers", "1"]
        kept = Path(__file__).parent / "kept.py"
        self._process = subprocess.Popen(
            [sys.executable, str(kept), sys.executable, *arguments],
            # In the environment, so that no list of processes shows a password.
            env=os.environ | ENVIRONMENT | {"MLFLOW_BACKEND_STORE_URI": self.uri},
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
        self._log.close()

    def wait_until_it_answers(self) -> None:
        """Return once it can be used. Raises ``ServerError`` if it does not start."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise self._error("did not start")
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.1)
        raise self._error(f"did not answer within {START_SECONDS:.0f} s")

    def wait(self) -> None:
        """Wait until it ends by itself, which it should not: raises ``ServerError`` then."""
        if self._process is not None:
            self._process.wait()
        raise self._error("ended")

    def _error(self, what: str) -> ServerError:
        lines = Path(self._log.name).read_text(errors="replace").strip().splitlines()[-5:]
        said = masked("\n".join(lines), self.uri) or "it said nothing"
        return ServerError(f"the MLflow server on {masked(self.uri)} {what}: {said}")
