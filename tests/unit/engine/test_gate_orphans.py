"""Which leases are orphans, and how one makes sure; and the hourly look after the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

import pytest

from fairlead.engine.limits.gate_maintenance import TTL_S, GateMaintenance
from fairlead.engine.limits.orphaned_leases import LEASE_OVER, PROCESS_GONE, OrphanSearch, orphans
from fairlead.engine.ports import KeySurvey, KindUse, ProcessIdentity, SessionView, StoredLease
from fairlead.errors import LimiterUnavailableError
from fairlead.events import GateMaintenanceDone, ServiceFailed
from fairlead.testing._kit.clock import ManualClock
from tests.support.engine import Recorder

HERE = ProcessIdentity("host", "boot", "ns", 7, "noon")
NOW_US = 1_000_000_000


def session(number: int, state: Literal["alive", "late", "lost", "stopped"], pid: int = 7) -> SessionView:
    since = datetime(2026, 11, 22, tzinfo=UTC)
    return SessionView(UUID(int=number), replace(HERE, pid=pid), "1", since, 0.0, 30.0, state, 0)


def lease(number: int, process: int | str, ends_in_s: float = 20.0) -> StoredLease:
    name = str(UUID(int=process)) if isinstance(process, int) else process
    until_us = NOW_US + round(ends_in_s * 1e6)
    return StoredLease(f"pool-{number}:l", f"holder-{number}", number, name, "acme", "", until_us, ends_in_s)


@pytest.mark.parametrize(
    ("lease", "sessions", "why"),
    [
        (lease(1, 1), [session(1, "alive")], None),
        (lease(1, 1), [session(1, "late")], None),
        (lease(1, 1), [session(1, "lost")], PROCESS_GONE),
        (lease(1, 1), [session(1, "stopped")], PROCESS_GONE),
        (lease(1, 1), [], PROCESS_GONE),
        (lease(1, "simulated-1"), [session(1, "alive")], PROCESS_GONE),
        # it lost its session and lives on under a new one, its leases under the old name
        (lease(1, 1), [session(1, "lost"), session(2, "alive")], None),
        (lease(1, 1), [session(1, "lost"), session(2, "alive", pid=8)], PROCESS_GONE),
        (lease(1, 1, ends_in_s=-0.5), [session(1, "alive")], LEASE_OVER),
        # a place among bulk operations goes by its token, and may outlive every process
        (lease(1, f"bulk:{UUID(int=1)}"), [session(1, "stopped")], None),
        (lease(1, f"bulk:{UUID(int=1)}", ends_in_s=-0.5), [], LEASE_OVER),
    ],
)
def test_lease_without_a_live_session_is_an_orphan(
    lease: StoredLease, sessions: list[SessionView], why: str | None
) -> None:
    assert [orphan.why for orphan in orphans([lease], sessions)] == ([why] if why else [])


class Keys:
    """A store whose leases a test sets; *renewed* are moved on by the second look."""

    def __init__(self, *leases: StoredLease) -> None:
        self.leases = list(leases)
        self.looks = 0
        self.renewed: set[int] = set()
        self.given: list[StoredLease] = []
        self.ttl: list[tuple[Sequence[str], float]] = []
        self.no_ttl: tuple[str, ...] = ()
        self.happened = {"grant": 9, "expire": 2, "recover": 1, "promote": 4}
        self.away = False

    async def survey(self, **_options: object) -> KeySurvey:
        if self.away:
            raise LimiterUnavailableError("it is away")
        self.looks += 1
        if self.looks > 1:
            self.leases = [
                replace(lease, until_us=lease.until_us + 5) if lease.lease_id in self.renewed else lease
                for lease in self.leases
            ]
        return KeySurvey(
            kinds=(KindUse("cells", 3, 300, 0), KindUse("leases", 2, 100, 0)),
            keys_scanned=5,
            complete=True,
            server_keys=5,
            used_bytes=9000,
            max_bytes=0,
            no_ttl=self.no_ttl,
            leases=tuple(self.leases),
            event_counts=self.happened,
        )

    async def remove_leases(self, leases: Sequence[StoredLease]) -> list[StoredLease]:
        self.given += leases
        return list(leases)

    async def set_ttl(self, keys: Sequence[str], ttl_s: float) -> int:
        self.ttl.append((keys, ttl_s))
        return len(keys)


class Sessions:
    def __init__(self, *views: SessionView) -> None:
        self.views = list(views)

    async def search(self) -> list[SessionView]:
        return self.views


def search(keys: Keys, *sessions: SessionView) -> tuple[OrphanSearch, ManualClock]:
    clock = ManualClock(autojump_s=0.0)
    return OrphanSearch(keys, Sessions(*sessions), clock=clock), clock  # type: ignore[arg-type]


async def test_lease_renewed_between_two_checks_is_no_orphan() -> None:
    keys = Keys(lease(1, 1), lease(2, 1))
    keys.renewed = {1}
    looking, clock = search(keys, session(1, "lost"))
    report = await looking.confirm(14.0)
    assert [orphan.lease.lease_id for orphan in report.orphans] == [2]
    assert clock.monotonic() == pytest.approx(14.0)
    released = await looking.release(report.orphans)
    assert [orphan.lease.lease_id for orphan in released] == [2]
    assert [lease.lease_id for lease in keys.given] == [2]


async def test_a_lease_that_is_over_needs_no_second_look() -> None:
    keys = Keys(lease(1, 1, ends_in_s=-1.0))
    looking, clock = search(keys, session(1, "alive"))
    assert [orphan.why for orphan in (await looking.confirm()).orphans] == [LEASE_OVER]
    assert (keys.looks, clock.monotonic()) == (1, 0.0)


async def test_the_hourly_look_tells_what_happened_and_mends_what_is_left() -> None:
    keys, emit = Keys(lease(1, 1, ends_in_s=-60.0), lease(2, 1, ends_in_s=-1.0), lease(3, 9)), Recorder()
    keys.no_ttl = ("some-key",)
    done = await GateMaintenance(keys, emit=emit).run()  # type: ignore[arg-type]
    assert done == 2
    assert [lease.lease_id for lease in keys.given] == [1], "what may be under way is left to the gate"
    assert keys.ttl == [(("some-key",), TTL_S)]
    assert emit.of(GateMaintenanceDone) == [
        GateMaintenanceDone(
            orphans=4, promoted=4, cleaned=1, keys=5, size_bytes=400, used_bytes=9000, complete=True
        )
    ]


async def test_where_nothing_happened_it_says_zero() -> None:
    keys, emit = Keys(), Recorder()
    keys.happened = {}
    assert await GateMaintenance(keys, emit=emit).run() == 0  # type: ignore[arg-type]
    (event,) = emit.of(GateMaintenanceDone)
    assert (event.orphans, event.promoted, event.cleaned) == (0, 0, 0)


async def test_a_redis_that_is_away_fails_no_clean_up() -> None:
    keys, emit = Keys(), Recorder()
    keys.away = True
    assert await GateMaintenance(keys, emit=emit).run() == 0  # type: ignore[arg-type]
    assert [event.service for event in emit.of(ServiceFailed)] == ["gate-maintenance"]
    assert emit.of(GateMaintenanceDone) == []
