"""The dead-letter processor: every branch of the policy, errors that stay where they are, counts (Q10)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

import pytest

from fairlead.engine.jobs.dead_letter import PROCESS, SPREAD_S, DeadLetterProcessor, replay_job
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import Completed, DeadLetter, Discarded, FailureRecord, NewJob, Schedule
from fairlead.errors import TransientFailureError
from fairlead.events import DeadLetterFailed, DeadLettersFull, DeadLettersProcessed, JobDiscarded
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.dead_letter import DeadLetterRules, action_in_s, first_action
from fairlead.policy.jobs.kinds import NEEDS_REAUTH
from fairlead.testing._kit.ids import CountedIds
from tests.support.engine import IDS, Recorder, a_job, half, new_job
from tests.support.process import Fleet

DAY_S = 86_400.0
CONNECTION = UUID(int=9)


class Office:
    """A processor over a fleet's database."""

    def __init__(self, fleet: Fleet, **rules: object) -> None:
        self.fleet = fleet
        self.emit = Recorder()
        self.processor = DeadLetterProcessor(
            fleet.dead_letters,
            fleet.jobs,
            ids=CountedIds(5_000_000),
            draw=half,
            emit=self.emit,
            rules=DeadLetterRules(**rules),  # type: ignore[arg-type]
        )

    async def run(self, remaining_s: Callable[[], float] = lambda: 300.0) -> dict[str, int]:
        return await self.processor.run(JobContext(a_job(PROCESS), remaining_s))

    async def dies(self, category: str = "transient_server", code: str = "boom", **fields: object) -> UUID:
        """The id of a dead letter that begins now."""
        await self.fleet.jobs.enqueue([new_job(**fields)])
        (job,) = await self.fleet.claim()
        now = self.fleet.database.now
        outcome = Discarded(
            job.job_id,
            job.lease_id,
            IDS.uuid7(),
            FailureRecord(category, code, "it failed", 0.1, job.attempt),
            connection_id=CONNECTION,
            action_in_s=action_in_s(first_action(Category(category), code, now), now),
        )
        await self.fleet.jobs.acknowledge([outcome])
        return outcome.dead_letter_id

    async def entry(self, entry_id: UUID) -> DeadLetter:
        entry = await self.fleet.dead_letters.get(entry_id)
        assert entry is not None
        return entry

    async def notices(self) -> list[NewJob]:
        """The notices enqueued so far, oldest first."""
        rows = [row for row in self.fleet.database.jobs.values() if row.kind == NEEDS_REAUTH]
        return sorted(rows, key=lambda row: row.job_id)  # type: ignore[return-value,arg-type]


@pytest.fixture
def office(fleet: Fleet) -> Office:
    return Office(fleet)


async def test_nothing_to_do(office: Office) -> None:
    assert await office.run() == {}
    assert office.emit.of(DeadLettersProcessed) == [DeadLettersProcessed({})]


async def test_a_transient_entry_is_replayed_after_its_cool_down_with_its_lineage(office: Office) -> None:
    entry_id = await office.dies(
        provider="shopify", group_key="g", priority=1, args={"a": 1}, unique_key="u", queue="default"
    )
    await office.fleet.advance(299)
    assert await office.run() == {}
    await office.fleet.advance(1)
    assert await office.run() == {"redriven": 1}
    entry = await office.entry(entry_id)
    row = office.fleet.database.jobs[entry.replay_job_id]  # type: ignore[index]
    assert (row.kind, row.tenant_id, row.provider, row.group_key) == ("work", "acme", "shopify", "g")
    assert (row.priority, row.args, row.unique_key, row.replay_of) == (1, {"a": 1}, "u", entry_id)
    assert (row.run_at - office.fleet.database.now).total_seconds() == SPREAD_S / 2
    await office.fleet.advance(3600)
    assert (await office.entry(entry_id)).replays == 1


@pytest.mark.slow
async def test_three_replays_within_the_hour_then_a_person_then_the_end(office: Office, fleet: Fleet) -> None:
    """End to end: a worker whose handler fails every time, and the processor by its schedule."""

    async def fails(context: JobContext) -> None:
        raise TransientFailureError("down")

    await fleet.schedule_store.sync_schedules([Schedule("dead letters", "*/5 * * * *", PROCESS, "fairlead")])
    process = await fleet.start(Handler("work", fails), office.processor.handler(), poll_s=10.0)
    await fleet.enqueue()
    await fleet.advance(2 * 3600)
    (row,) = fleet.database.dead_letters.values()
    assert (row.replays, row.status.value, len(row.history)) == (3, "pending_review", 16)
    assert len(process.emit.of(JobDiscarded)) == 4
    await process.kill()
    await fleet.advance(7 * DAY_S)
    assert await office.run() == {"abandoned": 1}


@pytest.mark.parametrize("category", ["permanent_config", "permanent_permission", "permanent_request"])
async def test_entry_that_needs_an_operator_is_abandoned_after_a_week(office: Office, category: str) -> None:
    entry_id = await office.dies(category)
    await office.fleet.advance(7 * DAY_S - 1)
    assert await office.run() == {}
    await office.fleet.advance(1)
    assert await office.run() == {"abandoned": 1}
    entry = await office.entry(entry_id)
    assert (entry.status, entry.resolution, entry.resolved_by) == ("abandoned", "abandoned", "fairlead")
    assert "7 days" in (entry.resolution_reason or "")
    assert await office.run() == {}


async def test_an_auth_entry_starts_its_workflow_once_and_ends_after_a_last_notice(office: Office) -> None:
    entry_id = await office.dies("permanent_auth", provider="xero")
    assert await office.run() == {"reauth_started": 1}
    (notice,) = await office.notices()
    assert (notice.tenant_id, notice.provider, notice.priority) == ("acme", "xero", 1)
    assert notice.args["dead_letter_id"] == str(entry_id)
    assert notice.args["connection_id"] == str(CONNECTION)
    assert (notice.args["reason"], notice.args["last"]) == ("it failed", False)
    assert (await office.entry(entry_id)).reauth_started_at is not None
    await office.fleet.advance(6 * DAY_S - 1)
    assert await office.run() == {}
    await office.fleet.advance(1)
    assert await office.run() == {"last_notice": 1}
    assert [row.args["last"] for row in await office.notices()] == [False, True]
    assert (await office.entry(entry_id)).last_notice_at is not None
    await office.fleet.advance(DAY_S - 1)
    assert await office.run() == {}
    await office.fleet.advance(1)
    assert await office.run() == {"abandoned": 1}
    assert len(await office.notices()) == 2


async def test_a_processor_that_was_away_for_weeks_still_gives_the_last_notice(office: Office) -> None:
    await office.dies("permanent_auth")
    await office.fleet.advance(30 * DAY_S)
    assert await office.run() == {"reauth_started": 1}
    assert await office.run() == {"last_notice": 1}
    assert await office.run() == {}
    await office.fleet.advance(DAY_S)
    assert await office.run() == {"abandoned": 1}


async def test_a_run_that_died_half_way_tells_the_customer_once(office: Office) -> None:
    """Killed between the notice and its record: the next run does both again, under the same key."""
    await office.dies("permanent_auth")
    link = office.fleet.dead_letters.link

    async def die(operation: str) -> None:
        if operation == "postpone":
            raise TransientFailureError("killed here")

    link.on_arrival = die
    assert await office.run() == {"failed": 1}
    link.on_arrival = None
    (notice,) = await office.fleet.claim(NEEDS_REAUTH)
    await office.fleet.jobs.acknowledge([Completed(notice.job_id, notice.lease_id)])  # and it was delivered
    assert await office.run() == {"reauth_started": 1}
    assert len(await office.notices()) == 1


async def test_an_entry_that_is_being_replayed_is_waited_for(office: Office) -> None:
    entry_id = await office.dies()
    await office.fleet.advance(300)
    await office.run()
    row = office.fleet.database.dead_letters[entry_id]
    row.action_due_at = office.fleet.database.now
    assert await office.run() == {"waiting": 1}
    assert row.action_due_at > office.fleet.database.now
    assert row.replays == 1


async def test_after_the_window_nothing_is_replayed_by_itself(office: Office) -> None:
    await office.dies()
    await office.fleet.advance(3601)
    assert await office.run() == {"waiting": 1}
    await office.fleet.advance(7 * DAY_S)
    assert await office.run() == {"abandoned": 1}


async def test_first_resolution_of_an_entry_wins(office: Office) -> None:
    """A person resolves the entry between the processor's look and its act."""
    entry_id = await office.dies()
    await office.fleet.advance(300)

    async def a_person(operation: str) -> None:
        if operation in ("redrive", "resolve"):
            office.fleet.dead_letters.link.on_arrival = None
            await office.fleet.dead_letters.resolve(
                entry_id, status="manual_resolved", resolution="config_fix", by="ann", reason="fixed"
            )

    office.fleet.dead_letters.link.on_arrival = a_person
    assert await office.run() == {"left": 1}
    entry = await office.entry(entry_id)
    assert (entry.status, entry.resolved_by, entry.replay_job_id) == ("manual_resolved", "ann", None)


async def test_bad_entry_stops_no_other(office: Office) -> None:
    bad = await office.dies(kind="bad")
    await office.dies()
    office.fleet.database.dead_letters[bad].category = "no such category"
    await office.fleet.advance(300)
    redrive = office.fleet.dead_letters.redrive

    async def fails_for_bad(entry_id: UUID, job: NewJob, **instants: datetime) -> bool:
        if entry_id == bad:
            raise RuntimeError("a bug")
        return await redrive(entry_id, job, **instants)

    office.fleet.database.dead_letters[bad].category = "transient_server"
    office.fleet.dead_letters.redrive = fails_for_bad  # type: ignore[method-assign]
    assert await office.run() == {"failed": 1, "redriven": 1}
    (event,) = office.emit.of(DeadLetterFailed)
    assert (event.dead_letter_id, event.tenant) == (str(bad), "acme")
    assert "a bug" in event.reason
    assert [entry.dead_letter_id for entry in await office.fleet.dead_letters.due(9)] == []  # put off


async def test_an_entry_that_fails_past_its_age_is_left_to_a_person(fleet: Fleet) -> None:
    office = Office(fleet, abandon_after_s=3600.0, notice_before_s=60.0)
    await office.dies()
    await fleet.advance(3600)

    async def broken(entry_id: UUID, **instants: object) -> bool:
        raise RuntimeError("a bug")

    fleet.dead_letters.resolve = broken  # type: ignore[method-assign,assignment]
    assert await office.run() == {"failed": 1}
    await fleet.advance(86_400)
    assert await office.run() == {}


async def test_batches_go_on_until_nothing_is_due_or_time_is_short(fleet: Fleet) -> None:
    office = Office(fleet, batch=10)
    for _ in range(35):
        await office.dies()
    await fleet.advance(300)
    times = iter([300.0, 200.0, 10.0])
    assert await office.run(lambda: next(times)) == {"redriven": 20}
    assert await office.run() == {"redriven": 15}


async def test_entries_that_stay_due_do_not_hold_a_run_for_ever(fleet: Fleet) -> None:
    office = Office(fleet, batch=5)
    for _ in range(5):
        await office.dies()
    await fleet.advance(300)

    async def broken(operation: str) -> None:
        if operation != "due":
            raise RuntimeError("read-only")

    fleet.dead_letters.link.on_arrival = broken
    with pytest.raises(RuntimeError):  # the bound's check fails too; the job is retried by its category
        await office.run()
    assert len(office.emit.of(DeadLetterFailed)) == 5


async def test_a_bound_full_of_open_entries_raises_the_alarm(fleet: Fleet) -> None:
    office = Office(fleet, bound=3, batch=2)
    for _ in range(3):
        await office.dies("permanent_config")
    await office.run()
    assert office.emit.of(DeadLettersFull) == [DeadLettersFull("default", 3, 3)]


async def test_poison_and_expired_are_never_replayed(office: Office) -> None:
    for code in ("poison", "expired"):
        await office.dies("transient_server", code)
    await office.fleet.advance(300)
    assert await office.run() == {}


async def test_work_that_is_open_already_is_not_replayed_now(office: Office) -> None:
    entry_id = await office.dies(unique_key="u")
    await office.fleet.enqueue(new_job(unique_key="u"))
    await office.fleet.advance(300)
    assert await office.run() == {"left": 1}
    assert await office.run() == {}  # and it fills no batch
    assert (await office.entry(entry_id)).replays == 0


async def test_a_lost_grant_is_told_where_it_is_condemned_so_not_here(office: Office) -> None:
    await office.dies("permanent_auth", kind="token.refresh")
    assert await office.run() == {"reauth_started": 1}
    assert await office.notices() == []


async def test_success_of_a_replay_closes_the_entry(office: Office, fleet: Fleet) -> None:
    healthy = False

    async def sometimes(context: JobContext) -> str:
        if not healthy:
            raise TransientFailureError("down", category="permanent_request")
        return "ok"

    process = await fleet.start(Handler("work", sometimes))
    await fleet.enqueue()
    await process.emit.wait_for(JobDiscarded)
    (entry,) = await fleet.dead_letters.search(
        status="pending_review", category=None, tenant_id=None, kind=None, limit=9
    )
    assert await fleet.dead_letters.redrive(entry.dead_letter_id, replay_job(entry, IDS))
    await fleet.advance(2)
    again = await office.entry(entry.dead_letter_id)
    assert (again.status, again.replay_job_id, len(again.history)) == ("pending_review", None, 2)
    healthy = True
    assert await fleet.dead_letters.redrive(entry.dead_letter_id, replay_job(entry, IDS))
    await fleet.advance(2)
    again = await office.entry(entry.dead_letter_id)
    assert (again.status, again.resolution, again.replays) == ("auto_resolved", "redrive", 2)
