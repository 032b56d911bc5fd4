"""Tells a process of slots that were handed to it. Hints only: what is missed is found by asking again."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

from redis.asyncio.connection import Connection
from redis.exceptions import RedisError, ResponseError

from fairlead._core.clock import Clock
from fairlead._core.secret import Secret
from fairlead.adapters.redis.connection import ANSWER_TIMEOUT_S, connection_to, opened
from fairlead.adapters.redis.hash_slots import slot_ranges
from fairlead.engine.ports import Wake
from fairlead.errors import LimiterUnavailableError

AGAIN_S = 0.5
"""Between two tries to reach the server; meanwhile whoever waits asks by itself."""
QUIET_S = 5.0
"""A link that says nothing for so long is asked whether it is alive: a firewall may have forgotten it."""
_LONGEST_ID = 16


def wake(of: Wake, message: bytes) -> None:
    """Wake the holder of the lease that *message* names; ignore foreign messages."""
    with suppress(ValueError):
        if len(message) <= _LONGEST_ID:
            of(int(message, 16))


class Listener:
    """Subscribes to one channel and stays subscribed, over any number of connections.

    Of a cluster any server tells of what is published on any other: where one is away, the next is asked.
    """

    def __init__(self, url: Secret, channel: str, wake: Wake, clock: Clock) -> None:
        self._url = url
        self._places = [url]
        self._channel = channel
        self._wake = wake
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        for turn in count():
            with suppress(RedisError, OSError, TimeoutError, LimiterUnavailableError):  # the gate reports it
                connection = connection_to(self._places[turn % len(self._places)])
                try:
                    await self._hear(connection)
                finally:
                    await connection.disconnect(nowait=True)
            await self._clock.sleep(AGAIN_S)

    async def _hear(self, connection: Connection) -> None:
        await opened(connection)
        with suppress(ResponseError):  # it stands alone, or does not tell us
            await connection.send_command("CLUSTER", "SLOTS", check_health=False)
            found = slot_ranges(await connection.read_response(timeout=ANSWER_TIMEOUT_S) or (), self._url)
            others = {address: place for part in found for address, place in part.servers.items()}
            self._places = [self._url, *others.values()]
        await connection.send_command("SUBSCRIBE", self._channel, check_health=False)
        has_pinged = False
        while True:
            message = await connection.read_response(timeout=ANSWER_TIMEOUT_S if has_pinged else QUIET_S)
            if message is None and has_pinged:
                raise TimeoutError(f"no response within {ANSWER_TIMEOUT_S:g} s")
            has_pinged = message is None
            if has_pinged:
                await connection.send_command("PING", check_health=False)
            elif message[0] == b"message":
                wake(self._wake, message[2])
