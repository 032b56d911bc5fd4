"""What a Redis or Valkey server says of itself, for `fairlead doctor`.

Read from INFO alone: managed servers refuse CONFIG (R29).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.redis.admin_client import LoginRefusedError, asking
from fairlead.errors import DependencyUnavailableError, InvalidConfigError, LimiterUnavailableError

TIMEOUT_S = 3.0
APPEND_ADVICE = (
    "appendonly yes, appendfsync everysec: else a restart forgets open breakers, waits that providers asked "
    "for, and who holds slots or waits for one (buckets begin empty in any case)"
)


@dataclass(frozen=True, slots=True)
class RedisInfo:
    """One look at a server."""

    product: str
    version: str
    eviction: str
    """``maxmemory_policy``; empty where the server does not tell."""
    max_memory_bytes: int
    """0: no bound."""
    appends: bool
    """Whether it writes an append-only file."""
    read_only: bool
    """Whether it is a replica."""

    @property
    def evicts(self) -> bool:
        """Whether it drops keys when it is full, as far as it tells."""
        return self.eviction not in ("", "noeviction")


async def redis_facts(url: Secret, timeout_s: float = TIMEOUT_S) -> RedisInfo:
    """Ask the server at *url*; of a cluster what is worst in any of its primaries.

    DependencyUnavailableError or InvalidConfigError, which never repeat the URL.
    """
    found = list((await facts_of_each(url, timeout_s)).values())
    return replace(
        found[0],
        eviction=next((one.eviction for one in found if one.evicts), found[0].eviction),
        appends=all(one.appends for one in found),
        read_only=any(one.read_only for one in found),
    )


async def facts_of_each(url: Secret, timeout_s: float = TIMEOUT_S) -> dict[str, RedisInfo]:
    """The same of every primary, by address."""
    try:
        async with asking(url, timeout_s=timeout_s) as servers:
            return {name: _facts(await client.info("all")) for name, client in servers.each.items()}
    except LoginRefusedError as error:
        raise InvalidConfigError(error.message, hint=error.hint) from None
    except LimiterUnavailableError as error:
        hint = "check REDIS_URL and that the server runs"
        raise DependencyUnavailableError(error.message, hint=hint) from None


def _facts(info: Mapping[str, Any]) -> RedisInfo:
    valkey = info.get("valkey_version")
    return RedisInfo(
        product="Valkey" if valkey else "Redis",
        version=str(valkey or info.get("redis_version", "")),
        eviction=str(info.get("maxmemory_policy", "")),
        max_memory_bytes=int(info.get("maxmemory", 0)),
        appends=bool(int(info.get("aof_enabled", 0))),
        read_only=info.get("role") == "slave",
    )
