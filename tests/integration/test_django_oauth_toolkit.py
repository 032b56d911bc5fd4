"""The main job on a real issuer: 50 connections, four processes, two of them killed (issue 2, real input).

Run A: the server repeats itself for two minutes (grace), so nothing at all may be lost.
Run B: a spent token ends its family, so what was in flight at the kills may be lost, and nothing else; it is
shown, and never tried again.

The server's own tables and record are the truth. README.md tells how it treats tokens that it has seen.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.app import Fairlead
from fairlead.errors import RateLimitedError, ReauthRequiredError
from tests.integration.dot import DotServer, dot_server
from tests.integration.fleet import PROVIDER, Fleet, Killed, Standing, connect_all, fleet_for
from tests.support.standstill import patience

pytestmark = pytest.mark.slow

CONNECTIONS = 50
PROCESSES = 4
GENERATIONS = 10
TTL_S = 3
ANSWER_DELAY_S = 0.1
WITHIN_S = 300.0

GRACE = 'policy = "grace", grace_s = 120'
STRICT = 'policy = "strict_family_revoke", replay_at_expiry = false'


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left behind."""

    standings: dict[str, Standing]
    kills: list[Killed]
    ran_s: float

    @property
    def lost(self) -> set[str]:
        return {tenant for tenant, standing in self.standings.items() if standing.state != "active"}

    def rotations(self) -> dict[str, int]:
        """By tenant: how many refreshes fairlead has the result of."""
        return {tenant: standing.generation - 1 for tenant, standing in self.standings.items()}

    @property
    def in_flight(self) -> set[str]:
        return set().union(*(kill.in_flight for kill in self.kills))


async def test_run_a_with_a_grace_nothing_is_lost(
    endpoints: Endpoints, dot_template: str, tmp_path: Path
) -> None:
    async with (
        dot_server(
            endpoints.database_url, dot_template, tmp_path,
            users=CONNECTIONS, grace_s=120, ttl_s=TTL_S, answer_delay_s=ANSWER_DELAY_S,
        ) as server,
        fleet_for(endpoints.database_url, server, tmp_path, ttl_s=TTL_S, replay=GRACE) as fleet,
    ):  # fmt: skip
        outcome = await _run(fleet, server)
        await _report("dot.grace_120", fleet, server, outcome)

        assert {standing.state for standing in outcome.standings.values()} == {"active"}
        assert min(standing.generation for standing in outcome.standings.values()) > GENERATIONS
        # Once per generation; a repeated answer that overtook the first one makes a generation of its own.
        server_rotations, known_rotations = await server.rotations(), outcome.rotations()
        assert [
            tenant for tenant in server_rotations if server_rotations[tenant] > known_rotations[tenant]
        ] == []
        await _assert_one_live_grant_each(server, CONNECTIONS)
        await _assert_expiry_is_honest(server, outcome)
        await _assert_grants_work(fleet, server, outcome)
        assert server.verdicts()["reused"] == 0


async def test_run_b_without_a_grace_only_what_was_in_flight_is_lost(
    endpoints: Endpoints, dot_template: str, tmp_path: Path
) -> None:
    async with (
        dot_server(
            endpoints.database_url, dot_template, tmp_path,
            users=CONNECTIONS, grace_s=0, ttl_s=TTL_S, answer_delay_s=ANSWER_DELAY_S,
        ) as server,
        fleet_for(endpoints.database_url, server, tmp_path, ttl_s=TTL_S, replay=STRICT) as fleet,
    ):  # fmt: skip
        outcome = await _run(fleet, server)
        await _report("dot.grace_0", fleet, server, outcome)

        assert outcome.lost <= outcome.in_flight
        assert {(standing.state, standing.reason) for standing in outcome.standings.values()} <= {
            ("active", None), ("needs_reauth", "lost_rotation"),
        }  # fmt: skip
        active = [standing for standing in outcome.standings.values() if standing.state == "active"]
        assert min(standing.generation for standing in active) > GENERATIONS
        await _assert_rotated_once_per_generation(server, outcome)
        await _assert_one_live_grant_each(server, CONNECTIONS)  # never presented twice, so not revoked either
        await _assert_expiry_is_honest(server, outcome)
        await _assert_grants_work(fleet, server, outcome)
        await _assert_lost_ones_are_shown(fleet, outcome)
        assert server.verdicts().keys() & {"reused", "repeated"} == set()


# ---- one process, killed at one place


async def test_an_answer_that_died_with_its_process_is_asked_for_again(
    endpoints: Endpoints, dot_template: str, tmp_path: Path
) -> None:
    """The repetition claims a whole life for a token that has lived a while; fairlead must not believe it."""
    async with (
        dot_server(endpoints.database_url, dot_template, tmp_path, users=1, grace_s=120, ttl_s=30) as server,
        fleet_for(endpoints.database_url, server, tmp_path, ttl_s=30, replay=GRACE) as fleet,
    ):
        standing = await _killed_once(fleet, server, "token.after_answer")

        assert (standing.state, standing.generation) == ("active", 2)
        assert [line["event"] for line in server.record() if "user" in line] == ["rotated", "repeated"]
        [live] = await server.live()
        assert live.access_expires_at is not None
        assert standing.expires_at is not None
        assert standing.expires_at <= live.access_expires_at


async def test_an_answer_in_the_journal_is_not_asked_for_again(
    endpoints: Endpoints, dot_template: str, tmp_path: Path
) -> None:
    """Without a grace the journal is all there is; here it is enough."""
    async with (
        dot_server(endpoints.database_url, dot_template, tmp_path, users=1, grace_s=0, ttl_s=30) as server,
        fleet_for(endpoints.database_url, server, tmp_path, ttl_s=30, replay=STRICT) as fleet,
    ):
        standing = await _killed_once(fleet, server, "token.after_journal")

        assert (standing.state, standing.generation) == ("active", 2)
        assert [line["event"] for line in server.record() if "user" in line] == ["rotated"]
        await _assert_one_live_grant_each(server, 1)


async def _killed_once(fleet: Fleet, server: DotServer, kill_point: str) -> Standing:
    """A process refreshes the only connection and dies at *place*; another finds out what became of it."""
    await connect_all(fleet, server, expires_in_s=1.0)
    first = await fleet.start({"FAIRLEAD_FAULT": f"{kill_point}:1:kill"})
    async with patience(WITHIN_S):
        assert await first.wait() == -signal.SIGKILL
    await fleet.start()
    [tenant] = await fleet.standings()

    async def is_known() -> bool:
        standing = (await fleet.standings())[tenant]
        return standing.state == "needs_reauth" or standing.generation > 1

    await fleet.until(is_known, WITHIN_S, "the refresh has an outcome")
    assert await fleet.stop() == [0]
    return (await fleet.standings())[tenant]


# ---- a run


async def _run(fleet: Fleet, server: DotServer) -> Outcome:
    """Connect, work, kill two processes at random moments, go on to the end, stop."""
    seed = int(os.environ.get("FAIRLEAD_SEED") or random.randrange(2**32))
    print(f"seed {seed}: FAIRLEAD_SEED={seed} repeats the draws")
    draw = random.Random(seed)
    processes = await _started(fleet, server)
    assert len(processes) == PROCESSES
    began_s = time.monotonic()
    kills = []
    for first, last in ((2, 4), (5, 8)):
        kill_after_s = CONNECTIONS * draw.uniform(first, last)
        kills.append(await _kill_one(fleet, draw, kill_after_s))
        await fleet.start()
    await fleet.until(lambda: _all_done(fleet), WITHIN_S, f"{GENERATIONS} generations of each connection")
    ran_s = time.monotonic() - began_s
    assert set(await fleet.stop()) == {0}
    return Outcome(await fleet.standings(), kills, ran_s)


async def _started(fleet: Fleet, server: DotServer) -> list[object]:
    """The grants are young when the fleet gets them: processes first, which takes them a while."""
    processes = await asyncio.gather(*(fleet.start() for _ in range(PROCESSES)))
    await connect_all(fleet, server, expires_in_s=TTL_S)
    return list(processes)


async def _kill_one(fleet: Fleet, draw: random.Random, kill_after_s: float) -> Killed:
    """Kill one of the processes that wait for an answer, once the fleet has made *after* refreshes."""

    async def far_enough() -> bool:
        return await fleet.refreshed() >= kill_after_s

    async def somebody_sends() -> bool:
        return bool(candidates := await fleet.sending()) and not numbers.append(draw.choice(candidates))

    numbers: list[int] = []
    await fleet.until(far_enough, WITHIN_S, f"{kill_after_s:.0f} refreshes")
    await fleet.until(somebody_sends, WITHIN_S, "a refresh is under way")
    return await fleet.kill(numbers[0], time.monotonic)


async def _all_done(fleet: Fleet) -> bool:
    standings = (await fleet.standings()).values()
    return all(
        standing.generation > GENERATIONS if standing.state == "active" else standing.state == "needs_reauth"
        for standing in standings
    )


# ---- what must hold


async def _assert_one_live_grant_each(server: DotServer, count: int) -> None:
    live = await server.live()
    assert len(live) == len({grant.user for grant in live}) == count
    assert all(grant.access_token is not None for grant in live)


async def _assert_rotated_once_per_generation(server: DotServer, outcome: Outcome) -> None:
    """A lost rotation is one that the server made and fairlead never learnt of, or one that never arrived."""
    server_rotations = await server.rotations()
    unknown = {
        tenant: server_rotations[tenant] - known_count for tenant, known_count in outcome.rotations().items()
    }
    assert {tenant for tenant, more in unknown.items() if more} <= outcome.lost
    assert set(unknown.values()) <= {0, 1}


async def _assert_expiry_is_honest(server: DotServer, outcome: Outcome) -> None:
    """fairlead never believes a token to live longer than the server does."""
    ends = {grant.user: grant.access_expires_at for grant in await server.live()}
    late = [
        tenant
        for tenant, standing in outcome.standings.items()
        if standing.state == "active" and standing.expires_at > ends[tenant]  # type: ignore[operator]
    ]
    assert late == []


async def _assert_grants_work(fleet: Fleet, server: DotServer, outcome: Outcome) -> None:
    """Each active one can be refreshed once more, to the token that the server holds; a lost one says so."""
    async with Fairlead.from_env({}, config=fleet.config) as fairlead:
        active = [tenant for tenant in outcome.standings if tenant not in outcome.lost]
        tokens = await asyncio.gather(*(_refreshed(fairlead, tenant) for tenant in active))
        for tenant in outcome.lost:
            with pytest.raises(ReauthRequiredError, match="lost_rotation"):
                await fairlead.refresh(tenant, PROVIDER)
    live = {grant.user: grant.access_token for grant in await server.live()}
    assert dict(zip(active, tokens, strict=True)) == {tenant: live[tenant] for tenant in active}


async def _refreshed(fairlead: Fairlead, tenant: str) -> str:
    while True:
        try:
            return (await fairlead.refresh(tenant, PROVIDER)).access_token.reveal()
        except RateLimitedError as cooling:  # refreshed a moment ago
            await asyncio.sleep(cooling.retry_after_s or 0.1)


async def _assert_lost_ones_are_shown(fleet: Fleet, outcome: Outcome) -> None:
    rows_read = await fleet.looking.fetch(
        "SELECT tenant_id FROM audit WHERE act = 'connection.needs_reauth'"
        " AND details ->> 'reason' = 'lost_rotation'"
    )
    assert sorted(row["tenant_id"] for row in rows_read) == sorted(outcome.lost)
    notices = await fleet.looking.fetch("SELECT tenant_id FROM job WHERE kind = 'event.needs_reauth'")
    assert {row["tenant_id"] for row in notices} == outcome.lost
    letters = await fleet.looking.fetch(
        "SELECT tenant_id, category, reason FROM dead_letter"
        " WHERE kind = 'token.refresh' AND status = 'pending_review'"
    )
    assert {tuple(row) for row in letters} == {
        (tenant, "permanent_auth", "lost_rotation") for tenant in outcome.lost
    }


async def _report(bench: str, fleet: Fleet, server: DotServer, outcome: Outcome) -> None:
    generations = [standing.generation - 1 for standing in outcome.standings.values()]
    verdicts = server.verdicts()
    print(
        json.dumps(
            {
                "run": bench,
                "connections": len(generations),
                "processes": PROCESSES,
                "active": CONNECTIONS - len(outcome.lost),
                "lost": len(outcome.lost),
                "in_flight_at_kills": [len(kill.in_flight) for kill in outcome.kills],
                "sent_at_kills": [len(kill.sent) for kill in outcome.kills],
                "open_at_server": [server.open_at(kill.at_s) for kill in outcome.kills],
                "generations_min": min(generations),
                "generations": sum(generations),
                "rotated": verdicts["rotated"],
                "repeated": verdicts["repeated"],
                "reused": verdicts["reused"],
                "live_grants": len(await server.live()),
                "ran_s": round(outcome.ran_s, 1),
            }
        )
    )
