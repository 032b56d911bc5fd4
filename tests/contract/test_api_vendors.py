"""The other rude APIs enforce what they say, and what they say is heard right."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead.policy.limits.feedback.raw_response import (
    CONCURRENCY,
    DAILY,
    ENDPOINT,
    OBJECT,
    REQUESTS,
    SEARCH,
    RawResponse,
)
from fairlead.testing import ManualClock
from fairlead.testing.api import HubSpotApi, MercadoLibreApi, NetSuiteApi, SalesforceApi, StripeApi
from tests.contract.api_calls import calling

RECORDS = "/services/rest/record/v1/salesOrder"
GOVERNANCE = "/services/rest/system/v1/governanceLimits"
RESTLET = "/app/site/hosting/restlet.nl?script=1&deploy=1"
SOAP = "/services/NetSuitePort_2024_2"
PLAIN = {"headers": {"Content-Type": "text/plain"}}
CONTACTS = "/crm/v3/objects/contacts"
QUERY = "/services/data/v62.0/query?q=SELECT+Id+FROM+Order"
ALL = [str(number) for number in range(1001, 1061)]


def body(reply: RawResponse) -> Any:
    """The JSON of an answer, as far as these tests know it."""
    return reply.body


# ---- NetSuite --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [RECORDS, RESTLET, SOAP])
async def test_netsuite_counts_all_doors_of_an_account_together(path: str) -> None:
    async with NetSuiteApi(limit=3) as api, calling(api) as call:
        hold = api.hold("acme", times=3)
        inside = [
            asyncio.create_task(call(door, "POST" if door == SOAP else "GET"))
            for door in (RECORDS, RESTLET, SOAP)
        ]
        await hold.reached(3)
        refused = await call(path, "POST" if path == SOAP else "GET")
        observation = call.refused(refused)
        assert (observation.limit, api.ledger.in_flight("acme")) == (CONCURRENCY, 3)
        async with calling(api, "globex") as other:
            assert (await other(RECORDS)).status == 200
        hold.release()
        assert {reply.status for reply in await asyncio.gather(*inside)} == {200}
        assert (await call(path, "POST" if path == SOAP else "GET")).status == 200
        assert (api.ledger.most_in_flight("acme"), api.ledger.refused("acme", "concurrency")) == (3, 1)


@pytest.mark.parametrize(
    ("options", "path", "more", "status", "code"),
    [
        ({}, RECORDS, {}, 429, "SSS_REQUEST_LIMIT_EXCEEDED"),
        ({"rest_status": 400}, RECORDS, {}, 400, "SSS_REQUEST_LIMIT_EXCEEDED"),
        ({"rest_status": 400}, GOVERNANCE, {}, 400, "SSS_REQUEST_LIMIT_EXCEEDED"),
        ({}, RESTLET, {}, 400, "SSS_REQUEST_LIMIT_EXCEEDED"),
        ({}, RESTLET, PLAIN, 400, "SSS_REQUEST_LIMIT_EXCEEDED"),
        ({}, SOAP, {"method": "POST"}, 500, "WS_REQUEST_BLOCKED"),
        (
            {"soap_fault": "ExceededRequestLimitFault"}, SOAP, {"method": "POST"}, 500,
            "WS_CONCUR_SESSION_DISALLWD",
        ),
    ],
)  # fmt: skip
async def test_netsuite_refuses_in_four_dresses(
    options: Any, path: str, more: Any, status: int, code: str
) -> None:
    async with NetSuiteApi(limit=1, **options) as api, calling(api) as call:
        hold = api.hold()
        inside = asyncio.create_task(call(RECORDS))
        await hold.reached()
        refused = await call(path, **more)
        hold.release()
        await inside
        assert (refused.status, call.refused(refused).code) == (status, code)


async def test_netsuite_tells_its_limit() -> None:
    async with NetSuiteApi(limit=15) as api, calling(api) as call:
        assert call.parse_limits(await call(GOVERNANCE))[CONCURRENCY].capacity == 15


async def test_netsuite_pages_by_offset() -> None:
    async with NetSuiteApi() as api, calling(api) as call:
        url: str | None = f"{RECORDS}?limit=25"
        ids: list[str] = []
        while url:
            page = body(await call(url))
            ids += [item["id"] for item in page["items"]]
            url = next((link["href"] for link in page["links"] if link["rel"] == "next"), None)
            assert page["hasMore"] is (url is not None)
        assert ids == ALL


# ---- HubSpot ---------------------------------------------------------------------------------------


async def test_hubspot_rolls_its_window() -> None:
    clock = ManualClock()
    async with HubSpotApi(limit=3, clock=clock) as api, calling(api) as call:
        assert call.parse_limits(await call(CONTACTS))[REQUESTS].remaining == 2
        await clock.advance(6)
        assert [(await call(CONTACTS)).status for _ in range(3)] == [200, 200, 429]
        observation = call.refused(await call(CONTACTS))
        assert (observation.limit, observation.code, observation.window_s, observation.remaining) == (
            REQUESTS, "TEN_SECONDLY_ROLLING", 10, 0,
        )  # fmt: skip
        await clock.advance(4)  # the first has left the window, the other two have not
        assert [(await call(CONTACTS)).status for _ in range(2)] == [200, 429]


async def test_hubspot_counts_days() -> None:
    clock = ManualClock()
    async with HubSpotApi(daily=2, clock=clock) as api, calling(api) as call:
        assert [call.parse_limits(await call(CONTACTS))[DAILY].remaining for _ in range(2)] == [1, 0]
        await clock.advance(3600)
        observation = call.refused(await call(CONTACTS))
        assert (observation.limit, observation.daily, observation.code) == (DAILY, True, "DAILY")


async def test_hubspot_search_has_a_limit_of_its_own_and_no_headers() -> None:
    async with HubSpotApi(clock=ManualClock()) as api, calling(api) as call:
        replies = [await call.post(f"{CONTACTS}/search", {"limit": 5}) for _ in range(5)]
        assert [reply.status for reply in replies] == [200] * 4 + [429]
        assert (call.refused(replies[4]).limit, call.refused(replies[4]).window_s) == (SEARCH, 1)
        assert not any(name.startswith("x-hubspot") for reply in replies for name in reply.headers)
        assert (await call(CONTACTS)).status == 200


async def test_hubspot_pages_by_after() -> None:
    async with HubSpotApi() as api, calling(api) as call:
        for first in (CONTACTS, f"{CONTACTS}/search"):
            after_cursor, ids = "", []
            while after_cursor is not None:
                reply = await (
                    call(f"{first}?limit=25&after={after_cursor}")
                    if first == CONTACTS
                    else call.post(first, {"limit": 25, "after": after_cursor})
                )
                ids += [row["id"] for row in body(reply)["results"]]
                after_cursor = body(reply).get("paging", {}).get("next", {}).get("after")
            assert ids == ALL


async def test_hubspot_part_of_a_batch_fails_until_it_is_unlocked() -> None:
    async with HubSpotApi() as api, calling(api) as call:
        api.lock("1002")
        inputs = [{"id": name} for name in ("1001", "1002", "1003")]
        partial = await call.post(f"{CONTACTS}/batch/update", {"inputs": inputs})
        assert (partial.status, [row["id"] for row in body(partial)["results"]]) == (207, ["1001", "1003"])
        assert [error["context"]["ids"] for error in body(partial)["errors"]] == [["1002"]]
        api.unlock("1002")
        again = await call.post(f"{CONTACTS}/batch/update", {"inputs": [{"id": "1002"}]})
        assert (again.status, [row["id"] for row in body(again)["results"]]) == (200, ["1002"])


async def test_hubspot_a_locked_object_slows_nothing_else() -> None:
    async with HubSpotApi() as api, calling(api) as call:
        api.lock("1002")
        refused = await call(f"{CONTACTS}/1002")
        assert (refused.status, call.refused(refused).limit, call.refused(refused).wait_s) == (423, OBJECT, 2)
        assert (await call(f"{CONTACTS}/1001")).status == 200


# ---- Stripe ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "path", "reason", "limit"),
    [
        ({"per_s": 2}, "/v1/charges", "global-rate", REQUESTS),
        ({"endpoint_per_s": 2}, "/v1/charges", "endpoint-rate", ENDPOINT),
        ({"search_per_s": 2}, "/v1/charges/search", "endpoint-rate", ENDPOINT),
    ],
)
async def test_stripe_says_which_rate(options: Any, path: str, reason: str, limit: str) -> None:
    clock = ManualClock()
    async with StripeApi(clock=clock, **options) as api, calling(api) as call:
        replies = [await call(path) for _ in range(3)]
        assert [reply.status for reply in replies] == [200, 200, 429]
        observation = call.refused(replies[2])
        assert (observation.limit, observation.code) == (limit, reason)
        await clock.advance(0.5)
        assert (await call(path)).status == 200


async def test_stripe_counts_calls_in_flight() -> None:
    async with StripeApi(concurrency=1) as api, calling(api) as call:
        hold = api.hold()
        inside = asyncio.create_task(call("/v1/charges"))
        await hold.reached()
        observation = call.refused(await call("/v1/charges"))
        assert (observation.limit, observation.code) == (CONCURRENCY, "global-concurrency")
        hold.release()
        assert (await inside).status == 200


async def test_stripe_a_lock_is_no_rate() -> None:
    async with StripeApi() as api, calling(api) as call:
        api.lock("ch_1001")
        refused = await call("/v1/charges/ch_1001", "POST")
        assert (refused.status, call.refused(refused).limit) == (429, OBJECT)
        assert "stripe-rate-limited-reason" not in refused.headers
        api.unlock("ch_1001")
        assert (await call("/v1/charges/ch_1001", "POST")).status == 200


async def test_stripe_makes_one_charge_for_one_key() -> None:
    key = {"headers": {"Idempotency-Key": "k1"}}
    async with StripeApi() as api, calling(api) as call:
        hold = api.hold()
        first = asyncio.create_task(call("/v1/charges", "POST", data={"amount": "5"}, **key))
        await hold.reached()
        meanwhile = await call("/v1/charges", "POST", data={"amount": "5"}, **key)
        assert (meanwhile.status, body(meanwhile)["error"]["code"]) == (409, "idempotency_key_in_use")
        hold.release()
        reply = await first
        again = await call("/v1/charges", "POST", data={"amount": "5"}, **key)
        assert (body(again), again.headers["idempotent-replayed"]) == (body(reply), ("true",))
        assert (await call("/v1/charges", "POST", data={"amount": "6"}, **key)).status == 400
        assert api.created("acme") == 1
        for _ in range(2):
            await call("/v1/charges", "POST", data={"amount": "5"})
        assert api.created("acme") == 3


async def test_stripe_a_charge_whose_answer_was_lost_is_replayed_by_its_key() -> None:
    key = {"headers": {"Idempotency-Key": "k1"}}
    async with StripeApi() as api, calling(api) as call:
        api.switch(failing=1, how=500, after_effect=True)
        assert (await call("/v1/charges", "POST", **key)).status == 500
        api.calm()
        assert (await call("/v1/charges", "POST", **key)).headers["idempotent-replayed"] == ("true",)
        assert api.created("acme") == 1


async def test_stripe_pages_by_the_last_one_seen() -> None:
    async with StripeApi() as api, calling(api) as call:
        more, ids = True, list[str]()
        while more:
            page = body(await call(f"/v1/charges?limit=25&starting_after={ids[-1] if ids else ''}"))
            ids += [row["id"] for row in page["data"]]
            more = page["has_more"]
        assert ids == [f"ch_{name}" for name in reversed(ALL)]


# ---- Salesforce ------------------------------------------------------------------------------------


async def test_salesforce_counts_24_hours() -> None:
    clock = ManualClock()
    async with SalesforceApi(daily=2, clock=clock) as api, calling(api) as call:
        assert [call.parse_limits(await call(QUERY))[DAILY].remaining for _ in range(2)] == [1, 0]
        refused = await call(QUERY)
        observation = call.refused(refused)
        assert (refused.status, observation.limit, observation.daily, observation.remaining) == (
            403,
            DAILY,
            True,
            0,
        )
        await clock.advance(86_400)
        assert (await call(QUERY)).status == 200


async def test_salesforce_counts_only_long_calls() -> None:
    clock = ManualClock()
    async with SalesforceApi(long_calls=2, clock=clock) as api, calling(api) as call:
        hold = api.hold(times=3)
        inside = [asyncio.create_task(call(QUERY)) for _ in range(3)]
        await hold.reached(3)
        assert (await call(QUERY)).status == 200
        await clock.advance(20)
        refused = await call(QUERY)
        assert (refused.status, call.refused(refused).limit) == (403, CONCURRENCY)
        hold.release()
        await asyncio.gather(*inside)
        assert (await call(QUERY)).status == 200


async def test_salesforce_pages_by_locator() -> None:
    size = {"headers": {"Sforce-Query-Options": "batchSize=25"}}
    async with SalesforceApi() as api, calling(api) as call:
        url, ids = QUERY, list[str]()
        while url:
            page = body(await call(url, **size))
            ids += [row["Id"] for row in page["records"]]
            url = page.get("nextRecordsUrl", "")
            assert page["done"] is (url == "")
        assert ids == ALL


async def test_salesforce_tells_of_each_record() -> None:
    async with SalesforceApi() as api, calling(api) as call:
        api.lock("1002")
        records = {"records": [{"id": name} for name in ("1001", "1002", "none")]}
        results = body(await call("/services/data/v62.0/composite/sobjects", "PATCH", json=records))
        assert [result["success"] for result in results] == [True, False, False]
        assert [error["statusCode"] for result in results for error in result["errors"]] == [
            "UNABLE_TO_LOCK_ROW",
            "INVALID_CROSS_REFERENCE_KEY",
        ]


# ---- Mercado Libre ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("refuses_in", "kind"), [("text", "text/plain"), ("json", "application/json")])
async def test_mercadolibre_refuses_without_a_figure(refuses_in: str, kind: str) -> None:
    clock = ManualClock()
    async with (
        MercadoLibreApi(calls=2, per_s=1, refuses_in=refuses_in, clock=clock) as api,
        calling(api) as call,
    ):
        replies = [await call("/users/me") for _ in range(3)]
        assert [reply.status for reply in replies] == [200, 200, 429]
        assert replies[2].headers["content-type"] == (kind,)
        assert call.refused(replies[2]).code == "local_rate_limited"
        await clock.advance(1)
        assert (await call("/users/me")).status == 200


async def test_mercadolibre_pages_by_offset() -> None:
    async with MercadoLibreApi() as api, calling(api) as call:
        ids: list[int] = []
        total = 1
        while len(ids) < total:
            page = body(await call(f"/orders/search?limit=25&offset={len(ids)}"))
            ids += [row["id"] for row in page["results"]]
            total = page["paging"]["total"]
        assert ids == [int(name) for name in ALL]
