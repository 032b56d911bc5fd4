"""What all rude APIs share: the ledger, and what goes wrong when a test says so."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from fairlead.errors import InvalidConfigError
from fairlead.testing import ManualClock
from fairlead.testing.api import (
    APIS,
    HubSpotApi,
    MercadoLibreApi,
    NetSuiteApi,
    SalesforceApi,
    ShopifyApi,
    ShopLimits,
    StripeApi,
)
from tests.contract.api_calls import calling, token

ME = "/users/me"
SOMETHING = {
    "hubspot": "/crm/v3/objects/contacts",
    "mercadolibre": ME,
    "netsuite": "/services/rest/record/v1/salesOrder",
    "salesforce": "/services/data/v62.0/query",
    "shopify": "/admin/api/2026-10/orders.json",
    "stripe": "/v1/charges",
}


# ---- the ledger ------------------------------------------------------------------------------------


async def test_the_ledger_tells_what_came_and_what_became_of_it() -> None:
    clock = ManualClock(start=100)
    async with MercadoLibreApi(calls=1, per_s=1, clock=clock) as api, calling(api) as call:
        await call(f"{ME}?a=1", **token("t1"))
        await clock.advance(0.25)
        await call(ME, **token("t2"))
        await call("/nowhere")
        first, second, third = api.ledger.arrivals
        assert (first.target, first.authorization) == (f"/acme{ME}?a=1", "Bearer t1")
        assert (first.begun_mono, first.admitted_mono, first.ended_mono, first.status) == (100, 100, 100, 200)
        assert (second.begun_mono, second.admitted_mono, second.status, second.refused) == (
            100.25, None, 429, "calls",
        )  # fmt: skip
        assert (third.status, third.refused) == (404, None)
        assert "t2" not in repr(second)
        assert (api.ledger.arrived(), api.ledger.admitted(), api.ledger.refused()) == (3, 1, 1)
        assert api.ledger.complete


async def test_the_ledger_knows_who_was_in_flight_at_any_time() -> None:
    clock = ManualClock()
    async with NetSuiteApi(limit=9, clock=clock) as api, calling(api) as call:
        hold = api.hold(times=2)
        inside = []
        for _ in range(2):
            inside.append(asyncio.create_task(call(SOMETHING["netsuite"])))
            await hold.reached(len(inside))
            await clock.advance(1)
        async with calling(api, "globex") as other:
            await other(SOMETHING["netsuite"])
        hold.release()
        await asyncio.gather(*inside)
        assert [api.ledger.in_flight_at(at_s, "acme") for at_s in (0, 0.5, 1.5, 2)] == [1, 1, 2, 0]
        assert (api.ledger.most_in_flight("acme"), api.ledger.most_in_flight()) == (2, 3)
        assert api.ledger.in_flight() == 0


async def test_a_client_that_leaves_is_still_in_flight() -> None:
    async with NetSuiteApi() as api, calling(api) as call:
        hold = api.hold()
        task = asyncio.create_task(call(SOMETHING["netsuite"]))
        await hold.reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await call(SOMETHING["netsuite"])
        assert (api.ledger.in_flight(), api.ledger.most_in_flight()) == (1, 2)


async def test_the_ledger_judges_a_rate() -> None:
    clock = ManualClock()
    async with MercadoLibreApi(clock=clock) as api, calling(api) as call:
        for _ in range(5):
            await call(ME)
            await clock.advance(1)
        assert api.ledger.over(1, 1) == 0
        assert api.ledger.over(1, 0.5) == 2


# ---- switches --------------------------------------------------------------------------------------


async def test_a_storm_leaves_a_tenth_of_every_limit_and_ends() -> None:
    clock = ManualClock()
    limits = ShopLimits(calls=40, calls_per_s=10)
    async with ShopifyApi(limits, takes_s=0, clock=clock) as api, calling(api) as call:
        path = "/admin/api/rest.json"
        api.switch(capacity=0.1)
        assert [(await call(path)).status for _ in range(5)] == [200] * 4 + [429]
        refused = await call(path)
        assert refused.headers["x-shopify-shop-api-call-limit"] == ("4/4",)
        await clock.advance(1)
        assert [(await call(path)).status for _ in range(2)] == [200, 429]
        await clock.advance(2)
        api.calm()  # what came back in these two seconds came at a tenth
        assert [(await call(path)).status for _ in range(3)] == [200, 200, 429]
        await clock.advance(4)
        assert [(await call(path)).status for _ in range(41)].count(200) == 40


@pytest.mark.parametrize(
    ("api", "path", "calls"),
    [
        (HubSpotApi(limit=20, clock=ManualClock()), SOMETHING["hubspot"], 2),
        (HubSpotApi(daily=20, clock=ManualClock()), SOMETHING["hubspot"], 2),
        (StripeApi(per_s=20, clock=ManualClock()), SOMETHING["stripe"], 2),
        (SalesforceApi(daily=20, clock=ManualClock()), SOMETHING["salesforce"], 2),
        (MercadoLibreApi(calls=20, clock=ManualClock()), ME, 2),
    ],
)
async def test_a_storm_is_one_for_every_vendor(api: Any, path: str, calls: int) -> None:
    async with api, calling(api) as call:
        api.switch(capacity=0.1)
        statuses = [(await call(path)).status for _ in range(calls + 1)]
        assert statuses[:calls] == [200] * calls
        assert statuses[calls] in (403, 429)


async def test_a_storm_leaves_a_tenth_of_the_slots_but_never_none() -> None:
    async with NetSuiteApi(limit=5) as api, calling(api) as call:
        api.switch(capacity=0.1)
        hold = api.hold()
        inside = asyncio.create_task(call(SOMETHING["netsuite"]))
        await hold.reached()
        assert (await call(SOMETHING["netsuite"])).status == 429
        hold.release()
        assert (await inside).status == 200


async def test_an_overloaded_api_makes_calls_stand_in_line() -> None:
    clock = ManualClock()
    async with NetSuiteApi(limit=9, takes_s=1, workers=2, clock=clock) as api, calling(api) as call:
        tasks = [asyncio.create_task(call(SOMETHING["netsuite"])) for _ in range(4)]
        while api.ledger.in_flight() < 4:
            await asyncio.sleep(0)
        assert clock.sleepers == 2
        await clock.advance(1)
        assert (api.ledger.in_flight(), clock.sleepers) == (2, 2)
        await clock.advance(1)
        assert {reply.status for reply in await asyncio.gather(*tasks)} == {200}


@pytest.mark.parametrize("back", ["switch", "calm"])
async def test_workers_that_come_back_take_up_what_waits(back: str) -> None:
    clock = ManualClock()
    async with NetSuiteApi(limit=30, takes_s=1, workers=20, clock=clock) as api, calling(api) as call:
        api.switch(capacity=0.1)
        tasks = [asyncio.create_task(call(SOMETHING["netsuite"])) for _ in range(3)]
        while api.ledger.in_flight() < 3:
            await asyncio.sleep(0)
        assert clock.sleepers == 2
        if back == "calm":
            api.calm()
        else:
            api.switch(capacity=1)
        while clock.sleepers < 3:
            await asyncio.sleep(0)
        await clock.advance(1)
        assert {reply.status for reply in await asyncio.gather(*tasks)} == {200}


async def test_flapping_fails_a_half_drawn_from_the_seed() -> None:
    replies = []
    for _ in range(2):
        async with MercadoLibreApi(calls=1000, seed=3) as api, calling(api) as call:
            api.switch(failing=0.5)
            replies.append([(await call(ME)).status for _ in range(100)])
            assert api.ledger.admitted() == replies[-1].count(200)
    assert replies[0] == replies[1]
    assert set(replies[0]) == {200, 503}
    assert 30 < replies[0].count(503) < 70


async def test_refused_call_is_not_counted_as_carried_out() -> None:
    async with MercadoLibreApi(calls=1, clock=ManualClock()) as api, calling(api) as call:
        api.switch(failing=1, after_effect=True)
        assert [(await call(ME)).status for _ in range(2)] == [503, 429]
        assert (api.ledger.admitted(), api.ledger.refused()) == (1, 1)


async def test_dead_by_cutting_the_line() -> None:
    async with MercadoLibreApi() as api, calling(api) as call:
        api.switch(failing=1, how="cut")
        with pytest.raises(aiohttp.ClientError):
            await call(ME, "POST")  # aiohttp sends a GET again by itself
        assert [(arrival.status, arrival.admitted_mono) for arrival in api.ledger.arrivals] == [(None, None)]
        api.calm()
        assert (await call(ME)).status == 200


async def test_dead_by_hanging_until_the_client_leaves_or_the_api_stops() -> None:
    async with MercadoLibreApi() as api, calling(api) as call:
        api.switch(failing=1, how="hang")
        hanging = [asyncio.create_task(call(ME, "POST")) for _ in range(2)]
        while api.ledger.arrived() < 2:
            await asyncio.sleep(0)
        hanging[0].cancel()
        while not any(arrival.ended_mono for arrival in api.ledger.arrivals):
            await asyncio.sleep(0.001)
        assert not hanging[1].done()
    with pytest.raises(aiohttp.ClientError):
        await hanging[1]


async def test_slow_is_slower_by_the_clock() -> None:
    clock = ManualClock()
    async with MercadoLibreApi(takes_s=1, clock=clock) as api, calling(api) as call:
        api.switch(slow_s=9)
        task = asyncio.create_task(call(ME))
        while not clock.sleepers:
            await asyncio.sleep(0)
        await clock.advance(9)
        assert not task.done()
        await clock.advance(1)
        assert (await task).status == 200
        assert api.ledger.arrivals[0].ended_mono == 10


@pytest.mark.parametrize("name", APIS)
async def test_a_token_that_died_gets_the_vendors_401(name: str) -> None:
    async with APIS[name]() as api, calling(api) as call:
        api.switch(unauthorised={"old"})
        refused = await call(SOMETHING[name], **token("old"))
        assert (refused.status, call.parse_limits(refused)) == (401, {})
        assert (await call(SOMETHING[name], **token("new"))).status == 200
        assert (await call(SOMETHING[name])).status == 200


async def test_shopifys_own_header_bears_a_token_too() -> None:
    async with ShopifyApi(takes_s=0) as api, calling(api) as call:
        api.switch(unauthorised={"old"})
        options = {"headers": {"X-Shopify-Access-Token": "old"}}
        assert (await call("/admin/api/rest.json", **options)).status == 401
        assert api.ledger.arrivals[0].authorization == "old"


@pytest.mark.parametrize(("retry_after", "expected"), [("7", ("7",)), ("nan", ("nan",)), ("", ())])
async def test_retry_after_of_choice(retry_after: str, expected: tuple[str, ...]) -> None:
    async with ShopifyApi(ShopLimits(calls=1), takes_s=0, clock=ManualClock()) as api, calling(api) as call:
        api.switch(retry_after=retry_after)
        fine, refused = [await call("/admin/api/rest.json") for _ in range(2)]
        assert ("retry-after" in fine.headers, refused.headers.get("retry-after", ())) == (False, expected)
        api.switch(failing=1)
        assert (await call("/admin/api/rest.json")).headers.get("retry-after", ()) == expected


async def test_switches_that_are_not_named_stay() -> None:
    async with MercadoLibreApi() as api:
        api.switch(capacity=0.5)
        assert api.switch(slow_s=1).capacity == 0.5
        with pytest.raises(InvalidConfigError, match="capacity"):
            api.switch(capacity=0)
        with pytest.raises(InvalidConfigError, match="colour"):
            api.switch(colour="red")
        assert (api.switches.capacity, api.switches.slow_s) == (0.5, 1)
