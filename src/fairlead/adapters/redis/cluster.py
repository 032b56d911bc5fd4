"""A Redis Cluster: finds the server of each limit domain, and retries while a hash slot moves.

All keys of a domain have its hash tag, so they are in one hash slot. So is a marker for that domain alone. A
domain that this process has not used yet takes the birth of its server.
"""

from __future__ import annotations

import asyncio
from binascii import crc_hqx
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from redis.exceptions import AskError, ClusterDownError

from fairlead._core.clock import Clock
from fairlead._core.secret import Secret
from fairlead.adapters.redis.codec import Item
from fairlead.adapters.redis.connection import REDIRECTIONS, member_url, unavailable
from fairlead.adapters.redis.hash_slots import slot_ranges
from fairlead.adapters.redis.node import Node, ScriptRun
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.key import KeyKind, Keyspace

HASH_SLOTS = 16_384
TRIES = 5
RETRY_S = 0.05
"""The wait before the second retry while a hash slot moves; it grows by as much with each."""
_MAX_USED = 100_000

MakeNode = Callable[[Secret, bytes], Node]
"""Makes the node at a URL, with its marker."""


def hash_slot_of(key: bytes) -> int:
    """Return the hash slot of a key with a hash tag: CRC16/XMODEM of the tag, modulo 16,384.

    >>> hash_slot_of(b"fairlead1:{123456789}:c") == 0x31C3
    True
    """
    return crc_hqx(key[key.index(b"{") + 1 : key.index(b"}")], 0) % HASH_SLOTS


class Cluster:
    """The nodes of a cluster. *seed* is a greeted one; others are connected on demand."""

    def __init__(self, seed: Node, url: Secret, make: MakeNode, keys: Keyspace, clock: Clock) -> None:
        self._seed = seed
        self._url = url
        self._make = make
        self._prefix = keys.prefix.encode()
        self._clock = clock
        self._nodes: dict[str, Node] = {}
        self._owners: list[Node | None] = [None] * HASH_SLOTS
        self._used_cells: set[bytes] = set()
        """The keys of the domains in which a batch of this process has run."""

    async def load_slots(self) -> None:
        """Read the owners of all hash slots from the first server that responds.

        Raises:
            LimiterUnavailableError: No server responded.
        """
        error: LimiterUnavailableError | None = None
        for node in (*self._nodes.values(), self._seed):
            try:
                response = await node.call("CLUSTER", "SLOTS")
            except LimiterUnavailableError as unanswered:
                error = unanswered
            else:
                await self._set_owners(response)
                return
        assert error is not None
        raise error

    async def run(self, items: Sequence[Item]) -> list[bytes | Exception]:
        """Return the result of each item, or its error."""
        results: list[bytes | Exception] = [b""] * len(items)
        pending = _by_cell(items)
        targets: dict[bytes, Node] = {}
        for attempt in range(TRIES):
            await self._send(items, pending, targets, results)
            pending = {
                cell: group for cell, group in pending.items() if isinstance(results[group[0]], REDIRECTIONS)
            }
            if not pending:
                break
            targets = {
                cell: self._ask_target(error)
                for cell, group in pending.items()
                if isinstance(error := results[group[0]], AskError)
            }
            if len(targets) < len(pending):
                await self._clock.sleep(RETRY_S * attempt)
                await self.load_slots()
        return [unavailable(result) if isinstance(result, REDIRECTIONS) else result for result in results]

    async def ping(self) -> None:
        """Wait until each server that owns hash slots confirms that it accepts writes."""
        await self.load_slots()
        if None in self._owners:
            hint = "redis-cli --cluster check tells which, and --cluster fix mends it"
            raise LimiterUnavailableError("the Redis cluster has slots that no server owns", hint=hint)
        results = await asyncio.gather(
            *(node.ping() for node in self._nodes.values()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def close(self) -> None:
        """Close all connections."""
        for node in self._nodes.values():
            await node.close()

    # ---- one attempt ---------------------------------------------------------------------------

    async def _send(
        self,
        items: Sequence[Item],
        groups: Mapping[bytes, Sequence[int]],
        targets: Mapping[bytes, Node],
        results: list[bytes | Exception],
    ) -> None:
        """Run the items of *groups* (indices by cell), each at the target of its slot, else at its owner."""
        of_node: dict[tuple[Node, bool], list[bytes]] = {}
        for cell, group in groups.items():
            node = targets.get(cell) or self._owners[hash_slot_of(cell)]
            if node is None:
                self._record(results, group, ClusterDownError("a slot has no server"))
            else:
                of_node.setdefault((node, cell in targets), []).append(cell)

        async def run(node: Node, asking: bool, cells: Sequence[bytes]) -> None:
            try:
                await node.ready()
                runs = [self._script_run(node, cell, [items[i] for i in groups[cell]]) for cell in cells]
                responses = await node.run(runs, asking=asking)
            except LimiterUnavailableError as error:
                responses = [error] * len(cells)
            for cell, response in zip(cells, responses, strict=True):
                self._record(results, groups[cell], response)
                if not isinstance(response, Exception):
                    self._mark_used(cell)

        await asyncio.gather(*(run(node, asking, cells) for (node, asking), cells in of_node.items()))

    @staticmethod
    def _record(
        results: list[bytes | Exception], group: Sequence[int], response: Sequence[bytes] | Exception
    ) -> None:
        for number, index in enumerate(group):
            results[index] = response if isinstance(response, Exception) else response[number]

    def _script_run(self, node: Node, cell: bytes, items: Sequence[Item]) -> ScriptRun:
        marker = cell[: -len(KeyKind.CELL)] + KeyKind.MARKER.encode()
        # A missing marker of a domain that this process has used means that its data was lost.
        return ScriptRun(marker, 0 if cell in self._used_cells else node.birth_us, items)

    def _mark_used(self, cell: bytes) -> None:
        """Record that a batch has run in the domain: from now on its missing marker means that data was lost.

        That is known only once a response has arrived, because requests may overtake each other on the way.
        """
        if len(self._used_cells) >= _MAX_USED:
            self._used_cells.clear()
        self._used_cells.add(cell)

    # ---- hash slots ----------------------------------------------------------------------------

    def _ask_target(self, error: AskError) -> Node:
        """Return the node that a hash slot moves to. It may not own any slot yet."""
        address = f"{error.host}:{error.port}"
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = self._make(
                member_url(self._url, error.host, error.port), self._marker((error.slot_id, error.slot_id))
            )
        return node

    async def _set_owners(self, response: Any) -> None:
        """Apply a CLUSTER SLOTS response: connect new nodes, move markers, close nodes without slots."""
        parts = slot_ranges(response, self._url)
        owners: list[Node | None] = [None] * HASH_SLOTS
        nodes: dict[str, Node] = {}
        for part in parts:
            first, last, (address, url) = part.first, part.last, part.primary
            node = nodes.get(address) or self._nodes.get(address)
            if node is None:
                node = self._make(url, self._marker((first, last)))
            nodes[address] = node
            owners[first : last + 1] = [node] * (last + 1 - first)
        removed = [node for address, node in self._nodes.items() if address not in nodes]
        self._nodes, self._owners = nodes, owners
        for node in nodes.values():
            node.peers = self._nodes.values
        for part in parts:
            node = owners[part.first]
            if node is not None and owners[hash_slot_of(node.marker)] is not node:
                node.use_marker(self._marker((part.first, part.last)))
        for node in removed:
            await node.close()

    def _marker(self, slots: tuple[int, int]) -> bytes:
        """Return a marker key in the hash slots from the first to the last."""
        first, last = slots
        for number in count():
            key = b"%s{%d}:%s" % (self._prefix, number, KeyKind.MARKER.encode())
            if first <= hash_slot_of(key) <= last:
                return key
        raise AssertionError


def _by_cell(items: Sequence[Item]) -> dict[bytes, list[int]]:
    """Return the indices of *items* by the cell that they use."""
    groups: dict[bytes, list[int]] = {}
    for index, item in enumerate(items):
        groups.setdefault(item.keys[0], []).append(index)
    return groups
