"""Connections for people's questions: short, apart from those of the calls, and not patient.

What is asked of a key goes to the server that has it; what is asked of a server is asked of each. Slots that
move meanwhile are not followed: their keys are told as not there, or the question is to be asked again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import Any

from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    AuthenticationError,
    MovedError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from fairlead._core.secret import Secret
from fairlead.adapters.redis.connection import unavailable
from fairlead.adapters.redis.hash_slots import slot_ranges
from fairlead.errors import InvalidConfigError, LimiterUnavailableError

TIMEOUT_S = 2.0
_MOST = 2.0**53
MOVING = (AskError, MovedError, TryAgainError)
"""What a server of a cluster answers where a key is on its way to another."""


UNREADABLE = "unreadable"


@contextmanager
def passing_over(*moving: type[RedisError]) -> Iterator[None]:
    """Ignore keys of another type than expected, and keys that are *moving* to another server."""
    try:
        yield
    except moving:
        pass
    except ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise


def numbers(form: Struct, kept: bytes | None) -> tuple[float, ...] | None:
    """Unpack *form*; return None if the value is missing or does not fit."""
    if kept is None or len(kept) != form.size:
        return None
    read: tuple[float, ...] = form.unpack(kept)
    return read if all(abs(number) <= _MOST for number in read) else None


class LoginRefusedError(LimiterUnavailableError):
    """A server does not know the user or the password."""


@dataclass(frozen=True, slots=True)
class Servers:
    """What is behind a URL: one server, or the primaries of a cluster. *each*: clients by address."""

    each: Mapping[str, Any]
    owners: Sequence[tuple[int, int, Any]] = ()
    """First and last slot, and who has them; nothing where one server stands alone."""

    @property
    def in_cluster(self) -> bool:
        """Whether keys are spread over several servers."""
        return bool(self.owners)

    def of(self, key: str) -> Any:
        """The client of the server that has *key*. LimiterUnavailableError where none has its slot."""
        if not self.owners:
            return next(iter(self.each.values()))
        slot = key_slot(key.encode())
        for first, last, client in self.owners:
            if first <= slot <= last:
                return client
        hint = "redis-cli --cluster check tells which, and --cluster fix mends it"
        raise LimiterUnavailableError("the Redis cluster has slots that no server owns", hint=hint)


@asynccontextmanager
async def asking(url: Secret, *, timeout_s: float = TIMEOUT_S) -> AsyncIterator[Servers]:
    """Clients for the block. LimiterUnavailableError for what a server does not answer; InvalidConfigError: no URL."""
    async with AsyncExitStack() as open_ones:
        try:
            yield await _servers(url, timeout_s, open_ones)
        except AuthenticationError:
            hint = "check the user and password of REDIS_URL"
            raise LoginRefusedError("Redis refuses this login", hint=hint) from None
        except MOVING:
            hint = "ask again once the cluster has moved them"
            raise LimiterUnavailableError("slots are on their way to another server", hint=hint) from None
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from None


async def _servers(url: Secret, timeout_s: float, open_ones: AsyncExitStack) -> Servers:
    seed = _client(url, timeout_s, open_ones)
    if not int((await seed.info("cluster")).get("cluster_enabled", 0)):
        return Servers({"": seed})
    each: dict[str, Any] = {}
    owners: list[tuple[int, int, Any]] = []
    for part in slot_ranges(await seed.execute_command("CLUSTER", "SLOTS"), url):
        address, place = part.primary
        if address not in each:
            each[address] = _client(place, timeout_s, open_ones)
        owners.append((part.first, part.last, each[address]))
    if not owners:
        hint = "give it slots: redis-cli --cluster create, or --cluster fix"
        raise LimiterUnavailableError("the Redis cluster has no slots yet", hint=hint)
    return Servers(each, owners)


def _client(url: Secret, timeout_s: float, open_ones: AsyncExitStack) -> Any:
    try:
        client = Redis.from_url(
            url.reveal(), socket_timeout=timeout_s, socket_connect_timeout=timeout_s, protocol=2
        )
    except ValueError:  # its text may repeat a part of the URL
        raise InvalidConfigError("REDIS_URL is no URL of a Redis", hint="redis://host:6379/0") from None
    open_ones.push_async_callback(client.aclose)
    return client


async def pages(client: Any, prefix: str, size: int) -> AsyncIterator[list[bytes]]:
    """Keys of one server that begin with *prefix*: of about *size* that it passed, none twice; maybe none.

    Calls of others come in between. None of the characters of our prefix means anything in a pattern.
    """
    cursor = 0
    while True:
        cursor, found = await client.scan(cursor, match=prefix.encode() + b"*", count=size)
        yield sorted(set(found))
        if not cursor:
            return


async def unlink(client: Any, keys: Iterable[bytes]) -> int:
    """Delete *keys* of one server; how many there were."""
    async with client.pipeline(transaction=False) as pipe:
        for key in keys:  # one by one: those of a cluster's server are of many slots
            pipe.unlink(key)
        return sum(await pipe.execute())


def told(raw: bytes) -> str:
    """*raw* as text; what is none shows as such and hides nothing else."""
    return raw.decode("utf-8", "replace")


def who(holder: str) -> tuple[int, str, str, str, int]:
    """Return the fields of a holder: lease id, process, tenant, job, class; see include/pool.lua.

    A foreign text becomes lease 0 of a process named unreadable.
    """
    try:
        lease_id, process, number, _, _, tenant, job = holder.split("\x1f")
        return int(lease_id, 16), process, tenant, job, int(number)
    except ValueError:
        return 0, UNREADABLE, "", "", 0
