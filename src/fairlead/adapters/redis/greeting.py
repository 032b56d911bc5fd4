"""The first words with a server: may it be used, and does it still know what it knew? (R23, R29)"""

from __future__ import annotations

from typing import Any

from fairlead.adapters.redis.link import Link
from fairlead.adapters.redis.scripts import script
from fairlead.errors import GateUnavailable
from fairlead.policy.gate.limit import MICRO


class Greeting:
    """Called once per new connection. GateUnavailable where the server must not be used."""

    def __init__(self, marker: str, *, new: bool, lease_s: float) -> None:
        self._marker = marker.encode()
        self._new = new
        self._lease_us = round(lease_s * MICRO)

    async def __call__(self, link: Link) -> None:
        server = _info(await link.call("INFO", "server"))
        memory = _info(await link.call("INFO", "memory"))
        policy = memory.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise GateUnavailable(
                f"Redis may drop keys when it is full: maxmemory-policy is {policy}",
                hint="set maxmemory-policy noeviction; a dropped limit lets calls through that must not go",
            )
        args = (server.get("run_id", ""), int(self._new), self._lease_us, 0)
        await link.run(script("hello"), [self._marker], [str(arg).encode() for arg in args])
        self._new = False  # from now on a missing marker is a loss


def _info(told: Any) -> dict[str, str]:
    """The lines of an INFO section."""
    text = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}
