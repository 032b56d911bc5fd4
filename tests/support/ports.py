"""Ports for servers with a fixed port, which may be killed and started again on it.

They are below the range from which the system assigns ports. A free port of that range could be in use by a
connection when the server starts.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from secrets import randbelow

LOWEST, BEYOND = 10_000, 32_768
"""Linux gives ports from the second on, others from higher ones."""


def free_port(*beside: int) -> int:
    """Return a port that is free, and free at each distance in *beside* above it."""
    while True:
        port = LOWEST + randbelow(BEYOND - LOWEST - max(beside, default=0))
        with suppress(OSError):
            for candidate in (port, *(port + more for more in beside)):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", candidate))
            return port
