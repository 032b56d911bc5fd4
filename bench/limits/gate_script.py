"""The limit of the server: our script, called by raw connections.

All bytes are packed beforehand and each connection keeps further calls in flight, so the server is the
bottleneck. Responses are only checked. This is no gate: it does not wait, settle or undo.

``options``: ``plan`` and ``keys`` as for ours; ``batch``, operations of one call (a full admission, admit and
finish, is one operation: two items of a call, or two calls where *batch* is 1); ``sample``, how many of the
keys are measured, after all were written once; ``for_s``.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Any
from urllib.parse import urlsplit

import hiredis
from redis import Redis

from bench.gate_sides import must
from bench.our_gate import bucket_plan, full_plan, holder_of
from bench.valkey import rewrite
from fairlead.adapters.redis.codec import Codec, Item, add_arguments, head
from fairlead.adapters.redis.node import NEW_US
from fairlead.adapters.redis.scripts import script
from fairlead.engine.ports import AdmitRequest, Admitted, Release
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.key import Keyspace

CONNECTIONS = 4
IN_FLIGHT = 128
"""Operations of one connection in flight: at least this many, at most twice as many."""
FILL_BATCH = 64
LEASE_S = 30.0  # RedisGate's default
ADMITTED, FINISHED = 0, 1


@dataclass(frozen=True, slots=True)
class _Load:
    """Calls as bytes, and for each call the first byte of each expected response."""

    sent: bytes
    expected: Sequence[bytes]
    operations: int


def flood(url: str, options: Mapping[str, Any]) -> dict[str, float]:
    """Return operations per second, and the server's microseconds in the script for each."""
    client = Redis.from_url(url)
    client.script_load(script("gate").text)
    _greet(client)
    plan, numbers = options["plan"], range(options["keys"])
    measured = random.Random(0).sample(numbers, options["sample"])
    _run(url, _loads(plan, numbers, FILL_BATCH), for_s=None)
    # Much was written just now, and no fork may happen during the measurement.
    asyncio.run(rewrite(url))
    client.config_set("auto-aof-rewrite-percentage", 0)
    _run(url, _loads(plan, measured, FILL_BATCH), for_s=None)  # the first write to a page after the fork
    loads = _loads(plan, measured, options["batch"])
    client.config_resetstat()
    operations, took_s = _run(url, loads, for_s=options["for_s"])
    used = client.info("commandstats")["cmdstat_evalsha"]["usec"]
    client.config_set("auto-aof-rewrite-percentage", 100)
    return {"per_s": operations / took_s, "server_us": used / operations}


def _greet(client: Redis) -> None:
    """Do what `RedisGate` does on a new installation."""
    start = head(hint_us=NEW_US, lease_s=LEASE_S)
    client.evalsha(script("gate").sha, 1, Keyspace().marker, start, Keyspace().prefix)


# ---- the bytes ---------------------------------------------------------------------------------


def _loads(plan: str, numbers: Sequence[int], batch: int) -> list[list[_Load]]:
    """Return the loads of each connection: for its part of the keys, or for all keys if there are few."""
    shares = [numbers[first::CONNECTIONS] or numbers for first in range(CONNECTIONS)]
    return [list(_share(plan, share, batch, lease_id)) for lease_id, share in enumerate(shares, start=1)]


def _share(plan: str, numbers: Sequence[int], batch: int, lease_id: int) -> Iterator[_Load]:
    codec = Codec(Keyspace())
    size = max(IN_FLIGHT, batch)
    rounded = -(-len(numbers) // size) * size  # so that the last load is not smaller
    following = cycle(numbers)
    for _ in range(0, rounded, size):
        operations = [_items(codec, plan, next(following), lease_id) for _ in range(size)]
        if batch == 1:
            calls = [[item] for operation in operations for item in operation]
        else:
            calls = [list(chain(*operations[at : at + batch])) for at in range(0, size, batch)]
        expected = [bytes(FINISHED if item.body[0] == 2 else ADMITTED for item in call) for call in calls]
        yield _Load(b"".join(map(_call, calls)), expected, size)


def _items(codec: Codec, plan: str, number: int, lease_id: int) -> list[Item]:
    if plan == "bucket":
        return [codec.admit(AdmitRequest(bucket_plan(number)))]
    full = full_plan(number)
    holder = holder_of(full, lease_id)
    admitted = Admitted(full, holder, 0, 0, (0, 0), (1.0, 1.0))
    return [
        codec.admit(AdmitRequest(full, holder=holder)),
        codec.release(Release(admitted, DestinationHealth.HEALTHY)),
    ]


def _call(items: Sequence[Item]) -> bytes:
    keys, args = [Keyspace().marker.encode()], [head(lease_s=LEASE_S), Keyspace().prefix.encode()]
    add_arguments(items, keys, args)
    packed: bytes = hiredis.pack_command(("EVALSHA", script("gate").sha, len(keys), *keys, *args))
    return packed


# ---- the connections ---------------------------------------------------------------------------


def _run(url: str, loads: Sequence[Sequence[_Load]], for_s: float | None) -> tuple[int, float]:
    """Send the loads of all connections at once, for *for_s* seconds or each once. Return operations and seconds."""
    start_mono = time.perf_counter()
    stop_at = None if for_s is None else start_mono + for_s
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        done = list(pool.map(lambda share: _pump(url, share, stop_at), loads))
    return sum(done), time.perf_counter() - start_mono


def _pump(url: str, loads: Sequence[_Load], stop_at: float | None) -> int:
    """Send the loads of one connection, and check the responses to one while the next is sent."""
    done = 0
    with _connected(url) as wire:
        reader = hiredis.Reader()
        previous: _Load | None = None
        for load in loads if stop_at is None else cycle(loads):
            wire.sendall(load.sent)
            if previous is not None:
                done += _answered(wire, reader, previous)
            previous = load
            if stop_at is not None and time.perf_counter() >= stop_at:
                break
        return done + (_answered(wire, reader, previous) if previous else 0)


def _answered(wire: socket.socket, reader: hiredis.Reader, load: _Load) -> int:
    for expected in load.expected:
        while (answers := reader.gets()) is False:
            reader.feed(wire.recv(1 << 16))
        if isinstance(answers, Exception):
            raise answers
        must(bytes(answer[0] for answer in answers[1:]) == expected, "the script")
    return load.operations


def _connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        wire = socket.socket(socket.AF_UNIX)
        wire.connect(parts.path)
        return wire
    return socket.create_connection((parts.hostname or "localhost", parts.port or 6379))
