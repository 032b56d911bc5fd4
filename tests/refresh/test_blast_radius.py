"""Whom each outcome of a refresh stops, row by row of the table, on real stores (R50).

One connection meets the row, and another one, in another process, must be served all the same. Then two meet
it with nothing between: only then may something shared close, and only where the table says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres import endpoints, statements
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.engine.ports import (
    EndpointKey,
    Intent,
    NewJob,
    NoResponse,
    NoResponseKind,
    PermitRequest,
    TokenCall,
)
from fairlead.errors import (
    DependencyUnavailableError,
    EndpointPausedError,
    EndpointUnavailableError,
    FairleadError,
    RateLimitedError,
    ReauthRequiredError,
    RefusedError,
    TransientFailureError,
)
from fairlead.events import TokenEndpointStateChanged
from fairlead.policy.calls.blast_radius import TOKEN, LocalReach, Shared
from fairlead.testing.issuer.quirks import Quirk
from fairlead.testing.ledger import judge
from tests.support.altered import alter
from tests.support.refresher import FAST, Refresher, local_profile, refresher
from tests.support.rows import run

PROVIDER = "stable"
PATIENT = replace(FAST, breaker_failures=2, backoff_s=60.0, breaker_open_s=60.0)


def rejection(code: str, status: int = 400) -> Quirk:
    return Quirk(status=status, body=f'{{"error":"{code}"}}', content_type="application/json")


OUTCOMES: dict[str, Quirk | None] = {
    "granted": None,
    "not_processed.transient_rate_limit": Quirk(status=429, retry_after="30"),
    "not_processed.transient_server": Quirk(status=503),
    "transient_failure.transient_server": Quirk(status=400, body="<html>account suspended</html>"),
    "transient_failure.transient_network": rejection("strange_thing"),
    "rejected.permanent_auth": rejection("invalid_grant"),
    "rejected.permanent_config": rejection("unsupported_grant_type"),
    "rejected.permanent_permission": rejection("access_denied"),
    "rejected.permanent_request": rejection("invalid_scope"),
    "rejected.permanent_config.client": rejection("invalid_client", 401),
    "unknown": Quirk(status=500),
    "not_sent": None,
    "not_sent.process": None,
}
LOSSES: dict[str, NoResponseKind] = {"not_sent": "connect", "not_sent.process": "descriptors"}
CLOSED = {
    Shared.HOST: EndpointUnavailableError,
    Shared.RATE: RateLimitedError,
    Shared.APP: EndpointPausedError,
}


class Fleet:
    """Two processes at one token endpoint of one app."""

    def __init__(self, first: Refresher, other: Refresher, issuer: Any) -> None:
        self.one, self.other, self._issuer = first, other, issuer
        self.loses: NoResponseKind | None = None

    async def connect(self, name: str) -> UUID:
        return await self.one.connect(self._issuer, PROVIDER, name)

    async def meets(self, row: str, name: str, by: Refresher | None = None) -> UUID:
        """A new connection called *name* has met *row* in the process *by* (default: one)."""
        by = by or self.one
        connection_id, quirk = await self.connect(name), OUTCOMES[row]
        if quirk is not None:
            self._issuer.be_rude(quirk, connection=name)
        self.loses = LOSSES.get(row)
        if row == "granted":
            await by.coordinator.refresh(connection_id, 1)
        else:
            with pytest.raises(FairleadError):
                await by.coordinator.refresh(connection_id, 1)
        self.loses = None
        return connection_id

    def posts(self) -> int:
        return judge(self._issuer.ledger()).provider_posts

    async def is_served(self, name: str) -> bool:
        """Whether *name* gets a token from the other process."""
        return (await self.other.coordinator.refresh(await self.connect(name), 1)).generation == 2


@asynccontextmanager
async def fleet_of(database: Any, issuer: Any, folder: Path) -> AsyncIterator[Fleet]:
    rate = {"limit": 60, "window_s": 60.0}
    profiles = {PROVIDER: local_profile(issuer.url, PROVIDER, PROVIDER, rotates=False, rate=rate)}
    async with (
        refresher(database, profiles, folder / "one", settings=PATIENT) as first,
        refresher(database, profiles, folder / "other", settings=PATIENT) as other,
    ):
        fleet = Fleet(first, other, issuer)
        for process in (first, other):
            alter(process.deps.transport, send=lossy(fleet, process.deps.transport.send))
        yield fleet


def lossy(fleet: Fleet, send: Callable[..., Awaitable[Any]]) -> Any:
    """*send*, from which nothing leaves while the fleet loses."""

    async def sent(call: TokenCall, before_sent: Any) -> Any:
        if fleet.loses is not None:
            return NoResponse(sent=False, kind=fleet.loses, why="connect failed")
        return await send(call, before_sent)

    return sent


@pytest.mark.parametrize("row", TOKEN)
async def test_fault_of_one_connection_stops_it_alone(
    database: Any, issuer: Any, tmp_path: Path, row: str
) -> None:
    async with fleet_of(database, issuer, tmp_path) as fleet:
        connection_id = await fleet.meets(row, "a")
        assert await fleet.is_served("well")
        posts, local_reach = fleet.posts(), TOKEN[row].local
        refused = {LocalReach.CONNECTION: RateLimitedError, LocalReach.GRANT: ReauthRequiredError}.get(
            local_reach
        )
        with suppress(FairleadError) if refused is None else pytest.raises(refused):
            await fleet.other.coordinator.refresh(
                connection_id, 2 if local_reach is LocalReach.NOTHING else 1
            )
        assert fleet.posts() - posts == (refused is None), "what is held is held in every process"


@pytest.mark.parametrize("row", TOKEN)
async def test_two_close_what_is_shared_and_nothing_else(
    database: Any, issuer: Any, tmp_path: Path, row: str
) -> None:
    async with fleet_of(database, issuer, tmp_path) as fleet:
        await fleet.meets(row, "a")
        await fleet.meets(row, "b", by=fleet.other)
        posts, shared = fleet.posts(), TOKEN[row].shared
        if shared is Shared.NOTHING:
            assert await fleet.is_served("well")
        else:
            with pytest.raises(CLOSED[shared]):
                await fleet.is_served("well")
            assert fleet.posts() == posts


@pytest.mark.parametrize("row", [row for row in TOKEN if TOKEN[row].shared is not Shared.NOTHING])
async def test_a_token_between_two_keeps_what_is_shared_open(
    database: Any, issuer: Any, tmp_path: Path, row: str
) -> None:
    async with fleet_of(database, issuer, tmp_path) as fleet:
        await fleet.meets(row, "a")
        assert await fleet.is_served("between")
        await fleet.meets(row, "b")
        assert await fleet.is_served("well")


ABLATIONS = {
    "unknown": ("endpoint_failed", "greatest(2, :threshold::integer)", "1"),
    "not_processed.transient_rate_limit": (
        "endpoint_penalise",
        "cardinality(array_remove(g.limited, :connection_id::uuid)) = 0",
        "false",
    ),
    "rejected.permanent_config.client": ("endpoint_pause", "cardinality(reports) > 1", "true"),
}
"""For each thing that is shared: a row, its statement, and how that waits for a second connection."""


@pytest.mark.parametrize("row", ABLATIONS)
async def test_ablation_of_the_second_connection(
    database: Any, issuer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    name, safeguard, without = ABLATIONS[row]
    text = (Path(statements.__file__).parent / "sql" / f"{name}.sql").read_text("utf-8")
    assert safeguard in text
    ablated = statements.compile_sql(name, text.replace(safeguard, without))
    monkeypatch.setattr(
        endpoints, "statement", lambda of: ablated if of == name else statements.statement(of)
    )
    async with fleet_of(database, issuer, tmp_path) as fleet:
        await fleet.meets(row, "a")
        with pytest.raises(CLOSED[TOKEN[row].shared]):
            await fleet.is_served("well")


async def test_a_process_without_a_way_out_closes_the_endpoint_to_nobody(
    database: Any, issuer: Any, tmp_path: Path
) -> None:
    async with fleet_of(database, issuer, tmp_path) as fleet:
        for name in ("a", "b", "c"):
            await fleet.meets("not_sent", name)
        assert await fleet.is_served("well")


async def test_a_person_sees_a_back_off_and_passes_or_ends_it(
    database: Any, issuer: Any, tmp_path: Path
) -> None:
    async with fleet_of(database, issuer, tmp_path) as fleet:
        gate, refresh = fleet.one.deps.gate, fleet.one.coordinator.refresh
        connection_id = await fleet.connect("a")
        for generation in (1, 2):
            issuer.be_rude(Quirk(status=429, retry_after="86400"), connection="a")
            with pytest.raises(TransientFailureError) as failed:
                await refresh(connection_id, generation)
            assert failed.value.retry_after_s == 900.0, "as long as it waits, not as long as was asked"
            issuer.be_polite()
            with pytest.raises(RateLimitedError):
                await refresh(connection_id, generation)
            backoff = await gate.backoff(connection_id, generation)
            assert backoff["held_for"] == "http_429"
            if generation == 2:
                assert await gate.resume(EndpointKey(PROVIDER, "app"))
                assert await gate.backoff(connection_id, generation) == {}
            actor = "ann" if generation == 1 else "fairlead"
            assert (await refresh(connection_id, generation, actor=actor)).generation == generation + 1


async def test_an_endpoint_that_is_well_again_is_told_of_and_so_is_who_closed_it(
    database: Any, issuer: Any, tmp_path: Path
) -> None:
    async with fleet_of(database, issuer, tmp_path) as fleet:
        connection_ids = [await fleet.meets("rejected.permanent_config.client", name) for name in ("a", "b")]
        await run(database, "UPDATE endpoint_gate SET open_until = now()")
        assert await fleet.is_served("well")
        paused, closed = fleet.one.told(TokenEndpointStateChanged) + fleet.other.told(
            TokenEndpointStateChanged
        )
        assert (paused.state, paused.reported_by, paused.open_s) == (
            "paused",
            tuple(map(str, connection_ids)),
            600.0,
        )  # type: ignore[attr-defined]
        assert (closed.state, closed.client_id) == ("closed", "app")  # type: ignore[attr-defined]


async def test_a_probe_whose_claim_loses_makes_room_for_the_next_at_once(
    database: Any, issuer: Any, tmp_path: Path
) -> None:
    async with fleet_of(database, issuer, tmp_path) as fleet:
        for name in ("a", "b"):
            await fleet.meets("unknown", name)
        await run(database, "UPDATE endpoint_gate SET open_until = now()")

        store = fleet.one.deps.store
        claim = store.claim

        async def claim_what_was_refreshed(intent: Intent, ask: PermitRequest) -> None:
            assert await claim(replace(intent, from_generation=7), ask) is None
            raise DependencyUnavailableError("the database went away")

        alter(store, claim=claim_what_was_refreshed)
        with pytest.raises(DependencyUnavailableError):
            await fleet.one.coordinator.refresh(await fleet.connect("c"), 1)
        assert await fleet.is_served("well")


# ---- faults on our side


async def _store_away(fleet: Fleet) -> None:
    async def away(*_args: object) -> None:
        raise DependencyUnavailableError("the database went away")

    alter(fleet.one.deps.store, claim=away)


async def _mark_in_doubt(fleet: Fleet) -> None:
    async def lost(*_args: object) -> None:
        raise DependencyUnavailableError("whether it was committed is not known")

    alter(fleet.one.deps.store, mark_sent=lost)


async def _no_journal(fleet: Fleet) -> None:
    def full() -> None:
        raise DependencyUnavailableError("could not be stored")

    alter(fleet.one.deps.journal, preflight=full)


async def _damaged(fleet: Fleet) -> None:
    database = fleet.one.deps.store._database  # type: ignore[attr-defined]
    await run(database, "UPDATE credential SET sealed = set_byte(sealed, 40, 255 - get_byte(sealed, 40))")


async def _late(fleet: Fleet) -> None:
    async def expired(*_args: object) -> None:
        return None

    alter(fleet.one.deps.store, mark_sent=expired)


async def _killed(fleet: Fleet) -> None:
    async def killed(settlement: object) -> None:
        raise RuntimeError("killed here")

    alter(fleet.one.deps.store, settle=killed)


CAUSES: dict[str, Callable[[Fleet], Awaitable[None]]] = {
    "PostgreSQL does not answer": _store_away,
    "a commit is in doubt": _mark_in_doubt,
    "the journal cannot be written": _no_journal,
    "a sealed record does not open": _damaged,
    "a lease is lost": _late,
    "a process dies": _killed,
}
ELSEWHERE = {"Redis does not answer", "a queue is full of one tenant's dead letters"}
"""The former in tests/e2e/test_blast_radius_of_calls.py, the latter below."""


def test_each_fault_has_a_test() -> None:
    page = Path("docs/explanation/blast-radius.md").read_text()
    assert [name for name in {*CAUSES, *ELSEWHERE} if f"| {name} |" not in page] == []
    assert set(OUTCOMES) == set(TOKEN)


@pytest.mark.parametrize("fault", CAUSES)
async def test_a_fault_of_one_process_stops_no_other_connection(
    database: Any, issuer: Any, tmp_path: Path, fault: str
) -> None:
    async with fleet_of(database, issuer, tmp_path) as fleet:
        for name in ("a", "b", "c"):
            connection_id = await fleet.connect(name)
            await CAUSES[fault](fleet)
            with pytest.raises((FairleadError, RuntimeError)):
                await fleet.one.coordinator.refresh(connection_id, 1)
        assert await fleet.is_served("well")
        assert {row["state"] for row in await fleet.one.deps.gate.search()} <= {"closed"}


async def test_dead_letters_of_one_tenant_refuse_its_work_and_nobodys_refreshes(database: Any) -> None:
    await run(
        database,
        "INSERT INTO dead_letter (dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, priority,"
        " category, code, reason) SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'default',"
        " kind, 'loud', 2, 'permanent_auth', 'x', 'it failed'"
        " FROM unnest(ARRAY['token.refresh', 'token.refresh', 'sync', 'sync']) AS kind",
    )
    jobs = PostgresJobStore(database, SystemIds(), bound=3)
    new = {
        (kind, tenant): NewJob(SystemIds().uuid7(), kind, tenant)
        for kind in ("token.refresh", "sync")
        for tenant in ("loud", "quiet")
    }
    with pytest.raises(RefusedError):
        await jobs.enqueue([new["sync", "loud"]])
    stored = await jobs.enqueue([job for key, job in new.items() if key != ("sync", "loud")])
    assert [enqueued.inserted for enqueued in stored] == [True] * 3
    await jobs.close()
