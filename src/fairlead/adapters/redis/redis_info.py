"""The properties of a Redis or Valkey server that `fairlead doctor` checks.

They come from INFO alone, because managed servers reject CONFIG. Spec: R29.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.redis.admin_client import LoginRefusedError, admin_clients
from fairlead.errors import DependencyUnavailableError, InvalidConfigError, LimiterUnavailableError

TIMEOUT_S = 3.0
APPEND_ADVICE = (
    "appendonly yes, appendfsync everysec: else a restart forgets open breakers, waits that providers asked "
    "for, and who holds slots or waits for one (buckets begin empty in any case)"
)


@dataclass(frozen=True, slots=True)
class RedisInfo:
    """The properties of one server, or the worst ones among the primaries of a cluster."""

    product: str
    version: str
    eviction: str
    """``maxmemory_policy``; empty if the server does not report it."""
    max_memory_bytes: int
    """0: unlimited."""
    appends: bool
    """Whether it writes an append-only file."""
    read_only: bool
    """Whether it is a replica."""

    @property
    def evicts(self) -> bool:
        """Whether it evicts keys when it is full, as far as it reports."""
        return self.eviction not in ("", "noeviction")


async def redis_info(url: Secret, timeout_s: float = TIMEOUT_S) -> RedisInfo:
    """Return the properties of the server at *url*; for a cluster the worst ones among its primaries.

    Raises:
        DependencyUnavailableError: A server does not respond.
        InvalidConfigError: The URL is invalid or the login was rejected. No error repeats the URL.
    """
    infos = list((await redis_info_by_server(url, timeout_s)).values())
    return replace(
        infos[0],
        eviction=next((info.eviction for info in infos if info.evicts), infos[0].eviction),
        appends=all(info.appends for info in infos),
        read_only=any(info.read_only for info in infos),
    )


async def redis_info_by_server(url: Secret, timeout_s: float = TIMEOUT_S) -> dict[str, RedisInfo]:
    """Return the properties of every primary by address; raise as `redis_info` does."""
    try:
        async with admin_clients(url, timeout_s=timeout_s) as servers:
            return {name: _parse(await client.info("all")) for name, client in servers.clients.items()}
    except LoginRefusedError as error:
        raise InvalidConfigError(error.message, hint=error.hint) from None
    except LimiterUnavailableError as error:
        hint = "check REDIS_URL and that the server runs"
        raise DependencyUnavailableError(error.message, hint=hint) from None


def _parse(info: Mapping[str, Any]) -> RedisInfo:
    valkey = info.get("valkey_version")
    return RedisInfo(
        product="Valkey" if valkey else "Redis",
        version=str(valkey or info.get("redis_version", "")),
        eviction=str(info.get("maxmemory_policy", "")),
        max_memory_bytes=int(info.get("maxmemory", 0)),
        appends=bool(int(info.get("aof_enabled", 0))),
        read_only=info.get("role") == "slave",
    )
