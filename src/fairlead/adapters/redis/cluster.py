"""A cluster: which server has which domain, and what to do where that has just changed.

All keys of a domain bear its hash tag, so they lie together; so does a marker of its own, which vouches for
them alone. A domain that this process has not met yet takes the birth of its server for its own.
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
from fairlead.adapters.redis.node import Call, Node
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.key import KeyKind, Keyspace

SLOTS = 16_384
TRIES = 5
AGAIN_S = 0.05
"""Between two tries while a slot moves from one server to another."""
_MOST_KNOWN = 100_000

MakeNode = Callable[[Secret, bytes], Node]
"""A server by its URL, with the marker that tells of it."""


def slot_of(key: bytes) -> int:
    """The slot of a key with a hash tag (cluster specification: CRC16/XMODEM of the tag, modulo 16,384).

    >>> slot_of(b"fairlead1:{123456789}:c") == 0x31C3
    True
    """
    return crc_hqx(key[key.index(b"{") + 1 : key.index(b"}")], 0) % SLOTS


class Cluster:
    """*seed* was greeted and is one of its servers; the others are met when they are needed."""

    def __init__(self, seed: Node, url: Secret, make: MakeNode, keys: Keyspace, clock: Clock) -> None:
        self._seed = seed
        self._url = url
        self._make = make
        self._prefix = keys.prefix.encode()
        self._clock = clock
        self._nodes: dict[str, Node] = {}
        self._owners: list[Node | None] = [None] * SLOTS
        self._known: set[bytes] = set()

    async def learn(self) -> None:
        """Ask any server that answers which slots belong to whom. LimiterUnavailableError where none does."""
        error: LimiterUnavailableError | None = None
        for node in (*self._nodes.values(), self._seed):
            try:
                told = await node.ask("CLUSTER", "SLOTS")
            except LimiterUnavailableError as unanswered:
                error = unanswered
            else:
                await self._take(told)
                return
        assert error is not None
        raise error

    async def judge(self, items: Sequence[Item]) -> list[bytes | Exception]:
        """The answer to each item, or why there is none."""
        told: list[bytes | Exception] = [b""] * len(items)
        left = _domains(items)
        asked: dict[bytes, Node] = {}
        for attempt in range(TRIES):
            await self._pass(items, left, asked, told)
            left = {cell: group for cell, group in left.items() if isinstance(told[group[0]], REDIRECTIONS)}
            if not left:
                break
            asked = {
                cell: self._asked(error)
                for cell, group in left.items()
                if isinstance(error := told[group[0]], AskError)
            }
            if len(asked) < len(left):
                await self._clock.sleep(AGAIN_S * attempt)
                await self.learn()
        return [unavailable(each) if isinstance(each, REDIRECTIONS) else each for each in told]

    async def ping(self) -> None:
        """Return once each server that has slots may be written to."""
        await self.learn()
        if None in self._owners:
            hint = "redis-cli --cluster check tells which, and --cluster fix mends it"
            raise LimiterUnavailableError("the Redis cluster has slots that no server owns", hint=hint)
        told = await asyncio.gather(*(node.ping() for node in self._nodes.values()), return_exceptions=True)
        for each in told:
            if isinstance(each, BaseException):
                raise each

    async def close(self) -> None:
        """Let go of all connections."""
        for node in self._nodes.values():
            await node.close()

    # ---- one pass ------------------------------------------------------------------------------

    async def _pass(
        self,
        items: Sequence[Item],
        domains: Mapping[bytes, Sequence[int]],
        asked: Mapping[bytes, Node],
        told: list[bytes | Exception],
    ) -> None:
        """Ask for *domains* (places of items by cell), each where it belongs, or where its slot is going."""
        of_node: dict[tuple[Node, bool], list[bytes]] = {}
        for cell, group in domains.items():
            node = asked.get(cell) or self._owners[slot_of(cell)]
            if node is None:
                self._note(told, group, ClusterDownError("a slot has no server"))
            else:
                of_node.setdefault((node, cell in asked), []).append(cell)

        async def ask(node: Node, asking: bool, cells: Sequence[bytes]) -> None:
            try:
                await node.ready()
                calls = [self._call(node, cell, [items[place] for place in domains[cell]]) for cell in cells]
                answers = await node.judge(calls, asking=asking)
            except LimiterUnavailableError as error:
                answers = [error] * len(cells)
            for cell, answer in zip(cells, answers, strict=True):
                self._note(told, domains[cell], answer)
                if not isinstance(answer, Exception):
                    self._met(cell)

        await asyncio.gather(*(ask(node, asking, cells) for (node, asking), cells in of_node.items()))

    @staticmethod
    def _note(
        told: list[bytes | Exception], places: Sequence[int], answer: Sequence[bytes] | Exception
    ) -> None:
        for number, place in enumerate(places):
            told[place] = answer if isinstance(answer, Exception) else answer[number]

    def _call(self, node: Node, cell: bytes, items: Sequence[Item]) -> Call:
        marker = cell[: -len(KeyKind.CELL)] + KeyKind.MARKER.encode()
        # Where the marker of a domain is missing that we have met, it was lost.
        return Call(marker, 0 if cell in self._known else node.birth_us, items)

    def _met(self, cell: bytes) -> None:
        """Only with the answer: a call that was sent after another one may arrive before it."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add(cell)

    # ---- who has what --------------------------------------------------------------------------

    def _asked(self, error: AskError) -> Node:
        """Where a slot is going to; its server has no slot of its own as long as this is its first."""
        address = f"{error.host}:{error.port}"
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = self._make(
                member_url(self._url, error.host, error.port), self._marker((error.slot_id, error.slot_id))
            )
        return node

    async def _take(self, told: Any) -> None:
        """What CLUSTER SLOTS said."""
        parts = slot_ranges(told, self._url)
        owners: list[Node | None] = [None] * SLOTS
        nodes: dict[str, Node] = {}
        for part in parts:
            first, last, (address, url) = part.first, part.last, part.primary
            node = nodes.get(address) or self._nodes.get(address)
            if node is None:
                node = self._make(url, self._marker((first, last)))
            nodes[address] = node
            owners[first : last + 1] = [node] * (last + 1 - first)
        gone = [node for address, node in self._nodes.items() if address not in nodes]
        self._nodes, self._owners = nodes, owners
        for node in nodes.values():
            node.peers = self._nodes.values
        for part in parts:
            node = owners[part.first]
            if node is not None and owners[slot_of(node.marker)] is not node:
                node.vouch(self._marker((part.first, part.last)))
        for node in gone:
            await node.close()

    def _marker(self, slots: tuple[int, int]) -> bytes:
        """A marker whose slot is one of those from the first to the last."""
        first, last = slots
        for number in count():
            key = b"%s{%d}:%s" % (self._prefix, number, KeyKind.MARKER.encode())
            if first <= slot_of(key) <= last:
                return key
        raise AssertionError


def _domains(items: Sequence[Item]) -> dict[bytes, list[int]]:
    """The places of *items* by the cell that they are about."""
    found: dict[bytes, list[int]] = {}
    for place, item in enumerate(items):
        found.setdefault(item.keys[0], []).append(place)
    return found
