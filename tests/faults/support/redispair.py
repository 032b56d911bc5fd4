"""Two Valkeys, one following the other, behind one address that leads to whoever leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from tests.faults.support.faultproxy import FaultProxy
from tests.faults.support.valkey import OwnValkey, own_valkey


class Pair:
    """Made by `pair`."""

    def __init__(self, leader: OwnValkey, follower: OwnValkey) -> None:
        self.leader, self.follower = leader, follower
        self.proxy = FaultProxy(self._connect, sql=False)
        self.url = ""

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.leader.port)

    async def fail_over(self, down_s: float, *, behind: bool) -> None:
        """The leader dies; after *down_s* the other leads. *behind*: without the leader's last words."""
        if behind:
            await self.follower.tell("REPLICAOF", "127.0.0.1", 1)  # it hears nothing more from now on
            await asyncio.sleep(0.05)
        self.proxy.away()
        self.leader.kill()
        await asyncio.sleep(down_s)
        await self.follower.tell("REPLICAOF", "NO", "ONE")
        self.leader, self.follower = self.follower, self.leader
        self.proxy.heal()

    async def pair_again(self) -> None:
        """The dead one comes back, empty, and follows."""
        self.follower.start()
        await self.follower.follows(self.leader)


@asynccontextmanager
async def pair(program: Path | None = None) -> AsyncIterator[Pair]:
    """A leader and its follower, in step. *program*: as for `own_valkey`."""
    with ExitStack() as stack:
        pair = Pair(*(stack.enter_context(own_valkey(program=program)) for _ in range(2)))
        await pair.follower.follows(pair.leader)
        server = await asyncio.start_server(pair.proxy.serve, "127.0.0.1", 0)
        pair.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        try:
            yield pair
        finally:
            server.close()
            await pair.proxy.close()
