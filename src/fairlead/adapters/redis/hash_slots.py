"""Which server of a cluster has which slots, as CLUSTER SLOTS tells it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.redis.connection import member_url


@dataclass(frozen=True, slots=True)
class SlotRange:
    """Slots from the *first* to the *last*. *servers*: URLs by address; the primary comes first."""

    first: int
    last: int
    servers: dict[str, Secret]

    @property
    def primary(self) -> tuple[str, Secret]:
        """Its address and its URL."""
        return next(iter(self.servers.items()))


def slot_ranges(told: Iterable[Any], url: Secret) -> list[SlotRange]:
    """The ranges of an answer: first and last slot, then host and port of the primary and of its replicas.

    *url*: who answered. A server that does not know its own host is where we reached it.
    """
    return [
        SlotRange(first, last, dict(_place(url, *server[:2]) for server in servers))
        for first, last, *servers in told
    ]


def _place(url: Secret, raw: bytes | None, port: int) -> tuple[str, Secret]:
    host = "" if raw is None else raw.decode()
    return f"{host}:{port}", member_url(url, host, port)
