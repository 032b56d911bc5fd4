"""The gate without one of its safeguards: what an ablation runs, in the child that is told to.

no_marker_rule   what is missing in the store is full: buckets, and all slots at once
no_run_id        a server with another run id is taken for the same one
clock_unwatched  the server's clock may jump, and nobody minds
no_reaping       a lease never ends by itself
fast_path_uncounted  the fast path takes no notice of how many slots are taken
no_renewals      slots under running calls are not renewed, and who holds one does not stop when it ends
no_debts         what was spent without the store is not told to it
no_share_on_return  who is back first takes what slots and units there seem to be
no_undo          what nobody waits for any more is not given back
careless_link    a cancelled ask leaves its answer to the next one
wakes_all        each slot that comes free wakes all who wait
any_policy       a server that may drop keys is used all the same
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

from redis.asyncio.connection import Connection

from fairlead.adapters.redis import node as node_module
from fairlead.adapters.redis.connection import RedisConnection
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.adapters.redis.scripts import Script, assemble
from fairlead.engine.limits.degraded_gate import DegradedGate
from fairlead.engine.limits.lease_renewer import LeaseRenewer
from fairlead.engine.limits.recovery import RecoveryPeriod
from fairlead.engine.ports import AdmitRequest, AdmitResult, Release, Released

Change = tuple[str, str, str]
"""The file, what stands in it, and what is put in its place."""

SCRIPTS: dict[str, tuple[Change, ...]] = {
    "no_marker_rule": (
        ("clock", "set_birth(hint_us > 0 and hint_us or now)", "set_birth(1)"),
        ("clock", "            set_birth(now)\n", ""),
    ),
    "no_run_id": (("clock", "            set_birth(now)\n", ""),),
    "clock_unwatched": (
        ("clock", "local clock_differs = expected_us > 0 and", "local clock_differs = false and"),
    ),
    "no_reaping": (("pool", "elseif pool.first_end <= now then", "elseif false then"),),
    "fast_path_uncounted": (("fast_path", "local used = call('ZCARD', leases_key)", "local used = 0"),),
    "wakes_all": (
        (
            "wait_queue",
            "        local caller_granted = false\n",
            "        local caller_granted = false\n"
            "    for _, one in ipairs(redis.call('ZRANGE', pool.alive, 0, -1)) do\n"
            "        redis.call('PUBLISH', PREFIX .. 'g:' .. field(one, 2), field(one, 1))\n"
            "    end\n",
        ),
    ),
}


def prepare(unsafe: Sequence[str]) -> None:
    """Take out of this process what *unsafe* names."""
    changes = [change for name in unsafe for change in SCRIPTS.get(name, ())]
    if changes:
        script = altered("gate", changes)
        node_module.script = lambda _name: script  # type: ignore[attr-defined]
    for name in unsafe:
        if name not in SCRIPTS:
            _CODE[name]()


def altered(name: str, changes: Sequence[Change]) -> Script:
    """A script with *changes*; each must find its place, where the script has that file."""
    folder = resources.files("fairlead.adapters.redis").joinpath("lua")

    def change(file: str, text: str) -> str:
        for where, old, new in changes:
            if where == file:
                assert old in text, f"{file}: {old!r} is not there"
                text = text.replace(old, new)
        return text

    def included(part: str) -> str:
        return change(part, folder.joinpath("include", f"{part}.lua").read_text(encoding="utf-8"))

    return assemble(name, change(name, folder.joinpath(f"{name}.lua").read_text(encoding="utf-8")), included)


def _no_renewals() -> None:
    async def beat(_renewer: LeaseRenewer) -> None:
        return None

    LeaseRenewer.beat = beat  # type: ignore[method-assign]
    LeaseRenewer._stop_due = lambda _renewer: None  # type: ignore[method-assign]


def _no_debts() -> None:
    DegradedGate.debts = lambda _degraded: iter(())  # type: ignore[method-assign]


def _no_share_on_return() -> None:
    async def nothing(_degraded: DegradedGate, _ask: AdmitRequest) -> None:
        return None

    RecoveryPeriod._beyond_share = lambda _period, _request, _left_s: None  # type: ignore[method-assign]
    DegradedGate.spend = nothing  # type: ignore[method-assign]


def leaves_it(_gate: RedisGate, _item: object, _reply: bytes) -> None:
    """In place of undoing what nobody waits for any more."""


def _no_undo() -> None:
    RedisGate._unclaimed = leaves_it  # type: ignore[method-assign]


def careless_link(put: Callable[[Any, str, Any], None]) -> None:
    """Asks go over one connection themselves; who is cancelled leaves it open, with his answer on its way."""
    turn = asyncio.Lock()

    async def ask(gate: RedisGate, item: Any) -> Any:
        async with turn:
            (reply,) = await gate._send([item])
        return reply

    async def admit(gate: RedisGate, request: AdmitRequest) -> AdmitResult:
        answer: AdmitResult = await ask(gate, request)
        return answer

    async def release(gate: RedisGate, ended: Release) -> Released:
        finished: Released = await ask(gate, ended)
        return finished

    async def stays_open(_connection: object, **_how: object) -> None:
        return None

    put(RedisGate, "admit", admit)
    put(RedisGate, "release", release)
    put(RedisConnection, "disconnect", stays_open)
    put(Connection, "disconnect", stays_open)


def _any_policy() -> None:
    original_info = node_module._info

    def info(text: Any) -> dict[str, str]:
        return original_info(text) | {"maxmemory_policy": "noeviction"}

    node_module._info = info


_CODE: dict[str, Callable[[], None]] = {
    "no_renewals": _no_renewals,
    "no_debts": _no_debts,
    "no_share_on_return": _no_share_on_return,
    "no_undo": _no_undo,
    "any_policy": _any_policy,
}
