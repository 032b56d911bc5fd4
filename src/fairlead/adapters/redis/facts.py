"""What a Redis or Valkey server says of itself, for `fairlead doctor`.

Read from INFO alone: managed servers refuse CONFIG (R29).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, RedisError

from fairlead.errors import ConfigInvalid, DependencyUnavailable
from fairlead.policy.safe import clipped
from fairlead.secret import Secret

TIMEOUT_S = 3.0
APPEND_ADVICE = "appendonly yes, appendfsync everysec: else a restart forgets limits that were used up"
_MAX_BYTES = 200


@dataclass(frozen=True, slots=True)
class RedisFacts:
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


async def redis_facts(url: Secret, timeout_s: float = TIMEOUT_S) -> RedisFacts:
    """Ask the server at *url*; DependencyUnavailable or ConfigInvalid, which never repeat the URL."""
    try:
        client = Redis.from_url(
            url.reveal(), socket_timeout=timeout_s, socket_connect_timeout=timeout_s, decode_responses=True
        )
    except ValueError:  # its text may repeat a part of the URL
        raise ConfigInvalid("REDIS_URL is no URL of a Redis", hint="redis://host:6379/0") from None
    try:
        return _facts(await client.info("all"))
    except AuthenticationError:
        raise ConfigInvalid(
            "Redis refuses this login", hint="check the user and password of REDIS_URL"
        ) from None
    except (RedisError, OSError, TimeoutError) as error:
        told = clipped(f"{type(error).__name__}: {error}", _MAX_BYTES)
        raise DependencyUnavailable(
            f"Redis is not available: {told}", hint="check REDIS_URL and that the server runs"
        ) from None
    finally:
        await client.aclose()


def _facts(info: Mapping[str, Any]) -> RedisFacts:
    valkey = info.get("valkey_version")
    return RedisFacts(
        product="Valkey" if valkey else "Redis",
        version=str(valkey or info.get("redis_version", "")),
        eviction=str(info.get("maxmemory_policy", "")),
        max_memory_bytes=int(info.get("maxmemory", 0)),
        appends=bool(int(info.get("aof_enabled", 0))),
        read_only=info.get("role") == "slave",
    )
