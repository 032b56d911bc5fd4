"""Ports for servers that are told theirs, and that may be killed and started again on it.

They lie below the range from which the system gives ports to whoever asks for any: one that was free would
now and then be somebody's connection by the time the server is there.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from secrets import randbelow

LOWEST, BEYOND = 10_000, 32_768
"""Linux gives ports from the second on, others from higher ones."""


def free_port(*beside: int) -> int:
    """One that nobody listens at; so many higher (each of *beside*) nobody does, either."""
    while True:
        port = LOWEST + randbelow(BEYOND - LOWEST - max(beside, default=0))
        with suppress(OSError):
            for each in (port, *(port + more for more in beside)):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", each))
            return port
