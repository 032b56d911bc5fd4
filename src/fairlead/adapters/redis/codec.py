"""Encodes requests to ``lua/gate.lua`` and decodes its responses: packed numbers, little-endian doubles.

All numbers are whole micro-units and microseconds below 2^53, so a double holds them exactly. The limits of a
plan are packed once and sent with each batch. They are the same bytes for all tenants with the same limits,
so a batch holds them once; the names that go with them identify the owner and version of each limit.

Spec: R28.
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

_NO_RESERVATION = b"0" * 16
_MAX_PLANS = 100_000

_HEAD = Struct("<dddddddd")
_PLAN = Struct("<BB")
_BREAKER = Struct("<dddddd")
_NUMBER = Struct("<d")
_POOL = Struct("<dddddBB")
_BUCKET = Struct("<dd")
_RELEASE = Struct("<BBBB")
_OBSERVED = Struct("<BBdddddd")
_RENEW = Struct("<BdB")
_ADMIT_HEAD = "<Bddddd"
_ANSWER = Struct("<BBBBdd")
_RELEASED = Struct("<Bd")
_STAMP = Struct("<dd")

ADMIT, RELEASE, CANCEL, RENEW = 1, 2, 3, 4
CAUSE_SEPARATOR = "\x1f"
"""Separates the name of a breaker from the cause of a failure that it counted; no name contains it."""
_PLAIN_RELEASES: dict[DestinationHealth, bytes] = {
    health: _RELEASE.pack(RELEASE, 0, health, 0)
    for health in DestinationHealth
    if health is not DestinationHealth.UNREACHED
}
"""Releases of calls that are no probe and observed no bucket, by health."""
_ADMITTED, _RESERVED, _QUEUED = 0, 1, 2
_REMAINING, _CAPACITY, _RATE, _REFUSED, _HOLD = 1, 2, 4, 8, 16
_WAS_HELD, _CLOSED = 1, 2
_KEEPS_SLOT = 8


class Item(NamedTuple):
    """One item of a batch, ready to be sent."""

    keys: tuple[bytes, ...]
    plan: bytes
    names: bytes
    body: bytes
    holder: bytes


class CancelAdmission(NamedTuple):
    """The request to undo an admission request."""

    request: AdmitRequest


Request = AdmitRequest | Release | Renewal | CancelAdmission
"""The request in one item of a batch."""


class _PackedPlan:
    """The parts of a plan's wire form, computed once."""

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
        # Never empty, because an empty value stands for the names of the item before.
        self.names = b"".join((names, *versions, b"."))
        self.blob = _plan(plan)
        self.admit = Struct(f"{_ADMIT_HEAD}{count}d16s")
        self.cancel = Struct(f"<B{count}d16s")
        self.sent = Struct(f"<{count}d")
        self.ones = (MICRO,) * count
        self.spent = (1.0,) * count
        self.quota = plan.quota
        self.quota_text = _quota_text(plan.quota)

    def holder(self, holder: Holder | None) -> bytes:
        """Return *holder* as the member of sorted sets; see include/pool.lua."""
        if holder is None:
            return b""
        quota = self.quota_text if holder.quota is self.quota else _quota_text(holder.quota)
        return (
            f"{holder.lease_id:016x}\x1f{holder.process}\x1f{holder.priority_class}\x1f{quota}\x1f"
            f"{holder.tenant}\x1f{holder.job}"
        ).encode()


class Codec:
    """Packs and reads items for one keyspace. It caches the packed plans, which are few and live long."""

    def __init__(self, keys: Keyspace) -> None:
        self._keyspace = keys
        self._packed: dict[Plan, _PackedPlan] = {}

    def _of(self, plan: Plan) -> _PackedPlan:
        packed = self._packed.get(plan)
        if packed is None:
            if len(self._packed) >= _MAX_PLANS:
                self._packed.clear()  # drops plans out of use; the others are packed once more
            packed = self._packed[plan] = _PackedPlan(plan, self._keyspace)
        return packed

    def pack(self, request: Request) -> Item:
        """Return the item of *request*."""
        if isinstance(request, AdmitRequest):
            return self.admit(request)
        if isinstance(request, Release):
            return self.release(request)
        if isinstance(request, CancelAdmission):
            return self.cancel(request.request)
        return self.renew(request)

    def read(self, request: Request, result: Any) -> AdmitResult | Released | Lease | Exception:
        """Return the result of *request*, or the error if it cannot be read."""
        try:
            if isinstance(request, AdmitRequest):
                return self.read_admit(request, result)
            number, opened_us = _RELEASED.unpack(result)
            if isinstance(request, Renewal):
                return Lease(number)
            opened_s = opened_us / MICRO if opened_us else None
            return Released(number & _WAS_HELD > 0, opened_s, number & _CLOSED > 0)
        except (struct.error, TypeError, ValueError, OverflowError) as error:
            unreadable = LimiterUnavailableError(f"the gate's answer cannot be read: {error}")
            return result if isinstance(result, Exception) else unreadable

    def admit(self, request: AdmitRequest) -> Item:
        """Return the item of one admission."""
        packed = self._of(request.plan)
        costs = [round(cost * MICRO) for cost in request.costs] if request.costs else packed.ones
        blob = packed.admit.pack(
            ADMIT,
            request.existed_s * MICRO,
            request.waited_s * MICRO // 1,
            request.wait_s * MICRO // 1,
            request.reserve_ahead_s * MICRO // 1 if request.reservation_id else 0,
            request.call_s * MICRO // 1,
            *costs,
            b"%016x" % request.reservation_id if request.reservation_id else _NO_RESERVATION,
        )
        return Item(packed.keys, packed.blob, packed.names, blob, packed.holder(request.holder))

    def read_admit(self, request: AdmitRequest, result: bytes) -> AdmitResult:
        """Return the result of an admission."""
        verdict, by, which, probe, wait_us, fence = _ANSWER.unpack_from(result)
        if verdict == _ADMITTED:
            packed = self._of(request.plan)
            sent, costs = packed.sent.unpack_from(result, _ANSWER.size), request.costs or packed.spent
            return Admitted(
                request.plan, request.holder, int(fence), int(wait_us) if probe else 0, sent, costs
            )
        wait_s = wait_us / MICRO
        if verdict == _RESERVED:
            return Reserved(wait_s)
        if verdict == _QUEUED:
            return Queued(RefusedBy(by), wait_s)
        index = which - 1 if which else None
        return GateRefusal(RefusedBy(by), None if wait_us < 0 else wait_s, index, fence / MICRO)

    def needs_script(self, release: Release) -> bool:
        """Return whether *release* changes anything in the store."""
        plan = release.admitted.plan
        return plan.breaker is not None or plan.pool is not None or bool(release.actual or release.observed)

    def release(self, release: Release) -> Item:
        """Return the item of one release."""
        admitted = release.admitted
        packed = self._of(admitted.plan)
        holder = packed.holder(admitted.holder)
        is_plain = not (release.actual or release.observed or admitted.probe or release.keeps_slot)
        if is_plain and (plain := _PLAIN_RELEASES.get(release.health)) is not None:
            blob = plain + _destination(release)
            return Item(packed.keys, packed.blob, packed.names, blob, holder)
        indexes = sorted({*release.actual, *release.observed})
        health = release.health + _KEEPS_SLOT * release.keeps_slot
        blob = _RELEASE.pack(RELEASE, admitted.probe > 0, health, len(indexes))
        if admitted.probe:
            blob += _NUMBER.pack(admitted.probe)
        if release.health is DestinationHealth.UNREACHED:
            blob += _NUMBER.pack(release.reporter)
        for index in indexes:
            blob += _observed(release, index)
        blob += _destination(release)
        return Item(packed.keys, packed.blob, packed.names, blob, holder)

    def cancel(self, request: AdmitRequest) -> Item:
        """Return the item that undoes *request*."""
        packed = self._of(request.plan)
        costs = [round(cost * MICRO) for cost in request.costs] if request.costs else packed.ones
        reservation_id = b"%016x" % request.reservation_id if request.reservation_id else _NO_RESERVATION
        blob = packed.cancel.pack(CANCEL, *costs, reservation_id)
        return Item(packed.keys, packed.blob, packed.names, blob, packed.holder(request.holder))

    def renew(self, renewal: Renewal) -> Item:
        """Return the item of one renewal."""
        plan = Plan(renewal.domain, quota=renewal.holder.quota, pool=renewal.pool)
        blob = _RENEW.pack(RENEW, renewal.wait_s * MICRO // 1, renewal.had_slot + renewal.adopt)
        packed = _PackedPlan(plan, self._keyspace)
        return Item(packed.keys, packed.blob, packed.names, blob, packed.holder(renewal.holder))


def add_arguments(items: Iterable[Item], keys: list[bytes], args: list[bytes]) -> None:
    """Append *items* to *keys* and *args*; a plan or names equal to the item before are sent as empty."""
    plan, names = b"", b""
    for item in items:
        if item.names is names:
            args += (b"", b"", item.body, item.holder)
            continue
        names = item.names
        keys += item.keys
        if item.plan == plan:
            args += (b"", names, item.body, item.holder)
        else:
            plan = item.plan
            args += (plan, names, item.body, item.holder)


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
    """Return the parameters of a whole batch; see include/clock.lua."""
    lease_us = lease_s * MICRO // 1
    numbers = (expected_us, pinned_us, hint_us, lease_us, events, spends, doubted_us, known_us)
    return _HEAD.pack(*numbers) + run_ids


def read_stamp(packed: bytes) -> tuple[int, int]:
    """Return the server's time and the birth of its data, both in us."""
    now_us, birth_us = _STAMP.unpack(packed)
    return int(now_us), int(birth_us)


def _destination(release: Release) -> bytes:
    """Return the name of the breaker that counts a failure, and its cause: keys hold only a digest."""
    rule = release.admitted.plan.breaker
    if rule is None or release.health not in (DestinationHealth.UNHEALTHY, DestinationHealth.UNREACHED):
        return b""
    return f"{rule.key}{CAUSE_SEPARATOR}{release.cause}".encode("utf-8", "surrogatepass")


def _quota_text(quota: QuotaLimit | None) -> str:
    return "\x1f" if quota is None else f"{digest([quota.key])}\x1f{quota.capacity}"


def _keys(plan: Plan, keys: Keyspace) -> Iterator[bytes]:
    """Yield the cell of the domain of *plan*, and the leases of its pool if it has one."""
    yield keys.key(KeyKind.CELL, plan.domain).encode()
    if plan.pool:
        yield (keys.key(KeyKind.POOL, plan.domain, plan.pool.key) + Part.LEASES).encode()


def _names(plan: Plan) -> Iterator[str]:
    """Yield the fields of the cell that *plan* uses; see include/cell.lua for their order."""
    if plan.pool:
        yield Keyspace.field("p", plan.pool.key)
    if plan.breaker:
        yield Keyspace.field("k", plan.breaker.key)
    if plan.quota:
        yield Keyspace.field("q", plan.quota.key)
    for bucket in plan.buckets:
        yield Keyspace.field("b", bucket.key)


def _versions(plan: Plan) -> Iterator[int]:
    """Yield the version of the limit of each of those fields; 0 if it has none."""
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


def _observed(release: Release, index: int) -> bytes:
    admitted = release.admitted
    refund = release.refund_micro(index)
    sent = admitted.sent[index] + max(0, -refund)  # the response already includes what it cost more
    observation = release.observed.get(index)
    flags, remaining, capacity, rate, wait_us = 0, 0, 0, 0, 0
    if observation is not None:
        flags = (
            _REMAINING * (observation.remaining is not None)
            + _CAPACITY * (observation.capacity is not None)
            + _RATE * (observation.per_s is not None)
            + _REFUSED * (observation.wait_s is not None)
            + _HOLD * (observation.held_s is not None)
        )
        remaining = round((observation.remaining or 0) * MICRO)
        capacity = round((observation.capacity or 0) * MICRO)
        rate = max(1, int((observation.per_s or 0) * MICRO))
        wait_us = round(max(observation.wait_s or 0, observation.held_s or 0) * MICRO)
    return _OBSERVED.pack(index + 1, flags, refund, remaining, sent, capacity, rate, wait_us)
