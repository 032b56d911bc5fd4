"""The hash slots of a Redis Cluster and their servers, parsed from CLUSTER SLOTS."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.redis.connection import member_url


@dataclass(frozen=True, slots=True)
class SlotRange:
    """The hash slots from *first* to *last*. *servers*: URLs by address, the primary first."""

    first: int
    last: int
    servers: dict[str, Secret]

    @property
    def primary(self) -> tuple[str, Secret]:
        """The address and URL of the primary."""
        return next(iter(self.servers.items()))


def slot_ranges(response: Iterable[Any], url: Secret) -> list[SlotRange]:
    """Return the ranges of a response: first and last slot, then the servers, the primary first.

    *url* is that of the responding server. It stands in for a host that the server does not know.
    """
    return [
        SlotRange(first, last, dict(_server(url, *server[:2]) for server in servers))
        for first, last, *servers in response
    ]


def _server(url: Secret, raw: bytes | None, port: int) -> tuple[str, Secret]:
    host = "" if raw is None else raw.decode()
    return f"{host}:{port}", member_url(url, host, port)
