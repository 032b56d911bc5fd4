"""One connection to one server, used by one batch at a time.

It greets each new connection before the first batch: who the server is (a fail-over or a restart without
its data shows in the run id) and whether it may be used at all. A batch is never cut short by a deadline of
its callers: a connection that is dropped for each slow answer would never get one (reliability.md, F4).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from hiredis import pack_command
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from fairlead.adapters.redis.scripts import Script
from fairlead.errors import ConfigInvalid, GateUnavailable
from fairlead.policy.safe import clipped
from fairlead.secret import Secret

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
"""A connection that says nothing for so long is given up; its callers were long served otherwise."""
_MAX_TOLD = 200

Greet = Callable[["Link"], Awaitable[None]]
"""Asked once per new connection, before anything else goes over it."""


async def _nothing(link: Link) -> None:
    return None


class Link:
    """Not for two tasks at once. *greet* may raise GateUnavailable: then the connection is not used."""

    def __init__(self, url: Secret, greet: Greet = _nothing) -> None:
        self._connection = connection_to(url)
        self._greet = greet
        self._greeted = False

    async def run(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes]) -> Any:
        """What *script* answers; it is loaded where the server does not know it (E22)."""
        command = ("EVALSHA", script.sha, len(keys), *keys, *args)
        try:
            return await self.call(*command)
        except NoScriptError:  # nothing was run
            await self.call("SCRIPT", "LOAD", script.text)
            return await self.call(*command)

    async def call(self, *command: Any) -> Any:
        """The answer to one command. GateUnavailable where there is none; it may have been done all the same.

        NoScriptError passes: it is no failure.
        """
        try:
            await self._ready()
            connection = self._connection
            await connection.send_packed_command([pack_command(command)], check_health=False)
            answer = await connection.read_response(timeout=ANSWER_TIMEOUT_S)
            if answer is None:  # how a read says that its time is over; nothing asked here answers nil
                raise TimeoutError(f"no answer within {ANSWER_TIMEOUT_S:g} s")
            return answer
        except NoScriptError:
            raise
        except AuthenticationError:
            await self.drop()
            hint = "check the user and password of REDIS_URL"
            raise GateUnavailable("Redis refuses this login", hint=hint) from None
        except (ReadOnlyError, BusyLoadingError) as error:
            await self.drop()  # behind the address there may be another server by now
            raise unavailable(error) from None
        except OutOfMemoryError as error:
            hint = "raise maxmemory, or take other data to another server"
            raise GateUnavailable(f"Redis has no memory left: {_told(error)}", hint=hint) from None
        except RedisError as error:
            if not _answered(error):
                await self.drop()
            raise unavailable(error) from None
        except (OSError, TimeoutError) as error:
            await self.drop()
            raise unavailable(error) from None
        except BaseException:  # cancelled with an answer on its way: it must not meet the next question
            await self.drop()
            raise

    async def _ready(self) -> None:
        if self.is_ready:
            return
        await self.drop()
        await self._connection.connect()  # type: ignore[no-untyped-call]
        self._greeted = True  # what greets comes back here
        try:
            await self._greet(self)
        except BaseException:
            await self.drop()
            raise

    @property
    def is_ready(self) -> bool:
        """Whether it is open, as far as one can tell without asking."""
        return self._greeted and self._connection.is_connected

    def doubt(self) -> None:
        """Have the next call open another connection; to be called while none is under way."""
        self._greeted = False

    async def drop(self) -> None:
        """Close the connection; the next call opens another."""
        self._greeted = False
        await self._connection.disconnect(nowait=True)


def unavailable(error: BaseException) -> GateUnavailable:
    """*error* as one of ours, its text bounded."""
    return GateUnavailable(f"Redis is not available: {_told(error)}")


def _told(error: BaseException) -> str:
    return clipped(f"{type(error).__name__}: {error}", _MAX_TOLD)


def _answered(error: RedisError) -> bool:
    """Whether the server said so itself, so that question and answer still go together."""
    return isinstance(error, ResponseError)


def connection_to(url: Secret) -> Connection:
    """A connection, not opened yet. ConfigInvalid where *url* is none."""
    try:
        given = parse_url(url.reveal())
    except ValueError:  # its text may repeat a part of the URL
        raise ConfigInvalid("REDIS_URL is no URL of a Redis", hint="redis://host:6379/0") from None
    kinds = {"rediss": SSLConnection, "unix": UnixDomainSocketConnection}
    kind = kinds.get(urlsplit(url.reveal()).scheme, Connection)
    given.pop("connection_class", None)
    options = {
        "protocol": 2,  # plain arrays, the same from every server
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": None,  # reads have their own
    }
    made: Connection = kind(**{**given, **options})
    return made
