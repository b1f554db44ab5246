"""A proxy before an MLflow server that slows, hangs, lies or refuses as it is told."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Mood = Literal["fair", "slow", "page", "hang", "drip", "refuse"]
PAGE = b"<!DOCTYPE html><html><body>\n" + b"<p>Please accept our terms.</p>\n" * 200


class Between(ThreadingHTTPServer):
    """Passes requests on while it is ``fair``.

    ``asked`` counts the requests; ``struck`` is set when one has met the mood. What hangs does
    so until ``released``, what is slow for so many ``seconds``.
    """

    daemon_threads = True

    def __init__(self, port: int = 0, seconds: float = 0.02) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = port
        self.seconds = seconds
        self.uri = f"http://127.0.0.1:{self.server_port}"
        self.mood: Mood = "fair"
        self.only = ""
        self.asked = 0
        self.struck = threading.Event()
        self.released = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def turn(self, mood: Mood, only: str = "") -> None:
        """Be so from now on, to requests whose path contains ``only``."""
        self.struck.clear()
        self.only, self.mood = only, mood

    def close(self) -> None:
        """Let go of all who wait, and end."""
        self.released.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients go away without a word: nothing to tell."""


class _Handler(BaseHTTPRequestHandler):
    server: Between

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked += 1
        mood = self.server.mood if self.server.only in self.path else "fair"
        if mood != "fair":
            self.server.struck.set()
        if mood == "page":
            self._answer(200, "text/html; charset=utf-8", PAGE)
        elif mood == "refuse":
            self._answer(401, "text/plain", b"You are not authenticated.")
        elif mood == "hang":
            self.server.released.wait()
        elif mood == "drip":
            self._answer(200, "application/json", b"", length=10_000)
            while not self.server.released.wait(0.1):
                self.wfile.write(b" ")
        else:
            if mood == "slow":
                self.server.released.wait(self.server.seconds)
            self._pass_on(body)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def _pass_on(self, body: bytes) -> None:
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        try:
            behind.request(self.command, self.path, body, dict(self.headers))
            answer = behind.getresponse()
            kind = answer.headers.get("Content-Type", "application/json")
            self._answer(answer.status, kind, answer.read())
        finally:
            behind.close()

    def _answer(self, status: int, kind: str, body: bytes, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing to tell."""
