"""One connection to one server, used by one batch at a time.

Each new connection is greeted before its first batch: the greeting shows whether the server is another one (a
failover, or a restart without its data) and whether the gate may use it. Deadlines of callers never cut a
batch short: a connection that is closed for each slow response would never receive one (reliability.md, F4).
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
RESPONSE_TIMEOUT_S = 5.0
"""A connection that is silent for this long is closed. Its callers were served by other means by then."""
_MAX_ERROR_CHARS = 200
_IN_SCRIPT_READONLY, _IN_SCRIPT_OOM = ": -READONLY ", ": -OOM "
"""Redis 6.2 reports an error of a command inside a script as an error of the script that contains it."""
REDIRECTIONS = (MovedError, AskError, TryAgainError, ClusterDownError)
"""The errors of a cluster node for a key that it does not own, does not own yet, or owns no more."""

Greet = Callable[["RedisConnection"], Awaitable[None]]
"""Called once per new connection, before anything else is sent."""


async def _no_greeting(connection: RedisConnection) -> None:
    return None


class RedisConnection:
    """A connection that reconnects on demand, for one task at a time.

    If *greet* raises LimiterUnavailableError, the connection is not used.
    """

    def __init__(self, url: Secret, greet: Greet = _no_greeting) -> None:
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
        """Run *script* for each of *calls* (keys, arguments); return the responses, errors in their places.

        A server that lacks the script is given it, and the calls are repeated: none of them was run.

        Args:
            asking: The keys are moving to this cluster node.

        Raises:
            LimiterUnavailableError: The connection was lost. Each call may have been run.
        """
        commands = [("EVALSHA", script.sha, len(keys), *keys, *args) for keys, args in calls]
        responses = await self._run_commands(commands, asking)
        unloaded = [index for index, response in enumerate(responses) if isinstance(response, NoScriptError)]
        if unloaded:
            await self.call("SCRIPT", "LOAD", script.text)
            again = await self._run_commands([commands[index] for index in unloaded], asking)
            for index, response in zip(unloaded, again, strict=True):
                responses[index] = response
        return responses

    async def _run_commands(self, commands: Sequence[tuple[Any, ...]], asking: bool) -> list[Any]:
        if not asking:
            return await self._exchange(commands)
        return (await self._exchange([part for command in commands for part in (("ASKING",), command)]))[1::2]

    async def call(self, *command: Any) -> Any:
        """Return the response to one command.

        Raises:
            LimiterUnavailableError: There is none, or it is an error. The command may have been executed.
        """
        (response,) = await self._exchange([command])
        if isinstance(response, Exception):
            raise response if isinstance(response, LimiterUnavailableError) else unavailable(response)
        return response

    async def _exchange(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        try:
            await self.ready()
            connection = self._connection
            await connection.send_packed_command(
                [pack_command(command) for command in commands], check_health=False
            )
            responses = [await self._read_response() for _ in commands]
        except (RedisError, OSError, TimeoutError) as error:
            await self.disconnect()
            raise _actionable(error) or unavailable(error) from None
        except BaseException:  # cancelled with a response on its way, which must not be read as the next one
            await self.disconnect()
            raise
        if any(isinstance(response, _ServerMovedError) for response in responses):
            await self.disconnect()  # the address may lead to another server by now
        return responses

    async def _read_response(self) -> Any:
        """Return the next response, or the error that the server sent instead."""
        try:
            response = await self._connection.read_response(timeout=RESPONSE_TIMEOUT_S)
        except (NoScriptError, *REDIRECTIONS) as error:
            return error  # nothing was run
        except (ReadOnlyError, BusyLoadingError) as error:
            return _ServerMovedError(f"Redis is not available: {_error_text(error)}")
        except ResponseError as error:
            if _IN_SCRIPT_READONLY in str(error):
                return _ServerMovedError(f"Redis is not available: {_error_text(error)}")
            return _actionable(error) or unavailable(error)
        if response is None:  # the read timed out; no command sent here returns nil
            raise TimeoutError(f"no answer within {RESPONSE_TIMEOUT_S:g} s")
        return response

    async def ready(self) -> None:
        """Wait until it is open and greeted; raise LimiterUnavailableError if it cannot be."""
        if self.is_ready or self._greeting:  # the greeting itself sends commands
            return
        await self.disconnect()
        try:
            await opened(self._connection)
        except (RedisError, OSError, TimeoutError) as error:
            await self.disconnect()
            raise _actionable(error) or unavailable(error) from None
        self._greeting = True
        try:
            await self._greet(self)
            self._greeted = True
        except BaseException:
            await self.disconnect()
            raise
        finally:
            self._greeting = False

    @property
    def is_ready(self) -> bool:
        """Whether it is open and greeted, as far as is known without a request."""
        return self._greeted and self._connection.is_connected

    def require_reconnect(self) -> None:
        """Make the next call reconnect. Call it only while no call is in flight."""
        self._greeted = False

    async def disconnect(self) -> None:
        """Close the connection; the next call opens another."""
        self._greeted = False
        await self._connection.disconnect(nowait=True)


class _ServerMovedError(LimiterUnavailableError):
    """The server rejects writes: the address may belong to another server now."""


def unavailable(error: BaseException) -> LimiterUnavailableError:
    """Return *error* as a LimiterUnavailableError with bounded text."""
    return LimiterUnavailableError(f"Redis is not available: {_error_text(error)}")


def _actionable(error: Exception) -> LimiterUnavailableError | None:
    """Return the error to raise if the operator can fix the cause of *error*, else None."""
    if isinstance(error, AuthenticationError):
        return LimiterUnavailableError(
            "Redis refuses this login", hint="check the user and password of REDIS_URL"
        )
    if isinstance(error, OutOfMemoryError) or _IN_SCRIPT_OOM in str(error):
        hint = "raise maxmemory, or take other data to another server"
        return LimiterUnavailableError(f"Redis has no memory left: {_error_text(error)}", hint=hint)
    return None


def _error_text(error: BaseException) -> str:
    return clipped(f"{type(error).__name__}: {error}", _MAX_ERROR_CHARS)


def connection_to(url: Secret) -> Connection:
    """Make a connection that is not open yet.

    Raises:
        InvalidConfigError: *url* is not a Redis URL.
        LimiterUnavailableError: No file descriptor is left.
    """
    try:
        options = parse_url(url.reveal())
    except ValueError:  # its text may repeat a part of the URL
        raise InvalidConfigError("REDIS_URL is no URL of a Redis", hint="redis://host:6379/0") from None
    kinds = {"rediss": SSLConnection, "unix": UnixDomainSocketConnection}
    kind = kinds.get(urlsplit(url.reveal()).scheme, Connection)
    options.pop("connection_class", None)
    ours = {
        "protocol": 2,  # plain arrays, the same from every server
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": None,  # each read has its own
    }
    try:
        connection: Connection = kind(**{**options, **ours})
    except OSError as error:  # the driver reads its version from a file for each connection
        raise unavailable(error) from None
    return connection


async def opened(connection: Connection) -> None:
    """Open *connection*; raise TimeoutError if the server accepts it and does not respond."""
    async with asyncio.timeout(CONNECT_TIMEOUT_S + RESPONSE_TIMEOUT_S):
        await connection.connect()  # type: ignore[no-untyped-call]


def member_url(url: Secret, host: str, port: int) -> Secret:
    """Return the URL of another server of the same cluster; an empty *host* means the host of *url*."""
    parts = urlsplit(url.reveal())
    login, at, _ = parts.netloc.rpartition("@")
    name = host or parts.hostname or ""
    address = f"[{name}]" if ":" in name else name
    return Secret(parts._replace(netloc=f"{login}{at}{address}:{port}").geturl())
