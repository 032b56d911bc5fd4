"""Short-lived connections for the operator's commands, separate from those of calls, with short timeouts.

A command about a key goes to the server that owns its hash slot. Hash slots that move meanwhile are not
followed: their keys are reported as missing, or the command fails and has to be repeated.
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
_MAX_NUMBER = 2.0**53
MOVING = (AskError, MovedError, TryAgainError)
"""The errors of a cluster node for a key that is moving to another node."""

UNREADABLE = "unreadable"


@contextmanager
def skip_unreadable(*moving: type[RedisError]) -> Iterator[None]:
    """Ignore keys of another type than expected, and keys that are *moving* to another server."""
    try:
        yield
    except moving:
        pass
    except ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise


def unpack_numbers(form: Struct, stored: bytes | None) -> tuple[float, ...] | None:
    """Unpack *form*; return None if the value is missing or does not fit."""
    if stored is None or len(stored) != form.size:
        return None
    read: tuple[float, ...] = form.unpack(stored)
    return read if all(abs(number) <= _MAX_NUMBER for number in read) else None


class LoginRefusedError(LimiterUnavailableError):
    """A server rejected the user or the password."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers behind a URL: one, or the primaries of a cluster. *clients* are by address."""

    clients: Mapping[str, Any]
    owners: Sequence[tuple[int, int, Any]] = ()
    """First and last hash slot with the client of their primary; empty without a cluster."""

    @property
    def in_cluster(self) -> bool:
        """Whether keys are spread over several servers."""
        return bool(self.owners)

    def client_for(self, key: str) -> Any:
        """Return the client of the server that owns *key*; raise LimiterUnavailableError if none does."""
        if not self.owners:
            return next(iter(self.clients.values()))
        slot = key_slot(key.encode())
        for first, last, client in self.owners:
            if first <= slot <= last:
                return client
        hint = "redis-cli --cluster check tells which, and --cluster fix mends it"
        raise LimiterUnavailableError("the Redis cluster has slots that no server owns", hint=hint)


@asynccontextmanager
async def admin_clients(url: Secret, *, timeout_s: float = TIMEOUT_S) -> AsyncIterator[Servers]:
    """Yield clients for the block.

    Raises:
        InvalidConfigError: *url* is not a Redis URL.
        LimiterUnavailableError: A server does not respond; also from within the block.
    """
    async with AsyncExitStack() as stack:
        try:
            yield await _servers(url, timeout_s, stack)
        except AuthenticationError:
            hint = "check the user and password of REDIS_URL"
            raise LoginRefusedError("Redis refuses this login", hint=hint) from None
        except MOVING:
            hint = "ask again once the cluster has moved them"
            raise LimiterUnavailableError("slots are on their way to another server", hint=hint) from None
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from None


async def _servers(url: Secret, timeout_s: float, stack: AsyncExitStack) -> Servers:
    seed = _client(url, timeout_s, stack)
    if not int((await seed.info("cluster")).get("cluster_enabled", 0)):
        return Servers({"": seed})
    clients: dict[str, Any] = {}
    owners: list[tuple[int, int, Any]] = []
    for part in slot_ranges(await seed.execute_command("CLUSTER", "SLOTS"), url):
        address, primary_url = part.primary
        if address not in clients:
            clients[address] = _client(primary_url, timeout_s, stack)
        owners.append((part.first, part.last, clients[address]))
    if not owners:
        hint = "give it slots: redis-cli --cluster create, or --cluster fix"
        raise LimiterUnavailableError("the Redis cluster has no slots yet", hint=hint)
    return Servers(clients, owners)


def _client(url: Secret, timeout_s: float, stack: AsyncExitStack) -> Any:
    try:
        client = Redis.from_url(
            url.reveal(), socket_timeout=timeout_s, socket_connect_timeout=timeout_s, protocol=2
        )
    except ValueError:  # its text may repeat a part of the URL
        raise InvalidConfigError("REDIS_URL is no URL of a Redis", hint="redis://host:6379/0") from None
    stack.push_async_callback(client.aclose)
    return client


async def pages(client: Any, prefix: str, size: int) -> AsyncIterator[list[bytes]]:
    """Yield the keys of one server that begin with *prefix*, page by page.

    A page holds the matches among about *size* keys, so it may be empty; none repeats within a page. Other
    clients are served between two pages. *prefix* has no character that is special in a pattern.
    """
    cursor = 0
    while True:
        cursor, keys = await client.scan(cursor, match=prefix.encode() + b"*", count=size)
        yield sorted(set(keys))
        if not cursor:
            return


async def unlink(client: Any, keys: Iterable[bytes]) -> int:
    """Delete *keys* of one server and return how many existed."""
    async with client.pipeline(transaction=False) as pipe:
        for key in keys:  # one by one: the keys of a cluster node are in many hash slots
            pipe.unlink(key)
        return sum(await pipe.execute())


def text_of(raw: bytes) -> str:
    """Return *raw* as text, with a replacement character for each byte that is not."""
    return raw.decode("utf-8", "replace")


def parse_holder(holder: str) -> tuple[int, str, str, str, int]:
    """Return the fields of a holder: lease id, process, tenant, job, class; see include/pool.lua.

    A foreign text becomes lease 0 of a process named unreadable.
    """
    try:
        lease_id, process, number, _, _, tenant, job = holder.split("\x1f")
        return int(lease_id, 16), process, tenant, job, int(number)
    except ValueError:
        return 0, UNREADABLE, "", "", 0
