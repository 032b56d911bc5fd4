"""The way of a child to its database, as its order has it: other numbers, a name of the test's own.

database   numbers of DatabaseSettings, in place of the defaults
within_s   how long a commit in doubt is looked for
probe_s    how often the connection that only listens asks whether the other end is there
tcp        when the system gives a silent peer up: user_timeout_ms, idle_s, every_s
resolver   {"name": ..., "stalled": path, "fails": ...}: the database's host name, which resolves to this
           host; as long as the file is there it does not, or fails at once
unsafe     "no_guard": the system is left to wait for a silent peer as it likes; "keeps_read_only": a
           connection to a server that takes no writes is kept; "looks_anew_each_time": or given up each
           time that it says so
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlead.adapters.postgres import connection_setup, database, listen
from fairlead.assembly import runtime

LOOK_S = 0.005


def prepare(order: dict[str, Any]) -> None:
    """To be called before there is a runtime."""
    numbers = order.get("database", {})
    original_settings = runtime.database_settings
    runtime.database_settings = lambda *args: replace(original_settings(*args), **numbers)
    if "within_s" in order:
        database.Database.resolve_doubt.__defaults__ = (None, order["within_s"])
    if "probe_s" in order:
        listen._PROBE_EVERY_S = order["probe_s"]
    if "tcp" in order:
        _quick(order["tcp"])
    if "no_guard" in order.get("unsafe", ()):
        database.guard_socket = _left_alone  # type: ignore[assignment]
    if "keeps_read_only" in order.get("unsafe", ()):
        database.ReadOnlyServerError = _NeverRaised  # type: ignore[misc]
    if "looks_anew_each_time" in order.get("unsafe", ()):
        database._RECONNECT_EVERY_S, listen._PAUSE_S = 0.0, (0.0,)
    if "resolver" in order:
        socket.getaddrinfo = _resolver(order["resolver"])  # type: ignore[assignment]


class _NeverRaised(database.ReadOnlyServerError):
    """In the place of what would be seen."""


def _quick(tcp: dict[str, int]) -> None:
    connection_setup._USER_TIMEOUT_MS = tcp["user_timeout_ms"]
    for name, value in (("IDLE", "idle_s"), ("ALIVE", "idle_s"), ("INTVL", "every_s")):
        connection_setup._KEEPALIVE[f"TCP_KEEP{name}"] = tcp[value]


async def _left_alone(_connection: object) -> None:
    return


def _resolver(fault: dict[str, Any]) -> Callable[..., Any]:
    original_lookup, stalled = socket.getaddrinfo, Path(fault["stalled"])

    def resolve(host: Any, *more: Any, **named: Any) -> Any:
        if host != fault["name"]:
            return original_lookup(host, *more, **named)
        while stalled.exists():
            if fault.get("fails"):
                raise socket.gaierror(socket.EAI_AGAIN, "as it was ordered")
            time.sleep(LOOK_S)
        return original_lookup("127.0.0.1", *more, **named)

    return resolve
