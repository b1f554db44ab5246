"""The endpoint: a small HTTP server in threads of the driver, which it must never slow or stop.

::

    /             a live page            /status.json  for scripts
    /metrics      for Prometheus         /healthz      200 while the driver lives

It shows the sweep and offers no way to change it. A snapshot is taken only on demand, and not again
before twenty times its duration: more frequent requests get the last one. An error while making an
answer becomes status 500.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from sweeps.engine.plan import Plan
from sweeps.errors import UserError
from sweeps.status.prometheus import exposition
from sweeps.status.snapshot import snapshot

LEAST_SECONDS = 1.0
"""Minimum seconds between two snapshots."""
_SHARE = 20
MOST_AT_ONCE = 8
_PAGES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class StatusServer:
    """Serves the state of a driver's sweeps; a context, in which ``showing`` sets the sweep.

    Raises ``UserError`` if the port cannot be used. Port 0 is any free one; ``address`` says
    which.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._began = host, time.time()
        self._shown: dict[str, Any] = _idle("")
        self._plan: Plan | None = None
        self._last_event = time.time()
        self._again_at = 0.0
        self._lock = threading.Lock()
        try:
            self._server = _Server((host, port), _handler(self))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"--status-port: {host}:{port} cannot be used ({reason}); name another port, or 0 "
                "for any that is free"
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="status", daemon=True
        )

    @property
    def address(self) -> str:
        """The address of the page."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def showing(self, plan: Plan) -> Iterator[None]:
        """Show this sweep; afterwards its last state stays until the next one."""
        with self._lock:
            self._plan, self._began = plan, time.time()
            self._last_event, self._again_at = time.time(), 0.0
        try:
            yield
        finally:
            self.status(now=True)
            with self._lock:
                self._plan = None

    def event(self) -> None:
        """A trial has ended."""
        self._last_event = time.time()

    def status(self, *, now: bool = False) -> dict[str, Any]:
        """The latest snapshot, with the driver's own health; a new one if it is due."""
        # Requests during a snapshot get the last one: nobody waits, nothing is done twice.
        if self._lock.acquire(blocking=now):
            try:
                plan = self._plan
                if plan is not None and (now or time.monotonic() >= self._again_at):
                    began = time.monotonic()
                    self._shown = _taken(plan, self._began, self._shown)
                    took = time.monotonic() - began
                    self._again_at = began + took + max(LEAST_SECONDS, _SHARE * took)
            finally:
                self._lock.release()
        memory = psutil.Process().memory_info().rss
        age = time.time() - self._last_event
        return self._shown | {
            "pid": os.getpid(),
            "resident_bytes": memory,
            "event_age_seconds": age,
        }

    def answers_to(self, host: str) -> bool:
        """Whether a Host header is ours: a foreign page may use a name that resolves to us."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        name = name.strip("[]").lower()
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in {"localhost", self._host.lower(), *_own_names()}
        return True


def _taken(plan: Plan, began: float, before: dict[str, Any]) -> dict[str, Any]:
    for _ in range(3):
        try:
            return snapshot(plan, began)
        except (RuntimeError, KeyError):  # it changed while it was read
            continue
    return before or _idle(plan.spec.name)


def _idle(sweep: str) -> dict[str, Any]:
    return {"sweep": sweep, "state": "starting", "trials": {}, "cells": []}


@cache
def _own_names() -> frozenset[str]:
    name = socket.gethostname().lower()
    return frozenset({name, name.partition(".")[0]})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = os.name == "posix"

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.places = threading.BoundedSemaphore(MOST_AT_ONCE)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client hung up: not worth a message in the driver's terminal."""


def _handler(status: StatusServer) -> type[BaseHTTPRequestHandler]:
    answers: dict[str, tuple[Callable[[], str], str]] = {
        "/status.json": (lambda: json.dumps(status.status()), "application/json"),
        "/metrics": (lambda: exposition(status.status()), "text/plain; version=0.0.4"),
        "/healthz": (lambda: "ok\n", "text/plain"),
    }
    for path, (name, kind) in _PAGES.items():
        answers[path] = (lambda name=name: _file(name), kind)  # type: ignore[misc]

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0
        server_version, sys_version = "calsweep", ""

        def do_GET(self) -> None:
            self._answer()

        def do_HEAD(self) -> None:
            self._answer()

        def _answer(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            if not status.answers_to(self.headers.get("Host", "")):
                self._send(403, "this name is not one of this server's\n", "text/plain")
            elif found is None:
                self._send(404, "there is /, /status.json, /metrics, /healthz\n", "text/plain")
            else:
                make, kind = found
                try:
                    code, text = 200, make()
                except Exception as error:  # whatever it is, the driver continues
                    code, text, kind = 500, f"{type(error).__name__}\n", "text/plain"
                self._send(code, text, kind)

        def _send(self, code: int, text: str, kind: str) -> None:
            content = text.encode()
            self.send_response(code)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *given: object) -> None:
            """Log nothing: the terminal belongs to the sweep."""

    return Handler


@cache
def _file(name: str) -> str:
    return (Path(__file__).parent / "page" / name).read_text()
