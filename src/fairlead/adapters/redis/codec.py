"""How asks and answers look on the wire to ``lua/gate.lua``: packed numbers, little-endian doubles.

All numbers are whole micro-units and microseconds below 2^53, so a double holds them exactly. What a plan
says is packed once and travels with each batch (R28). It is the same bytes for all tenants with the same
limits, so a batch says it once; whose limits they are, and of which version, stands in its names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, NamedTuple

from fairlead.engine.ports import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    GateRefusal,
    Lease,
    Queued,
    RefusedBy,
    Release,
    Released,
    Renewal,
    Reserved,
)
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.key import KeyKind, Keyspace, Part, digest
from fairlead.policy.limits.limit import MICRO, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder

_NO_BOOKING = b"0" * 16
_MOST_PLANS = 100_000

_HEAD = Struct("<dddddddd")
_PLAN = Struct("<BB")
_BREAKER = Struct("<dddddd")
_NUMBER = Struct("<d")
_POOL = Struct("<dddddBB")
_BUCKET = Struct("<dd")
_FINISH = Struct("<BBBB")
_OBSERVED = Struct("<BBdddddd")
_RENEW = Struct("<BdB")
_ADMIT_HEAD = "<Bddddd"
_ANSWER = Struct("<BBBBdd")
_DONE = Struct("<Bd")
_STAMP = Struct("<dd")

ADMIT, FINISH, CANCEL, RENEW = 1, 2, 3, 4
CAUSE = "\x1f"
"""Between the name of a breaker and the cause of a failure that it counted; no name holds one."""
_PLAIN_ENDS: dict[DestinationHealth, bytes] = {
    health: _FINISH.pack(FINISH, 0, health, 0)
    for health in DestinationHealth
    if health is not DestinationHealth.UNREACHED
}
"""Ends of calls that are no probe, and tell nothing about buckets, by health."""
_ADMITTED, _BOOKED, _QUEUED = 0, 1, 2
_LEFT, _CAPACITY, _RATE, _REFUSED, _HELD = 1, 2, 4, 8, 16
_KEPT, _CLOSED = 1, 2
_KEEPS_SLOT = 8


class Item(NamedTuple):
    """One item of a batch, ready to be sent."""

    keys: tuple[bytes, ...]
    plan: bytes
    names: bytes
    ask: bytes
    holder: bytes


class Cancel(NamedTuple):
    """Undo *ask*."""

    ask: AdmitRequest


Request = AdmitRequest | Release | Renewal | Cancel
"""What one item of a batch says."""


class _Packed:
    """What is derived of a plan once."""

    __slots__ = (
        "admit",
        "blob",
        "cancel",
        "keys",
        "names",
        "ones",
        "quota",
        "quota_text",
        "sent",
        "spent",
    )

    def __init__(self, plan: Plan, keys: Keyspace) -> None:
        count = len(plan.buckets)
        self.keys = tuple(_keys(plan, keys))
        names, versions = "".join(_names(plan)).encode(), map(_NUMBER.pack, _versions(plan))
        self.names = b"".join((names, *versions, b"."))  # never empty: that stands for those before
        self.blob = _plan(plan)
        self.admit = Struct(f"{_ADMIT_HEAD}{count}d16s")
        self.cancel = Struct(f"<B{count}d16s")
        self.sent = Struct(f"<{count}d")
        self.ones = (MICRO,) * count
        self.spent = (1.0,) * count
        self.quota = plan.quota
        self.quota_text = _quota_text(plan.quota)

    def holder(self, holder: Holder | None) -> bytes:
        """The member of the sorted sets that *holder* is; see include/pool.lua."""
        if holder is None:
            return b""
        quota = self.quota_text if holder.quota is self.quota else _quota_text(holder.quota)
        return (
            f"{holder.lease_id:016x}\x1f{holder.process}\x1f{holder.priority_class}\x1f{quota}\x1f"
            f"{holder.tenant}\x1f{holder.job}"
        ).encode()


class Codec:
    """Packs for one keyspace, and keeps what it derived of a plan: plans are few and live long."""

    def __init__(self, keys: Keyspace) -> None:
        self._keyspace = keys
        self._packed: dict[Plan, _Packed] = {}

    def _of(self, plan: Plan) -> _Packed:
        packed = self._packed.get(plan)
        if packed is None:
            if len(self._packed) >= _MOST_PLANS:
                self._packed.clear()  # plans that nobody uses any more; the others are packed once again
            packed = self._packed[plan] = _Packed(plan, self._keyspace)
        return packed

    def pack(self, request: Request) -> Item:
        """The item that says *request*."""
        if isinstance(request, AdmitRequest):
            return self.admit(request)
        if isinstance(request, Release):
            return self.finish(request)
        if isinstance(request, Cancel):
            return self.cancel(request.ask)
        return self.renew(request)

    def read(self, request: Request, result: Any) -> AdmitResult | Released | Lease | Exception:
        """Return the script's answer to *request*, or an error if it is bad; it affects no other request."""
        try:
            if isinstance(request, AdmitRequest):
                return self.answer(request, result)
            number, opened_us = _DONE.unpack(result)
            if isinstance(request, Renewal):
                return Lease(number)
            opened_s = opened_us / MICRO if opened_us else None
            return Released(number & _KEPT > 0, opened_s, number & _CLOSED > 0)
        except (struct.error, TypeError, ValueError, OverflowError) as error:
            unreadable = LimiterUnavailableError(f"the gate's answer cannot be read: {error}")
            return result if isinstance(result, Exception) else unreadable

    def admit(self, ask: AdmitRequest) -> Item:
        """The item of one admission."""
        packed = self._of(ask.plan)
        costs = [round(cost * MICRO) for cost in ask.costs] if ask.costs else packed.ones
        blob = packed.admit.pack(
            ADMIT,
            ask.existed_s * MICRO,
            ask.waited_s * MICRO // 1,
            ask.wait_s * MICRO // 1,
            ask.reserve_ahead_s * MICRO // 1 if ask.reservation_id else 0,
            ask.call_s * MICRO // 1,
            *costs,
            b"%016x" % ask.reservation_id if ask.reservation_id else _NO_BOOKING,
        )
        return Item(packed.keys, packed.blob, packed.names, blob, packed.holder(ask.holder))

    def answer(self, ask: AdmitRequest, told: bytes) -> AdmitResult:
        """What the script said to *ask*."""
        verdict, by, which, probe, wait_us, fence = _ANSWER.unpack_from(told)
        if verdict == _ADMITTED:
            packed = self._of(ask.plan)
            sent, costs = packed.sent.unpack_from(told, _ANSWER.size), ask.costs or packed.spent
            return Admitted(ask.plan, ask.holder, int(fence), int(wait_us) if probe else 0, sent, costs)
        wait_s = wait_us / MICRO
        if verdict == _BOOKED:
            return Reserved(wait_s)
        if verdict == _QUEUED:
            return Queued(RefusedBy(by), wait_s)
        index = which - 1 if which else None
        return GateRefusal(RefusedBy(by), None if wait_us < 0 else wait_s, index, fence / MICRO)

    def tells(self, finish: Release) -> bool:
        """Whether there is anything to say to the script."""
        plan = finish.admitted.plan
        return plan.breaker is not None or plan.pool is not None or bool(finish.actual or finish.observed)

    def finish(self, finish: Release) -> Item:
        """The item of one end."""
        admitted = finish.admitted
        packed = self._of(admitted.plan)
        holder = packed.holder(admitted.holder)
        is_plain = not (finish.actual or finish.observed or admitted.probe or finish.keeps_slot)
        if is_plain and (plain := _PLAIN_ENDS.get(finish.health)) is not None:
            blob = plain + _destination(finish)
            return Item(packed.keys, packed.blob, packed.names, blob, holder)
        told = sorted({*finish.actual, *finish.observed})
        health = finish.health + _KEEPS_SLOT * finish.keeps_slot
        blob = _FINISH.pack(FINISH, admitted.probe > 0, health, len(told))
        if admitted.probe:
            blob += _NUMBER.pack(admitted.probe)
        if finish.health is DestinationHealth.UNREACHED:
            blob += _NUMBER.pack(finish.reporter)
        for index in told:
            blob += _observed(finish, index)
        blob += _destination(finish)
        return Item(packed.keys, packed.blob, packed.names, blob, holder)

    def cancel(self, ask: AdmitRequest) -> Item:
        """The item that undoes *ask*."""
        packed = self._of(ask.plan)
        costs = [round(cost * MICRO) for cost in ask.costs] if ask.costs else packed.ones
        reservation_id = b"%016x" % ask.reservation_id if ask.reservation_id else _NO_BOOKING
        blob = packed.cancel.pack(CANCEL, *costs, reservation_id)
        return Item(packed.keys, packed.blob, packed.names, blob, packed.holder(ask.holder))

    def renew(self, renewal: Renewal) -> Item:
        """The item of one renewal."""
        plan = Plan(renewal.domain, quota=renewal.holder.quota, pool=renewal.pool)
        blob = _RENEW.pack(RENEW, renewal.wait_s * MICRO // 1, renewal.had_slot + renewal.adopt)
        packed = _Packed(plan, self._keyspace)
        return Item(packed.keys, packed.blob, packed.names, blob, packed.holder(renewal.holder))


def arguments(items: Iterable[Item], keys: list[bytes], args: list[bytes]) -> None:
    """Put *items* behind what *keys* and *args* have; what is as in the item before is not said again."""
    plan, names = b"", b""
    for item in items:
        if item.names is names:
            args += (b"", b"", item.ask, item.holder)
            continue
        names = item.names
        keys += item.keys
        if item.plan == plan:
            args += (b"", names, item.ask, item.holder)
        else:
            plan = item.plan
            args += (plan, names, item.ask, item.holder)


def head(
    *,
    expected_us: int = 0,
    pinned_us: int = 0,
    hint_us: int = 0,
    lease_s: float = 30.0,
    events: int = 0,
    spends: int = 0,
    doubted_us: int = 0,
    known_us: int = 0,
    run_ids: bytes = b"",
) -> bytes:
    """What holds for a whole batch; see include/clock.lua."""
    lease_us = lease_s * MICRO // 1
    told = (expected_us, pinned_us, hint_us, lease_us, events, spends, doubted_us, known_us)
    return _HEAD.pack(*told) + run_ids


def stamp(told: bytes) -> tuple[int, int]:
    """The server's time and the birth of what it knows, both in us."""
    now_us, birth_us = _STAMP.unpack(told)
    return int(now_us), int(birth_us)


def _destination(finish: Release) -> bytes:
    """Return the name of the breaker that counts a failure, and its cause: keys hold only a digest."""
    rule = finish.admitted.plan.breaker
    if rule is None or finish.health not in (DestinationHealth.UNHEALTHY, DestinationHealth.UNREACHED):
        return b""
    return f"{rule.key}{CAUSE}{finish.cause}".encode("utf-8", "surrogatepass")


def _quota_text(quota: QuotaLimit | None) -> str:
    return "\x1f" if quota is None else f"{digest([quota.key])}\x1f{quota.capacity}"


def _keys(plan: Plan, keys: Keyspace) -> Iterator[bytes]:
    """Return the cell of the domain of *plan*, and the leases of its pool if it has one."""
    yield keys.key(KeyKind.CELL, plan.domain).encode()
    if plan.pool:
        yield (keys.key(KeyKind.POOL, plan.domain, plan.pool.key) + Part.LEASES).encode()


def _names(plan: Plan) -> Iterator[str]:
    """Return the fields of the cell that *plan* uses; see include/cell.lua for their order."""
    if plan.pool:
        yield Keyspace.field("p", plan.pool.key)
    if plan.breaker:
        yield Keyspace.field("k", plan.breaker.key)
    if plan.quota:
        yield Keyspace.field("q", plan.quota.key)
    for bucket in plan.buckets:
        yield Keyspace.field("b", bucket.key)


def _versions(plan: Plan) -> Iterator[int]:
    """Of each of those fields the version of its limit; 0 where it has none."""
    if plan.pool:
        yield plan.pool.version
    yield from [0] * ((plan.breaker is not None) + (plan.quota is not None))
    for bucket in plan.buckets:
        yield bucket.version


def _plan(plan: Plan) -> bytes:
    flags = (plan.breaker is not None) + 2 * (plan.quota is not None) + 4 * (plan.pool is not None)
    blob = _PLAN.pack(flags, len(plan.buckets))
    if rule := plan.breaker:
        blob += _BREAKER.pack(
            rule.failures, rule.ratio, rule.least,
            round(rule.open_s * MICRO), round(rule.open_max_s * MICRO), round(rule.ramp_s * MICRO),
        )  # fmt: skip
    if plan.quota:
        blob += _NUMBER.pack(plan.quota.capacity)
    if plan.pool:
        blob += _pool(plan.pool)
    for bucket in plan.buckets:
        blob += _BUCKET.pack(bucket.capacity_micro, bucket.rate_micro)
    return blob


def _pool(pool: PoolLimit) -> bytes:
    blob = _POOL.pack(
        pool.capacity,
        round(pool.lease_s * MICRO), round(pool.claim_s * MICRO), round(pool.max_wait_s * MICRO),
        pool.max_waiters, pool.classes, bool(pool.minimum) + 2 * pool.fencing,
    )  # fmt: skip
    if pool.minimum:
        for number in range(1, pool.classes + 1):
            blob += _NUMBER.pack(pool.minimum.get(number, 0))
    return blob


def _observed(finish: Release, index: int) -> bytes:
    admitted = finish.admitted
    refund = finish.refund_micro(index)
    sent = admitted.sent[index] + max(0, -refund)  # the answer has seen what it cost more
    seen = finish.observed.get(index)
    told, left, capacity, rate, wait_us = 0, 0, 0, 0, 0
    if seen is not None:
        told = (
            _LEFT * (seen.remaining is not None)
            + _CAPACITY * (seen.capacity is not None)
            + _RATE * (seen.per_s is not None)
            + _REFUSED * (seen.wait_s is not None)
            + _HELD * (seen.held_s is not None)
        )
        left = round((seen.remaining or 0) * MICRO)
        capacity = round((seen.capacity or 0) * MICRO)
        rate = max(1, int((seen.per_s or 0) * MICRO))
        wait_us = round(max(seen.wait_s or 0, seen.held_s or 0) * MICRO)
    return _OBSERVED.pack(index + 1, told, refund, left, sent, capacity, rate, wait_us)
