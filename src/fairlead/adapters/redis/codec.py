"""How asks and answers look on the wire to ``lua/gate.lua``: packed numbers, little-endian doubles.

All numbers are whole micro-units and microseconds below 2^53, so a double holds them exactly. What a plan
says is packed once and travels as the same bytes with each ask (R28); the script parses it once per batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from weakref import WeakKeyDictionary

from fairlead.engine.ports.gate import (
    Admitted,
    Answer,
    Ask,
    Booked,
    Finish,
    Finished,
    GateRefusal,
    Lease,
    Queued,
    RefusedBy,
    Renewal,
)
from fairlead.policy.gate.key import KeyKind, Keyspace, digest
from fairlead.policy.gate.limit import MICRO, Plan, PoolLimit
from fairlead.policy.gate.pool import Holder

_SEPARATOR = "\x1f"  # a control character: no tenant id and no job id holds one
_NO_BOOKING = b"0" * 16

_HEAD = Struct("<dddddd")
_PLAN = Struct("<BB")
_BREAKER = Struct("<dddddd")
_NUMBER = Struct("<d")
_POOL = Struct("<ddddddBB")
_BUCKET = Struct("<ddd")
_FINISH = Struct("<BBBB")
_OBSERVED = Struct("<BBdddddd")
_RENEW = Struct("<BdB")
_ADMIT_HEAD = "<BBdddd"
_ANSWER = Struct("<BBBBdd")
_DONE = Struct("<Bd")
_STAMP = Struct("<dd")

ADMIT, FINISH, CANCEL, RENEW = 1, 2, 3, 4
_ADMITTED, _BOOKED, _QUEUED = 0, 1, 2
_LEFT, _CAPACITY, _RATE, _REFUSED = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a batch, ready to be sent. *undo* ends what it began, should nobody read its answer."""

    keys: tuple[bytes, ...]
    plan: bytes
    ask: bytes
    holder: bytes
    undo: Ask | None = None


class _Packed:
    """What is derived of a plan once."""

    __slots__ = ("admit", "blob", "cancel", "keys", "ones", "pool", "sent")

    def __init__(self, plan: Plan, keys: Keyspace) -> None:
        count = len(plan.buckets)
        self.keys = tuple(_keys(plan, keys))
        self.blob = _plan(plan)
        self.admit = Struct(f"{_ADMIT_HEAD}{count}d16s")
        self.cancel = Struct(f"<B{count}d16s")
        self.sent = Struct(f"<{count}d")
        self.ones = (MICRO,) * count
        self.pool = plan.pool


class Codec:
    """Packs for one keyspace; what it derived of a plan lives as long as the plan."""

    def __init__(self, keys: Keyspace) -> None:
        self._keyspace = keys
        self._packed: WeakKeyDictionary[Plan, _Packed] = WeakKeyDictionary()

    def _of(self, plan: Plan) -> _Packed:
        packed = self._packed.get(plan)
        if packed is None:
            packed = self._packed[plan] = _Packed(plan, self._keyspace)
        return packed

    def admit(self, ask: Ask) -> Item:
        """The item of one admission."""
        packed = self._of(ask.plan)
        costs = [round(cost * MICRO) for cost in ask.costs] if ask.costs else packed.ones
        blob = packed.admit.pack(
            ADMIT,
            ask.cold_full,
            ask.since_s * MICRO // 1,
            ask.wait_s * MICRO // 1,
            ask.book_s * MICRO // 1 if ask.booking else 0,
            ask.call_s * MICRO // 1,
            *costs,
            b"%016x" % ask.booking if ask.booking else _NO_BOOKING,
        )
        return Item(packed.keys, packed.blob, blob, holder_text(ask.holder), ask)

    def answer(self, ask: Ask, told: bytes) -> Answer:
        """What the script said to *ask*."""
        verdict, by, which, probe, wait_us, fence = _ANSWER.unpack_from(told)
        if verdict == _ADMITTED:
            sent = self._of(ask.plan).sent.unpack_from(told, _ANSWER.size)
            costs = ask.costs or (1.0,) * len(sent)
            return Admitted(ask.plan, ask.holder, int(fence), bool(probe), sent, costs)
        wait_s = wait_us / MICRO
        if verdict == _BOOKED:
            return Booked(wait_s)
        if verdict == _QUEUED:
            return Queued(RefusedBy(by), wait_s)
        return GateRefusal(RefusedBy(by), None if wait_us < 0 else wait_s, which - 1 if which else None)

    def finish(self, finish: Finish) -> Item:
        """The item of one end."""
        admitted = finish.admitted
        packed = self._of(admitted.plan)
        told = sorted({*finish.actual, *finish.observed})
        blob = _FINISH.pack(FINISH, admitted.probe, finish.health, len(told))
        for index in told:
            blob += _observed(finish, index)
        return Item(packed.keys, packed.blob, blob, holder_text(admitted.holder))

    def finished(self, told: bytes) -> Finished:
        """What the script said to an end."""
        kept, opened_us = _DONE.unpack(told)
        return Finished(bool(kept), opened_us / MICRO if opened_us else None)

    def cancel(self, ask: Ask) -> Item:
        """The item that undoes *ask*."""
        packed = self._of(ask.plan)
        costs = [round(cost * MICRO) for cost in ask.costs] if ask.costs else packed.ones
        booking = b"%016x" % ask.booking if ask.booking else _NO_BOOKING
        blob = packed.cancel.pack(CANCEL, *costs, booking)
        return Item(packed.keys, packed.blob, blob, holder_text(ask.holder))

    def renew(self, renewal: Renewal) -> Item:
        """The item of one renewal."""
        plan = Plan(renewal.domain, quota=renewal.holder.quota, pool=renewal.pool)
        blob = _RENEW.pack(RENEW, renewal.wait_s * MICRO // 1, renewal.held + renewal.adopt)
        packed = _Packed(plan, self._keyspace)
        return Item(packed.keys, packed.blob, blob, holder_text(renewal.holder))

    def renewed(self, told: bytes) -> Lease:
        """What the script said to a renewal."""
        return Lease(_DONE.unpack(told)[0])


def head(
    *,
    expected_us: int = 0,
    pinned_us: int = 0,
    birth_us: int = 0,
    lease_s: float = 30.0,
    events: int = 0,
    spends: int = 0,
) -> bytes:
    """What holds for a whole batch; see include/clock.lua."""
    return _HEAD.pack(expected_us, pinned_us, birth_us, lease_s * MICRO // 1, events, spends)


def stamp(told: bytes) -> tuple[int, int]:
    """The server's time and the birth of what it knows, both in us."""
    now_us, birth_us = _STAMP.unpack(told)
    return int(now_us), int(birth_us)


def holder_text(holder: Holder | None) -> bytes:
    """The member of the sorted sets that *holder* is; see include/pool.lua."""
    if holder is None:
        return b""
    quota = holder.quota
    of_quota = (digest([quota.key]), str(quota.capacity)) if quota else ("", "")
    text = (
        f"{holder.lease_id:016x}",
        holder.process,
        str(holder.class_number),
        *of_quota,
        holder.tenant,
        holder.job,
    )
    return _SEPARATOR.join(text).encode()


def _keys(plan: Plan, keys: Keyspace) -> Sequence[bytes]:
    named = []
    if plan.breaker:
        named.append(keys.key(KeyKind.BREAKER, plan.domain, plan.breaker.key))
    if plan.quota:
        named.append(keys.key(KeyKind.QUOTA, plan.domain, plan.quota.key))
    if plan.pool:
        named.append(keys.key(KeyKind.POOL, plan.domain, plan.pool.key))
    named += [keys.key(KeyKind.BUCKET, plan.domain, bucket.key) for bucket in plan.buckets]
    return [name.encode() for name in named]


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
        blob += _BUCKET.pack(bucket.capacity_micro, bucket.rate_micro, bucket.version)
    return blob


def _pool(pool: PoolLimit) -> bytes:
    blob = _POOL.pack(
        pool.capacity, pool.version,
        round(pool.lease_s * MICRO), round(pool.claim_s * MICRO), round(pool.promote_s * MICRO),
        pool.max_waiters, pool.classes, bool(pool.minimum),
    )  # fmt: skip
    if pool.minimum:
        for number in range(1, pool.classes + 1):
            blob += _NUMBER.pack(pool.minimum.get(number, 0))
    return blob


def _observed(finish: Finish, index: int) -> bytes:
    admitted = finish.admitted
    spent = round(admitted.spent[index] * MICRO)
    actual = finish.actual.get(index)
    refund = 0 if actual is None else spent - round(actual * MICRO)
    seen = finish.observed.get(index)
    told, left, capacity, rate, wait_us = 0, 0, 0, 0, 0
    if seen is not None:
        told = (
            _LEFT * (seen.left is not None)
            + _CAPACITY * (seen.capacity is not None)
            + _RATE * (seen.per_s is not None)
            + _REFUSED * (seen.wait_s is not None)
        )
        left = round((seen.left or 0) * MICRO)
        capacity = round((seen.capacity or 0) * MICRO)
        rate = max(1, int((seen.per_s or 0) * MICRO))
        wait_us = round((seen.wait_s or 0) * MICRO)
    return _OBSERVED.pack(index + 1, told, refund, left, admitted.sent[index], capacity, rate, wait_us)
