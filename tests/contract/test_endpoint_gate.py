"""EndpointGate: rate, breaker and pause of token endpoints, shared by the fleet (R13)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairlead.engine.ports import EndpointKey, EndpointLimits, EndpointPermit, EndpointRefusal
from tests.contract.stores import Stores

KEY = EndpointKey("mercadolibre", "app")
UNLIMITED = EndpointLimits(per_s=None, burst=1.0, breaker_failures=3, open_s=60, open_max_s=200, probe_s=50)
SLOW = EndpointLimits(per_s=0.1, burst=3.0)


async def refused(stores: Stores, limits: EndpointLimits = UNLIMITED, secret: str = "f") -> EndpointRefusal:
    answer = await stores.endpoints.admit(KEY, limits, secret)
    assert isinstance(answer, EndpointRefusal)
    return answer


async def admitted(stores: Stores, limits: EndpointLimits = UNLIMITED, secret: str = "f") -> EndpointPermit:
    answer = await stores.endpoints.admit(KEY, limits, secret)
    assert isinstance(answer, EndpointPermit)
    return answer


async def fail(stores: Stores, times: int = 1, *, permit: EndpointPermit | None = None) -> list[float | None]:
    return [
        await stores.endpoints.record(KEY, UNLIMITED, permit or EndpointPermit(), False, "http_500")
        for _ in range(times)
    ]


async def seen(stores: Stores, key: EndpointKey = KEY) -> dict[str, object]:
    rows = {(row["provider"], row["client_id"]): dict(row) for row in await stores.endpoints.search()}
    return rows[key.provider, key.client_id]


# ---- rate ------------------------------------------------------------------------------------------


async def test_without_a_rate_all_may_send(stores: Stores) -> None:
    answers = await asyncio.gather(*(stores.endpoints.admit(KEY, UNLIMITED, "f") for _ in range(20)))
    assert answers == [EndpointPermit()] * 20


async def test_one_bucket_for_all_exactly(stores: Stores) -> None:
    answers = await asyncio.gather(*(stores.endpoints.admit(KEY, SLOW, "f") for _ in range(10)))
    waits = [answer for answer in answers if isinstance(answer, EndpointRefusal)]
    assert (len(answers) - len(waits), {answer.by for answer in waits}) == (3, {"rate"})
    assert (await refused(stores, SLOW)).retry_after_s == pytest.approx(10, abs=2)
    other = await stores.endpoints.admit(EndpointKey("mercadolibre", "app2"), SLOW, "f")
    assert isinstance(other, EndpointPermit)
    await stores.pass_time(25)
    for _ in range(2):
        await admitted(stores, SLOW)
    assert (await refused(stores, SLOW)).retry_after_s == pytest.approx(5, abs=2)


async def test_a_bucket_holds_no_more_than_its_burst(stores: Stores) -> None:
    await admitted(stores, SLOW)
    await stores.pass_time(10_000)
    for _ in range(3):
        await admitted(stores, SLOW)
    await refused(stores, SLOW)


async def test_too_many_empties_the_bucket_until_the_hint_is_over(stores: Stores) -> None:
    await stores.endpoints.penalise(KEY, SLOW, 100.0)
    assert await stores.endpoints.search() == [], "nobody has sent there yet"
    await admitted(stores, SLOW)
    await stores.endpoints.penalise(KEY, SLOW, 100.0)
    await stores.endpoints.penalise(KEY, SLOW, 20.0)
    assert (await refused(stores, SLOW)).retry_after_s == pytest.approx(110, abs=2), "the longer one stays"
    await stores.pass_time(100)
    assert (await refused(stores, SLOW)).retry_after_s == pytest.approx(10, abs=2)
    await stores.pass_time(12)
    await admitted(stores, SLOW)
    await refused(stores, SLOW)
    await stores.endpoints.penalise(KEY, UNLIMITED, 1e6)
    await admitted(stores)


# ---- breaker ---------------------------------------------------------------------------------------


async def test_enough_failures_open_the_breaker_once(stores: Stores) -> None:
    assert await fail(stores) == [None], "of an endpoint that nobody has seen"
    assert await admitted(stores) == EndpointPermit()
    opened = await fail(stores, 5)
    assert [opened_s is not None for opened_s in opened] == [False, False, True, False, False]
    assert opened[2] == pytest.approx(60)
    answer = await refused(stores)
    assert (answer.by, answer.reason) == ("breaker", "breaker open: http_500")
    assert answer.retry_after_s == pytest.approx(60, abs=2)
    row = await seen(stores)
    assert (row["state"], row["reason"], row["failures"]) == ("open", "http_500", 5)
    assert row["open_for_s"] == pytest.approx(60, abs=2)


async def test_an_opening_is_told_though_the_threshold_was_lowered_meanwhile(stores: Stores) -> None:
    """By the settings of a process that counts fewer, more failures than these are there already."""
    await admitted(stores)
    assert await fail(stores, 2) == [None, None]
    strict = replace(UNLIMITED, breaker_failures=1)
    opened_s = await stores.endpoints.record(KEY, strict, EndpointPermit(), False, "http_500")
    assert opened_s == pytest.approx(60)
    assert (await seen(stores))["state"] == "open"
    assert await stores.endpoints.record(KEY, strict, EndpointPermit(), False, "http_500") is None, (
        "told once"
    )


async def test_a_success_forgets_failures(stores: Stores) -> None:
    await admitted(stores)
    await fail(stores, 2)
    assert await admitted(stores) == EndpointPermit(dirty=True)
    assert await stores.endpoints.record(KEY, UNLIMITED, EndpointPermit(dirty=True), True, "") is None
    assert await admitted(stores) == EndpointPermit()
    assert await fail(stores, 2) == [None, None]
    assert (await seen(stores))["state"] == "closed"


async def test_one_probe_in_the_fleet_and_its_word_counts(stores: Stores) -> None:
    await admitted(stores)
    await fail(stores, 3)
    await stores.pass_time(61)
    answers = await asyncio.gather(*(stores.endpoints.admit(KEY, UNLIMITED, "f") for _ in range(5)))
    probes = [answer for answer in answers if isinstance(answer, EndpointPermit)]
    assert probes == [EndpointPermit(probe=True, dirty=True)]
    waits = [answer for answer in answers if isinstance(answer, EndpointRefusal)]
    assert [answer.by for answer in waits] == ["breaker"] * 4
    assert (await refused(stores)).retry_after_s == pytest.approx(5, abs=2), "it answers soon"
    assert await fail(stores, permit=probes[0]) == [pytest.approx(120)], "twice as long"
    await stores.pass_time(121)
    probe = await admitted(stores)
    assert probe.probe
    assert await fail(stores, permit=probe) == [pytest.approx(200)], "and no longer than the longest"
    await stores.pass_time(201)
    assert await stores.endpoints.record(KEY, UNLIMITED, await admitted(stores), True, "") is None
    assert await admitted(stores) == EndpointPermit()
    assert (await seen(stores))["open_for_s"] is None


async def test_a_probe_that_never_answers_makes_room_for_another(stores: Stores) -> None:
    await admitted(stores)
    await fail(stores, 3)
    await stores.pass_time(61)
    assert (await admitted(stores)).probe
    await stores.pass_time(40)
    assert (await refused(stores)).by == "breaker"
    await stores.pass_time(15)
    assert (await admitted(stores)).probe


async def test_a_failure_of_others_does_not_prolong_it(stores: Stores) -> None:
    await admitted(stores)
    await fail(stores, 3)
    await stores.pass_time(50)
    assert await fail(stores) == [None]
    assert (await refused(stores)).retry_after_s == pytest.approx(10, abs=2)


# ---- pause -----------------------------------------------------------------------------------------


async def test_a_pause_is_for_the_secret_that_was_refused(stores: Stores) -> None:
    assert await stores.endpoints.pause(KEY, "invalid_client", "f1")
    assert not await stores.endpoints.pause(KEY, "invalid_client", "f1"), "told once"
    answer = await refused(stores, secret="f1")
    assert (answer.by, answer.retry_after_s, answer.reason) == ("pause", 60.0, "paused: invalid_client")
    assert (await seen(stores))["state"] == "paused"
    assert isinstance(await stores.endpoints.admit(KEY, UNLIMITED, "f2"), EndpointPermit)
    assert (await seen(stores))["state"] == "closed"
    assert (await refused(stores, secret="f1")).by == "pause", "that one stays refused"
    assert await stores.endpoints.pause(KEY, "invalid_client", "f2"), "another secret is news"


async def test_who_has_his_pauses_elsewhere_is_not_held_by_one_and_ends_none(stores: Stores) -> None:
    await admitted(stores, SLOW, secret="f1")
    await stores.endpoints.pause(KEY, "invalid_client", "f1")
    assert isinstance(await stores.endpoints.admit(KEY, SLOW, None), EndpointPermit)
    assert (await seen(stores))["state"] == "paused"
    assert (await refused(stores, secret="f1")).by == "pause"
    rated = [await stores.endpoints.admit(KEY, SLOW, None) for _ in range(4)]
    assert isinstance(rated[-1], EndpointRefusal)
    assert rated[-1].by == "rate"


async def test_a_pause_is_over_when_a_person_says_so(stores: Stores) -> None:
    assert not await stores.endpoints.resume(KEY)
    await stores.endpoints.pause(KEY, "invalid_client", "f")
    assert await stores.endpoints.resume(KEY)
    assert not await stores.endpoints.resume(KEY)
    await admitted(stores)
    await fail(stores, 3)
    assert await stores.endpoints.resume(KEY), "a breaker is lifted, too"
    assert await admitted(stores) == EndpointPermit()


async def test_health_does_not_lift_a_pause(stores: Stores) -> None:
    await admitted(stores)
    await fail(stores)
    await stores.endpoints.pause(KEY, "invalid_client", "f")
    await stores.endpoints.record(KEY, UNLIMITED, EndpointPermit(), True, "")
    assert (await refused(stores)).by == "pause"
    assert await fail(stores, 9) == [None] * 9
    row = await seen(stores)
    assert (row["state"], row["failures"], row["open_for_s"]) == ("paused", 9, None)


async def test_endpoints_are_listed_by_name(stores: Stores) -> None:
    assert await stores.endpoints.search() == []
    for key in (EndpointKey("xero", "b"), EndpointKey("xero", "a"), EndpointKey("shopify", "c")):
        await stores.endpoints.admit(key, UNLIMITED, "f")
    rows = await stores.endpoints.search()
    assert [row["client_id"] for row in rows] == ["c", "a", "b"]
    assert {(row["state"], row["reason"], row["failures"]) for row in rows} == {("closed", None, 0)}
