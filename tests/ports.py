"""Ports for the servers of tests."""

from __future__ import annotations

import random
import socket

# Below those that the kernel gives to connections and above Ray's workers': between this look
# and the server's start, which may take a busy machine a minute, nobody takes one of these.
RANGE = range(20_000, 32_000)


def free_port() -> int:
    """A port that nobody listens on."""
    while True:
        port = random.SystemRandom().choice(RANGE)
        with socket.socket() as taken:
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
