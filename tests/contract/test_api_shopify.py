"""The rude Shopify enforces what it says, and what it says is heard right."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead.policy.limits.feedback.raw_response import BULK, POINTS, REQUESTS, RawResponse
from fairlead.testing import ManualClock
from fairlead.testing.api import ShopifyApi, ShopLimits
from tests.contract.api_calls import Caller, calling

LIMITS = ShopLimits(calls=4, calls_per_s=2, points=100, points_per_s=50)
NEW, OLD = "/admin/api/2026-01/graphql.json", "/admin/api/2025-10/graphql.json"
RUN = """mutation Run($export: String!) { bulkOperationRunQuery(query: $export) {
    bulkOperation { id status } userErrors { field code message } } }"""
RUN_MUTATION = """mutation { bulkOperationRunMutation(mutation: "mutation { x }", stagedUploadPath: "p") {
    bulkOperation { id status } userErrors { code message } } }"""
EXPORT = "{ orders { edges { node { id name lineItems { edges { node { id title } } } } } } }"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def api(clock: ManualClock) -> AsyncIterator[ShopifyApi]:
    async with ShopifyApi(LIMITS, takes_s=0, clock=clock) as running:
        yield running


@pytest.fixture
async def call(api: ShopifyApi) -> AsyncIterator[Caller]:
    async with calling(api) as caller:
        yield caller


async def query(call: Caller, text: str, path: str = NEW, **variables: object) -> RawResponse:
    return await call.post(path, {"query": text, "variables": variables})


def data(reply: RawResponse) -> dict[str, dict[str, object]]:
    assert isinstance(reply.body, dict)
    assert "errors" not in reply.body, reply.body
    page = reply.body["data"]
    assert isinstance(page, dict)
    return page


# ---- REST ------------------------------------------------------------------------------------------


async def test_rest_counts_calls_and_refuses_with_a_decimal(
    api: ShopifyApi, call: Caller, clock: ManualClock
) -> None:
    replies = [await call("/admin/api/rest.json") for _ in range(4)]
    assert [call.parse_limits(reply)[REQUESTS].remaining for reply in replies] == [3, 2, 1, 0]
    refused = await call("/admin/api/rest.json")
    assert (refused.status, refused.headers["retry-after"]) == (429, ("1.0",))
    assert call.refused(refused).wait_s == 1
    await clock.advance(0.5)
    assert (await call("/admin/api/rest.json")).status == 200
    assert (await call("/admin/api/rest.json")).status == 429
    assert (api.ledger.admitted(), api.ledger.refused("acme", "rest")) == (5, 2)


async def test_shops_do_not_share(api: ShopifyApi, call: Caller) -> None:
    for _ in range(5):
        await call("/admin/api/rest.json")
    async with calling(api, "globex") as other:
        assert (await other("/admin/api/rest.json")).status == 200
    assert (api.ledger.refused("acme"), api.ledger.refused("globex")) == (1, 0)


async def test_rest_pages_by_link(call: Caller, clock: ManualClock) -> None:
    url, ids = "/admin/api/2026-10/orders.json?limit=25", list[int]()
    while url:
        await clock.advance(1)
        reply = await call(url)
        assert isinstance(reply.body, dict)
        ids += [row["id"] for row in reply.body["orders"]]
        (link,) = reply.headers.get("link", ("",))
        url = link.partition("<")[2].partition(">")[0]
    assert ids == list(range(1001, 1061))


# ---- GraphQL ---------------------------------------------------------------------------------------


async def test_a_query_is_charged_what_it_asks_and_in_the_end_what_it_gave(call: Caller) -> None:
    reply = await query(call, "{ products(first: 40) { nodes { id } } }")
    points = call.parse_limits(reply)[POINTS]
    assert (points.requested, points.actual, points.remaining) == (42, 27, 73)
    assert (points.capacity, points.per_s) == (100, 50)


async def test_throttled_is_a_200_that_says_when(api: ShopifyApi, call: Caller, clock: ManualClock) -> None:
    await query(call, "{ shop }", cost=60)
    refused = await query(call, "{ shop }", cost=65)
    observation = call.refused(refused)
    assert (refused.status, observation.limit, observation.code) == (200, POINTS, "THROTTLED")
    assert (observation.wait_s, observation.requested, observation.actual, observation.remaining) == (
        0.5,
        65,
        None,
        40,
    )
    await clock.advance(0.4)
    assert call.refused(await query(call, "{ shop }", cost=65)).wait_s == pytest.approx(0.1)
    await clock.advance(0.1)
    assert call.parse_limits(await query(call, "{ shop }", cost=65))[POINTS].remaining == 0
    assert api.ledger.refused("acme", "graphql") == 2


async def test_some_saw_it_as_429() -> None:
    async with ShopifyApi(LIMITS, takes_s=0, throttled_status=429) as api, calling(api) as call:
        refused = await query(call, "{ shop }", cost=101)
        assert (refused.status, call.refused(refused).code) == (429, "THROTTLED")


async def test_query_over_1000_points_is_refused(api: ShopifyApi, call: Caller) -> None:
    dear = await query(call, "{ orders(first: 250) { nodes { id lineItems(first: 10) { nodes { id } } } } }")
    assert isinstance(dear.body, dict)
    assert dear.body["errors"][0]["extensions"]["code"] == "MAX_COST_EXCEEDED"
    assert api.limits("acme")["graphql"]["level"] == 100


async def test_graphql_pages_by_cursor(call: Caller, clock: ManualClock) -> None:
    text = """query($after: String) {
        orders(first: 25, after: $after) { nodes { id } pageInfo { hasNextPage endCursor } } }"""
    ids: list[object] = []
    after_cursor, more = None, True
    while more:
        await clock.advance(1)
        page = data(await query(call, text, after=after_cursor))["orders"]
        nodes, info = page["nodes"], page["pageInfo"]
        assert isinstance(nodes, list)
        assert isinstance(info, dict)
        ids += [node["id"] for node in nodes]
        after_cursor, more = info["endCursor"], info["hasNextPage"]
    assert ids == [f"gid://shopify/Order/{number}" for number in range(1001, 1061)]


@pytest.mark.parametrize(
    ("product", "fields"),
    [({"id": "gid://shopify/Product/1", "title": " "}, ["title"]), ({"id": "x", "title": "new"}, ["id"])],
)
async def test_a_mutation_tells_of_user_errors(call: Caller, product: object, fields: list[str]) -> None:
    text = """mutation($p: ProductInput!) {
        productUpdate(product: $p) { product { title } userErrors { field } } }"""
    update = data(await query(call, text, p=product))["productUpdate"]
    assert update == {"product": None, "userErrors": [{"field": fields}]}


async def test_a_query_that_cannot_be_read_is_an_error_in_a_200(call: Caller) -> None:
    for text in ("{ orders(first: 1", "{ nothing }", "{ a" * 100):
        reply = await query(call, text)
        assert isinstance(reply.body, dict)
        assert (reply.status, len(reply.body["errors"])) == (200, 1)


# ---- bulk operations -------------------------------------------------------------------------------


async def start(call: Caller, path: str, text: str = RUN) -> tuple[object, str | None]:
    """The id of the operation, or the code of the refusal as it is heard."""
    reply = await query(call, text, path, export=EXPORT, cost=0)
    (payload,) = data(reply).values()
    operation = payload["bulkOperation"]
    if isinstance(operation, dict):
        return operation["id"], None
    return None, call.refused(reply).code


async def test_before_2026_one_of_each_type(api: ShopifyApi, call: Caller) -> None:
    first, _ = await start(call, OLD)
    assert await start(call, OLD) == (None, "OPERATION_IN_PROGRESS")
    assert (await start(call, OLD, RUN_MUTATION))[1] is None
    assert (await start(call, OLD, RUN_MUTATION))[1] == "OPERATION_IN_PROGRESS"
    current = data(await query(call, "{ currentBulkOperation { id status } }", OLD))["currentBulkOperation"]
    assert current == {"id": first, "status": "RUNNING"}
    async with calling(api, "globex") as other:
        assert (await start(other, OLD))[1] is None
    api.finish_bulk("acme")
    assert (await start(call, OLD))[1] is None


async def test_from_2026_five_at_once(api: ShopifyApi, call: Caller) -> None:
    assert [(await start(call, NEW))[1] for _ in range(6)] == [*[None] * 5, "LIMIT_REACHED"]
    listed = data(await query(call, "{ bulkOperations(first: 9) { nodes { id status } } }", cost=0))
    nodes = listed["bulkOperations"]["nodes"]
    assert isinstance(nodes, list)
    assert {node["status"] for node in nodes} == {"RUNNING"}
    assert (len(nodes), api.bulk("acme").running()) == (5, 5)
    cancel = (
        'mutation { bulkOperationCancel(id: "gid://shopify/BulkOperation/2") { bulkOperation { status } } }'
    )
    cancelled = data(await query(call, cancel, cost=0))["bulkOperationCancel"]
    assert cancelled == {"bulkOperation": {"status": "CANCELED"}}
    assert (await start(call, NEW))[1] is None


def result(text: str | None) -> Iterator[dict[str, object]]:
    for line in (text or "").splitlines():
        yield json.loads(line)


async def test_the_result_is_polled_for_and_told_line_by_line(
    api: ShopifyApi, call: Caller, clock: ManualClock
) -> None:
    operation, _ = await start(call, NEW)
    poll = "query($id: ID!) { bulkOperation(id: $id) { status url objectCount rootObjectCount } }"
    running = data(await query(call, poll, id=operation))["bulkOperation"]
    assert (running["status"], running["url"]) == ("RUNNING", None)
    await clock.advance(1)
    done = data(await query(call, poll, id=operation))["bulkOperation"]
    assert (done["status"], done["objectCount"], done["rootObjectCount"]) == ("COMPLETED", "180", "60")
    lines = list(result((await call(str(done["url"]))).text))
    orders = [line["id"] for line in lines if "__parentId" not in line]
    assert len(orders) == 60
    assert [line["__parentId"] for line in lines if "__parentId" in line] == [
        order for order in orders for _ in range(2)
    ]
    assert lines[0] == {"id": "gid://shopify/Order/1001", "name": "#1001"}
    assert set(lines[1]) == {"id", "title", "__parentId"}


async def test_a_bulk_query_that_cannot_be_read_does_not_start(api: ShopifyApi, call: Caller) -> None:
    started = data(await query(call, RUN, export="{ orders("))["bulkOperationRunQuery"]
    errors = started["userErrors"]
    assert isinstance(errors, list)
    assert (started["bulkOperation"], errors[0]["code"]) == (None, "INVALID")
    assert BULK not in call.parse_limits(await query(call, RUN, export="{ orders("))
    assert api.bulk("acme").running() == 0
