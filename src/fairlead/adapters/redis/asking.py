"""A connection for people's questions: short, apart from that of the calls, and not patient."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from fairlead.adapters.redis.link import unavailable
from fairlead.errors import ConfigInvalid
from fairlead.secret import Secret

TIMEOUT_S = 2.0


@asynccontextmanager
async def asking(url: Secret, *, timeout_s: float = TIMEOUT_S) -> AsyncIterator[Any]:
    """A client for the block. GateUnavailable for what the server does not answer; ConfigInvalid: no URL."""
    try:
        client = Redis.from_url(
            url.reveal(), socket_timeout=timeout_s, socket_connect_timeout=timeout_s, protocol=2
        )
    except ValueError:  # its text may repeat a part of the URL
        raise ConfigInvalid("REDIS_URL is no URL of a Redis", hint="redis://host:6379/0") from None
    try:
        yield client
    except (RedisError, OSError, TimeoutError) as error:
        raise unavailable(error) from None
    finally:
        await client.aclose()


def told(raw: bytes) -> str:
    """*raw* as text; what is none shows as such and hides nothing else."""
    return raw.decode("utf-8", "replace")


def who(holder: str) -> tuple[int, str, str, str, int]:
    """The fields of a holder's text: lease id, process, tenant, job, class; see include/pool.lua."""
    lease_id, process, number, _, _, tenant, job = holder.split("\x1f")
    return int(lease_id, 16), process, tenant, job, int(number)
