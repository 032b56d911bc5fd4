"""DeadLetterStore: entries due for action, replays that close or reopen them, ends that are final (R19)."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from fairlead.engine.jobs.dead_letter import replay_job
from fairlead.engine.ports import (
    Cancelled,
    Completed,
    DeadLetter,
    DeadLetterFilter,
    Discarded,
    Job,
    Renewed,
    Rescheduled,
)
from tests.contract.stores import ANY, Stores, a_session, claimed, discarded, failure
from tests.support.engine import IDS, NOBODY, new_job


async def an_entry(
    stores: Stores, session_id: UUID, *, action_in_s: float | None = 0.0, **fields: object
) -> UUID:
    """The id of a new dead letter."""
    outcome = discarded(await claimed(stores, session_id, **fields), action_in_s=action_in_s)
    assert await stores.jobs.acknowledge([outcome])
    return outcome.dead_letter_id


async def shown(stores: Stores, dead_letter_id: UUID) -> DeadLetter:
    entry = await stores.dead_letters.get(dead_letter_id)
    assert entry is not None
    return entry


async def test_due_for_action_oldest_first(stores: Stores) -> None:
    session_id = await a_session(stores)
    first = await an_entry(stores, session_id)
    await stores.pass_time(1)
    second = await an_entry(stores, session_id)
    await an_entry(stores, session_id, action_in_s=None)
    later = await an_entry(stores, session_id, action_in_s=100)
    assert [entry.dead_letter_id for entry in await stores.dead_letters.due(9)] == [first, second]
    assert [entry.dead_letter_id for entry in await stores.dead_letters.due(1)] == [first]
    await stores.pass_time(101)
    due = await stores.dead_letters.due(9)
    assert [entry.dead_letter_id for entry in due] == [first, second, later]
    assert 102 <= due[0].age_s < 160


async def test_postponing_and_what_was_done(stores: Stores) -> None:
    session_id = await a_session(stores)
    entry_id = await an_entry(stores, session_id)
    await stores.dead_letters.postpone(entry_id, 50.0, reauth_started=True)
    assert await stores.dead_letters.due(9) == []
    entry = await shown(stores, entry_id)
    assert entry.reauth_started_at is not None
    assert entry.last_notice_at is None
    await stores.pass_time(51)
    assert len(await stores.dead_letters.due(9)) == 1
    await stores.dead_letters.postpone(entry_id, None, notified=True)
    assert await stores.dead_letters.due(9) == []
    entry = await shown(stores, entry_id)
    assert entry.last_notice_at is not None
    assert entry.last_notice_at > entry.reauth_started_at  # type: ignore[operator]


async def test_a_replay_that_succeeds_closes_its_entry(stores: Stores) -> None:
    session_id = await a_session(stores)
    entry_id = await an_entry(stores, session_id)
    job = new_job(replay_of=entry_id)
    assert await stores.dead_letters.redrive(entry_id, job)
    assert not await stores.dead_letters.redrive(entry_id, new_job(replay_of=entry_id))
    entry = await shown(stores, entry_id)
    assert (entry.status, entry.replays, entry.replay_job_id) == ("pending_review", 1, job.job_id)
    (replay,) = await stores.jobs.claim(ANY, 9, session_id)
    assert (replay.job_id, replay.replay_of) == (job.job_id, entry_id)
    await stores.jobs.acknowledge([Completed(replay.job_id, replay.lease_id)])
    entry = await shown(stores, entry_id)
    assert (entry.status, entry.resolution) == ("auto_resolved", "redrive")
    assert entry.resolved_by
    assert entry.resolution_reason
    assert entry.resolved_at is not None


async def test_an_entry_that_a_person_replays_is_resolved_by_that_person(stores: Stores) -> None:
    session_id = await a_session(stores)
    entry_id = await an_entry(stores, session_id)
    assert await stores.dead_letters.redrive(entry_id, new_job(replay_of=entry_id), by="cli:ann")
    (replay,) = await stores.jobs.claim(ANY, 9, session_id)
    await stores.jobs.acknowledge([Completed(replay.job_id, replay.lease_id)])
    entry = await shown(stores, entry_id)
    assert (entry.status, entry.resolution, entry.resolved_by) == ("manual_resolved", "redrive", "cli:ann")


async def test_a_replay_that_fails_reopens_its_entry_and_makes_no_second(stores: Stores) -> None:
    session_id = await a_session(stores)
    entry_id = await an_entry(stores, session_id)
    for replays in (1, 2):
        assert await stores.dead_letters.redrive(entry_id, new_job(replay_of=entry_id))
        (replay,) = await stores.jobs.claim(ANY, 9, session_id)
        again = Discarded(
            replay.job_id, replay.lease_id, IDS.uuid7(), failure(replay, code="again"), action_in_s=300
        )
        await stores.pass_time(1)
        assert await stores.jobs.acknowledge([again])
        entry = await shown(stores, entry_id)
        assert (entry.status, entry.replays, entry.replay_job_id) == ("pending_review", replays, None)
        assert entry.code == "again"
        assert len(entry.history) == replays + 1
        assert entry.last_at > entry.first_at
        assert await stores.dead_letters.get(again.dead_letter_id) is None
    assert await stores.dead_letters.due(9) == []
    assert await stores.dead_letters.open_count("default") == 1


async def test_a_replay_begins_where_the_last_run_came_to(stores: Stores) -> None:
    session_id = await a_session(stores)
    job = await claimed(stores, session_id, args={"of": "orders"})
    dead = replace(discarded(job), args={"of": "orders", "page": 1})
    assert await stores.jobs.acknowledge([dead])
    entry_id = dead.dead_letter_id

    async def replay() -> Job:
        entry = await shown(stores, entry_id)
        assert await stores.dead_letters.redrive(entry_id, replay_job(entry, IDS))
        (claimed_job,) = await stores.jobs.claim(ANY, 9, session_id)
        return claimed_job

    first = await replay()
    assert first.args == {"of": "orders", "page": 1}
    rescheduled = Rescheduled(first.job_id, first.lease_id, 0.0, args={"of": "orders", "page": 2})
    assert await stores.jobs.acknowledge([rescheduled])
    (first,) = await stores.jobs.claim(ANY, 9, session_id)
    assert await stores.jobs.acknowledge([discarded(first)]), "it saved nothing more"
    second = await replay()
    assert second.args == {"of": "orders", "page": 2}
    died = replace(discarded(second), args={"of": "orders", "page": 3})
    stranger = await claimed(stores, session_id, args={"page": 9})
    assert len(await stores.jobs.acknowledge([discarded(stranger), died])) == 2
    entry = await shown(stores, entry_id)
    assert (entry.args, entry.replay_job_id) == ({"of": "orders", "page": 3}, None)
    assert len(entry.history) == 3, "it was reopened, too"


async def test_a_replay_whose_entry_was_closed_leaves_its_args_alone(stores: Stores) -> None:
    session_id = await a_session(stores)
    entry_id = await an_entry(stores, session_id, args={"page": 1})
    assert await stores.dead_letters.redrive(entry_id, new_job(replay_of=entry_id, args={"page": 1}))
    (replay,) = await stores.jobs.claim(ANY, 9, session_id)
    resolve = stores.dead_letters.resolve
    assert await resolve(
        entry_id, status="manual_resolved", resolution="config_fix", by="ann", reason="enough"
    )
    died = replace(discarded(replay), args={"page": 2})
    assert await stores.jobs.acknowledge([died])
    assert (await shown(stores, entry_id)).args == {"page": 1}
    assert (await shown(stores, died.dead_letter_id)).args == {"page": 2}


async def test_a_key_that_has_lapsed_keeps_out_no_replay(stores: Stores) -> None:
    """Whoever had it last is finished, and kept it for as long as he was asked to."""
    session_id = await a_session(stores, lease_s=1e6)
    key = {"unique_key": "u", "unique_for_s": 60.0}
    entry_id = await an_entry(stores, session_id, **key)
    await stores.pass_time(61)
    last = await claimed(stores, session_id, **key)
    assert await stores.jobs.acknowledge([Completed(last.job_id, last.lease_id)])
    replay = new_job(unique_key="u", replay_of=entry_id)
    assert not await stores.dead_letters.redrive(entry_id, replay)
    await stores.pass_time(61)
    assert await stores.dead_letters.redrive(entry_id, replay)


async def test_a_replay_inherits_for_how_long_its_key_is_kept(stores: Stores) -> None:
    session_id = await a_session(stores, lease_s=1e6)
    entry_id = await an_entry(stores, session_id, unique_key="u", unique_for_s=60.0)
    assert await stores.dead_letters.redrive(entry_id, new_job(unique_key="u", replay_of=entry_id))
    (replay,) = await stores.jobs.claim(ANY, 1, session_id)
    assert await stores.jobs.acknowledge([Completed(replay.job_id, replay.lease_id)])
    assert not (await stores.jobs.enqueue([new_job(unique_key="u")]))[0].inserted
    await stores.pass_time(61)
    assert (await stores.jobs.enqueue([new_job(unique_key="u")]))[0].inserted


async def test_work_that_is_open_already_needs_no_replay(stores: Stores) -> None:
    session_id = await a_session(stores)
    entry_id = await an_entry(stores, session_id, unique_key="u")
    (newer,) = await stores.jobs.enqueue([new_job(unique_key="u")])
    assert not await stores.dead_letters.redrive(entry_id, new_job(unique_key="u", replay_of=entry_id))
    entry = await shown(stores, entry_id)
    assert (entry.status, entry.replays, entry.replay_job_id) == ("pending_review", 0, None)
    assert [job.job_id for job in await stores.jobs.claim(ANY, 9, session_id)] == [newer.job_id]


async def test_the_same_work_that_dies_twice_is_one_entry(stores: Stores) -> None:
    session_id = await a_session(stores)
    first = await an_entry(stores, session_id, unique_key="refresh:1", args={"since": 1})
    assert await stores.dead_letters.redrive(first, replay_job(await shown(stores, first), IDS))
    (replay,) = await stores.jobs.claim(ANY, 9, session_id)
    assert await stores.jobs.acknowledge([discarded(replay)])
    await stores.dead_letters.postpone(first, None, reauth_started=True, notified=True)
    letter = await shown(stores, first)
    await stores.pass_time(100)
    fields = {"unique_key": "refresh:1", "args": {"since": 2}, "priority": 0, "group_key": "g"}
    again = discarded(await claimed(stores, session_id, **fields), action_in_s=5.0)
    assert await stores.jobs.acknowledge([again])
    assert await stores.dead_letters.get(again.dead_letter_id) is None
    entry = await shown(stores, first)
    assert (entry.job_id, entry.lineage_id, len(entry.history)) == (again.job_id, again.job_id, 3)
    assert (entry.args, entry.priority, entry.group_key) == ({"since": 2}, 0, "g")
    progress = (entry.replays, entry.reauth_started_at, entry.last_notice_at)
    assert progress == (0, None, None), "it is tried like a new one"
    assert entry.age_s < 60

    closing = {"status": "abandoned", "resolution": "abandoned", "by": "ann", "reason": "old"}
    assert await stores.dead_letters.resolve(first, **closing, last_at=letter.last_at) is None
    assert not await stores.dead_letters.redrive(first, replay_job(letter, IDS), last_at=letter.last_at)
    await stores.dead_letters.postpone(first, None, last_at=letter.last_at)
    await stores.pass_time(6)
    assert [due.dead_letter_id for due in await stores.dead_letters.due(9)] == [first], "as it was seen"
    assert await stores.dead_letters.resolve(
        first, status="manual_resolved", resolution="config_fix", by="test", reason="mended"
    )
    third = await an_entry(stores, session_id, unique_key="refresh:1")
    assert (await shown(stores, third)).status == "pending_review", "a closed entry takes nothing in"


async def test_a_replay_that_is_cancelled_gives_its_entry_back(stores: Stores) -> None:
    session_id = await a_session(stores)
    entry_id = await an_entry(stores, session_id)
    await stores.dead_letters.redrive(entry_id, new_job(replay_of=entry_id))
    (replay,) = await stores.jobs.claim(ANY, 9, session_id)
    await stores.jobs.acknowledge([Cancelled(replay.job_id, replay.lease_id, "not wanted")])
    entry = await shown(stores, entry_id)
    assert (entry.status, entry.replay_job_id) == ("pending_review", None)
    assert [due.dead_letter_id for due in await stores.dead_letters.due(9)] == [entry_id]


@pytest.mark.parametrize(
    ("status", "resolution"), [("manual_resolved", "config_fix"), ("abandoned", "abandoned")]
)
async def test_an_end_is_final(stores: Stores, status: str, resolution: str) -> None:
    session_id = await a_session(stores)
    entry_id = await an_entry(stores, session_id)
    resolve = stores.dead_letters.resolve
    assert await resolve(entry_id, status=status, resolution=resolution, by="ann", reason="fixed")
    assert not await resolve(entry_id, status=status, resolution=resolution, by="bob", reason="again")
    assert not await resolve(NOBODY, status=status, resolution=resolution, by="bob", reason="again")
    assert not await stores.dead_letters.redrive(entry_id, new_job(replay_of=entry_id))
    await stores.dead_letters.postpone(entry_id, 0.0)
    assert await stores.dead_letters.due(9) == []
    entry = await shown(stores, entry_id)
    assert (entry.status, entry.resolved_by, entry.resolution_reason) == (status, "ann", "fixed")


@pytest.mark.parametrize("is_started", [False, True])
async def test_an_entry_that_is_given_up_ends_its_replay(stores: Stores, is_started: bool) -> None:
    session_id = await a_session(stores)
    entry_id = await an_entry(stores, session_id)
    replay = new_job(replay_of=entry_id, delay_s=0.0 if is_started else 60.0)
    assert await stores.dead_letters.redrive(entry_id, replay)
    claims = await stores.jobs.claim(ANY, 9, session_id)
    assert len(claims) == is_started
    closing = {"status": "abandoned", "resolution": "abandoned", "by": "ann", "reason": "old"}
    closed = await stores.dead_letters.resolve(entry_id, **closing)
    assert closed == ("running" if is_started else "cancelled")
    if is_started:
        leases = frozenset({claims[0].lease_id})
        assert await stores.sessions.heartbeat(session_id, [replay.job_id]) == Renewed(leases)
        assert await stores.jobs.acknowledge([discarded(claims[0])])
    view = await stores.jobs.get(replay.job_id)
    assert view is not None
    assert (view.state, await stores.dead_letters.open_count("default")) == ("cancelled", 0)


async def test_entries_whose_work_is_under_way_are_told_from_those_at_rest(stores: Stores) -> None:
    session_id = await a_session(stores)
    replayed = await an_entry(stores, session_id)
    letter_id = await an_entry(stores, session_id, unique_key="u")
    rests = await an_entry(stores, session_id, unique_key="v")
    assert await stores.dead_letters.redrive(replayed, new_job(replay_of=replayed, delay_s=60.0))
    await stores.jobs.enqueue([new_job(unique_key="u")])
    everything = DeadLetterFilter()
    letters = await stores.dead_letters.find(everything, limit=9, oldest_first=True)
    assert [entry.dead_letter_id for entry in letters] == [replayed, letter_id, rests]
    letters = await stores.dead_letters.find(everything, limit=1, oldest_first=True, at_rest=True)
    assert [entry.dead_letter_id for entry in letters] == [rests]


async def test_dead_letters_are_searched_and_counted(stores: Stores) -> None:
    session_id = await a_session(stores)
    letter_id = await an_entry(stores, session_id)
    await an_entry(stores, session_id, tenant_id="other", queue="default")
    await stores.dead_letters.resolve(
        letter_id, status="abandoned", resolution="abandoned", by="x", reason="y"
    )
    everything = {"status": None, "category": None, "tenant_id": None, "kind": None, "limit": 9}
    search = stores.dead_letters.search
    assert len(await search(**everything)) == 2  # type: ignore[arg-type]
    assert [e.dead_letter_id for e in await search(**(everything | {"status": "abandoned"}))] == [letter_id]  # type: ignore[arg-type]
    assert len(await search(**(everything | {"tenant_id": "other"}))) == 1  # type: ignore[arg-type]
    assert await search(**(everything | {"category": "permanent_auth"})) == []  # type: ignore[arg-type]
    assert dict(await stores.dead_letters.counts()) == {"transient_server": 1}
    assert await stores.dead_letters.open_count("default") == 1
    assert await stores.dead_letters.get(NOBODY) is None


async def test_entries_are_found_page_by_page(stores: Stores) -> None:
    session_id = await a_session(stores)
    ids = []
    for tenant_id in "aabab":
        ids.append(await an_entry(stores, session_id, tenant_id=tenant_id, kind=f"kind-{tenant_id}"))
        await stores.pass_time(10)
    find = stores.dead_letters.find
    everything = DeadLetterFilter()

    async def find_ids(letter_filter: DeadLetterFilter, limit: int = 9, **page: object) -> list[UUID]:
        return [entry.dead_letter_id for entry in await find(letter_filter, limit=limit, **page)]  # type: ignore[arg-type]

    assert await find_ids(everything) == ids[::-1]
    assert await find_ids(everything, oldest_first=True) == ids
    assert await find_ids(everything, 2, oldest_first=True, cursor=ids[1]) == ids[2:4]
    assert await find_ids(everything, 2, cursor=ids[3]) == [ids[2], ids[1]]
    assert await find_ids(everything, cursor=ids[0]) == []
    of_b = DeadLetterFilter(tenant_id="b", status="pending_review", category="transient_server", code="boom")
    assert await find_ids(of_b, oldest_first=True) == [ids[2], ids[4]]
    assert await find_ids(replace(of_b, older_than_s=15.0)) == [ids[2]]
    for other in ({"kind": "kind-a"}, {"queue": "mail"}, {"provider": "hubspot"}, {"code": "http_503"}):
        assert await find_ids(replace(of_b, **other)) == []


async def test_entries_are_counted_by_what_they_share(stores: Stores) -> None:
    session_id = await a_session(stores)
    for tenant_id in "bab":
        await an_entry(stores, session_id, tenant_id=tenant_id, provider="xero" if tenant_id == "a" else None)
        await stores.pass_time(10)
    group = stores.dead_letters.group
    by_tenant = await group(DeadLetterFilter(), "tenant_id", 9)
    assert [(group.value, group.entries) for group in by_tenant] == [("b", 2), ("a", 1)]
    assert 30 <= by_tenant[0].oldest_age_s < 60
    assert len(await group(DeadLetterFilter(), "tenant_id", 1)) == 1
    by_provider = await group(DeadLetterFilter(), "provider", 9)
    assert [(group.value, group.entries) for group in by_provider] == [(None, 2), ("xero", 1)]
    for by in ("category", "code", "kind", "queue", "status"):
        assert [group.entries for group in await group(DeadLetterFilter(), by, 9)] == [3]
    assert await group(DeadLetterFilter(status="abandoned"), "code", 9) == []


async def test_pruning_never_takes_open_entries(stores: Stores) -> None:
    session_id = await a_session(stores)
    closed = [await an_entry(stores, session_id) for _ in range(3)]
    for _ in range(2):
        await an_entry(stores, session_id)
    for entry_id in closed:
        await stores.dead_letters.resolve(
            entry_id, status="abandoned", resolution="abandoned", by="x", reason="y"
        )
    assert await stores.dead_letters.prune(1000, 5, 100) == 0
    assert await stores.dead_letters.prune(1000, 4, 100) == 1  # beyond the bound, closed ones go early
    assert await stores.dead_letters.closed_count(1000) == 0
    await stores.pass_time(1001)
    assert await stores.dead_letters.closed_count(1000) == 2
    assert await stores.dead_letters.prune(1000, 4, 1) == 1
    assert await stores.dead_letters.prune(1000, 0, 100) == 1
    assert await stores.dead_letters.prune(1000, 0, 100) == 0
    assert await stores.dead_letters.open_count("default") == 2
