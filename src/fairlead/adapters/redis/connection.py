"""One connection to one server, used by one batch at a time.

It greets each new connection before the first batch: who the server is (a fail-over or a restart without
its data shows in the run id) and whether it may be used at all. A batch is never cut short by a deadline of
its callers: a connection that is dropped for each slow answer would never get one (reliability.md, F4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from hiredis import pack_command
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from fairlead._core.secret import Secret
from fairlead.adapters.redis.scripts import Script
from fairlead.errors import InvalidConfigError, LimiterUnavailableError
from fairlead.policy.text.safe import clipped

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
"""A connection that says nothing for so long is given up; its callers were long served otherwise."""
_MAX_TOLD = 200
_IN_SCRIPT_READONLY, _IN_SCRIPT_OOM = ": -READONLY ", ": -OOM "
"""How Redis 6.2 tells of what a script met: as an error of the script, with the other behind it."""
REDIRECTIONS = (MovedError, AskError, TryAgainError, ClusterDownError)
"""What a server of a cluster answers where a key is not its own, or not yet, or not any more."""

Greet = Callable[["RedisConnection"], Awaitable[None]]
"""Asked once per new connection, before anything else goes over it."""


async def _nothing(link: RedisConnection) -> None:
    return None


class RedisConnection:
    """Not for two tasks at once. *greet* may raise LimiterUnavailableError: then the connection is not used."""

    def __init__(self, url: Secret, greet: Greet = _nothing) -> None:
        self._connection = connection_to(url)
        self._greet = greet
        self._greeted = self._greeting = False

    async def run(
        self,
        script: Script,
        calls: Sequence[tuple[Sequence[bytes], Sequence[bytes]]],
        *,
        asking: bool = False,
    ) -> list[Any]:
        """What *script* answers to each of *calls* (its keys, its arguments), or the error that it got.

        It is loaded where the server does not know it (E22): nothing was run then. *asking*: the keys are on
        their way to this server of a cluster. LimiterUnavailableError where the connection is lost; each may have
        been run all the same.
        """
        commands = [("EVALSHA", script.sha, len(keys), *keys, *args) for keys, args in calls]
        told = await self._run(commands, asking)
        unknown = [place for place, answer in enumerate(told) if isinstance(answer, NoScriptError)]
        if unknown:
            await self.call("SCRIPT", "LOAD", script.text)
            again = await self._run([commands[place] for place in unknown], asking)
            for place, answer in zip(unknown, again, strict=True):
                told[place] = answer
        return told

    async def _run(self, commands: Sequence[tuple[Any, ...]], asking: bool) -> list[Any]:
        if not asking:
            return await self._each(commands)
        return (await self._each([each for command in commands for each in (("ASKING",), command)]))[1::2]

    async def call(self, *command: Any) -> Any:
        """The answer to one command. LimiterUnavailableError where there is none; it may have been done even so."""
        (answer,) = await self._each([command])
        if isinstance(answer, Exception):
            raise answer if isinstance(answer, LimiterUnavailableError) else unavailable(answer)
        return answer

    async def _each(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        try:
            await self.ready()
            connection = self._connection
            await connection.send_packed_command(
                [pack_command(each) for each in commands], check_health=False
            )
            answers = [await self._answer() for _ in commands]
        except (RedisError, OSError, TimeoutError) as error:
            await self.drop()
            raise _refused(error) or unavailable(error) from None
        except BaseException:  # cancelled with an answer on its way: it must not meet the next question
            await self.drop()
            raise
        if any(isinstance(answer, _Elsewhere) for answer in answers):
            await self.drop()  # behind the address there may be another server by now
        return answers

    async def _answer(self) -> Any:
        """The next answer, or the error that the server gave in its place."""
        try:
            answer = await self._connection.read_response(timeout=ANSWER_TIMEOUT_S)
        except (NoScriptError, *REDIRECTIONS) as error:
            return error  # nothing was run
        except (ReadOnlyError, BusyLoadingError) as error:
            return _Elsewhere(f"Redis is not available: {_told(error)}")
        except ResponseError as error:
            if _IN_SCRIPT_READONLY in str(error):
                return _Elsewhere(f"Redis is not available: {_told(error)}")
            return _refused(error) or unavailable(error)
        if answer is None:  # how a read says that its time is over; nothing asked here answers nil
            raise TimeoutError(f"no answer within {ANSWER_TIMEOUT_S:g} s")
        return answer

    async def ready(self) -> None:
        """Return once it is open and greeted. LimiterUnavailableError where it cannot be."""
        if self.is_ready or self._greeting:  # what greets comes back here
            return
        await self.drop()
        try:
            await opened(self._connection)
        except (RedisError, OSError, TimeoutError) as error:
            await self.drop()
            raise _refused(error) or unavailable(error) from None
        self._greeting = True
        try:
            await self._greet(self)
            self._greeted = True
        except BaseException:
            await self.drop()
            raise
        finally:
            self._greeting = False

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


class _Elsewhere(LimiterUnavailableError):
    """This server takes no writes: another one may have its place."""


def unavailable(error: BaseException) -> LimiterUnavailableError:
    """*error* as one of ours, its text bounded."""
    return LimiterUnavailableError(f"Redis is not available: {_told(error)}")


def _refused(error: Exception) -> LimiterUnavailableError | None:
    """What somebody can do something about."""
    if isinstance(error, AuthenticationError):
        return LimiterUnavailableError(
            "Redis refuses this login", hint="check the user and password of REDIS_URL"
        )
    if isinstance(error, OutOfMemoryError) or _IN_SCRIPT_OOM in str(error):
        hint = "raise maxmemory, or take other data to another server"
        return LimiterUnavailableError(f"Redis has no memory left: {_told(error)}", hint=hint)
    return None


def _told(error: BaseException) -> str:
    return clipped(f"{type(error).__name__}: {error}", _MAX_TOLD)


def connection_to(url: Secret) -> Connection:
    """Make a connection that is not open yet.

    Raises:
        InvalidConfigError: *url* is not a Redis URL.
        LimiterUnavailableError: No file descriptor is left.
    """
    try:
        given = parse_url(url.reveal())
    except ValueError:  # its text may repeat a part of the URL
        raise InvalidConfigError("REDIS_URL is no URL of a Redis", hint="redis://host:6379/0") from None
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
    try:
        connection: Connection = kind(**{**given, **options})
    except OSError as error:  # the driver reads its own version from a file each time
        raise unavailable(error) from None
    return connection


async def opened(connection: Connection) -> None:
    """Open *connection*; raise TimeoutError if the server accepts it and does not respond."""
    async with asyncio.timeout(CONNECT_TIMEOUT_S + ANSWER_TIMEOUT_S):
        await connection.connect()  # type: ignore[no-untyped-call]


def member_url(url: Secret, host: str, port: int) -> Secret:
    """The URL of another server of the same cluster; without a *host* it is where *url* leads."""
    given = urlsplit(url.reveal())
    login, at, _ = given.netloc.rpartition("@")
    name = host or given.hostname or ""
    place = f"[{name}]" if ":" in name else name
    return Secret(given._replace(netloc=f"{login}{at}{place}:{port}").geturl())
