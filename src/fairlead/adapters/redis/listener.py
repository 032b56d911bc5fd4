"""Receives messages about slots granted to this process.

They are hints: a process that misses one finds its slot with its next request.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count

from redis.asyncio.connection import Connection
from redis.exceptions import RedisError, ResponseError

from fairlead._core.clock import Clock
from fairlead._core.secret import Secret
from fairlead.adapters.redis.connection import RESPONSE_TIMEOUT_S, connection_to, opened
from fairlead.adapters.redis.hash_slots import slot_ranges
from fairlead.engine.ports import Wake
from fairlead.errors import LimiterUnavailableError

RETRY_S = 0.5
"""The wait between two attempts to connect. Meanwhile waiting calls poll."""
PING_AFTER_S = 5.0
"""A connection that is silent for this long gets a PING: a firewall may have dropped it."""
_MAX_ID_LENGTH = 16


def wake(wake_lease: Wake, message: bytes) -> None:
    """Wake the call whose lease id *message* is, in hexadecimal; ignore any other message."""
    with suppress(ValueError):
        if len(message) <= _MAX_ID_LENGTH:
            wake_lease(int(message, 16))


class GrantListener:
    """A subscription to one channel that reconnects whenever its connection is lost.

    Every cluster node receives what is published on any other, so the next one is tried if one is
    unavailable.
    """

    def __init__(self, url: Secret, channel: str, wake: Wake, clock: Clock) -> None:
        self._url = url
        self._urls = [url]
        self._channel = channel
        self._wake = wake
        self._clock = clock

    async def run(self) -> None:
        """Receive messages until cancelled."""
        for attempt in count():
            with suppress(RedisError, OSError, TimeoutError, LimiterUnavailableError):  # the gate reports it
                connection = connection_to(self._urls[attempt % len(self._urls)])
                try:
                    await self._receive(connection)
                finally:
                    await connection.disconnect(nowait=True)
            await self._clock.sleep(RETRY_S)

    async def _receive(self, connection: Connection) -> None:
        await opened(connection)
        with suppress(ResponseError):  # not a cluster, or the command is not permitted
            await connection.send_command("CLUSTER", "SLOTS", check_health=False)
            ranges = slot_ranges(await connection.read_response(timeout=RESPONSE_TIMEOUT_S) or (), self._url)
            others = {address: url for part in ranges for address, url in part.servers.items()}
            self._urls = [self._url, *others.values()]
        await connection.send_command("SUBSCRIBE", self._channel, check_health=False)
        has_pinged = False
        while True:
            message = await connection.read_response(
                timeout=RESPONSE_TIMEOUT_S if has_pinged else PING_AFTER_S
            )
            if message is None and has_pinged:
                raise TimeoutError(f"no response within {RESPONSE_TIMEOUT_S:g} s")
            has_pinged = message is None
            if has_pinged:
                await connection.send_command("PING", check_health=False)
            elif message[0] == b"message":
                wake(self._wake, message[2])
