"""EndpointGate: rate, breaker and pause of token endpoints, shared by the fleet (R13, R50)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from fairlead.engine.ports import (
    EndpointChange,
    EndpointKey,
    EndpointLimits,
    EndpointPermit,
    EndpointRefusal,
    PermitRequest,
)
from fairlead.policy.calls.blast_radius import NEVER_SENT, TOKEN, Reach
from tests.contract.stores import Stores

KEY = EndpointKey("mercadolibre", "app")
UNLIMITED = EndpointLimits(per_s=None, burst=1.0, breaker_failures=3, open_s=60, open_max_s=200, probe_s=50)
TWO = replace(UNLIMITED, breaker_failures=2)
SLOW = EndpointLimits(per_s=0.1, burst=3.0)
DOWN, GRANTED, LIMITED = TOKEN["unknown"], TOKEN["granted"], TOKEN["not_processed.transient_rate_limit"]
REFUSED, INVALID_GRANT = TOKEN["rejected.permanent_config.client"], TOKEN["rejected.permanent_auth"]
NOT_SENT, PROBE = TOKEN["not_sent"], EndpointPermit(probe=True, dirty=True)


def ask(
    number: int = 0, limits: EndpointLimits = UNLIMITED, secret: str | None = "f", **key: str
) -> PermitRequest:
    """What connection number *who* asks with; none is stored, so none has a back-off."""
    return PermitRequest(replace(KEY, **key), limits, UUID(int=number), 1, secret)


async def refused(stores: Stores, *args: Any, **more: Any) -> EndpointRefusal:
    answer = await stores.endpoints.admit(ask(*args, **more))
    assert isinstance(answer, EndpointRefusal)
    return answer


async def admitted(stores: Stores, *args: Any, **more: Any) -> EndpointPermit:
    answer = await stores.endpoints.admit(ask(*args, **more))
    assert isinstance(answer, EndpointPermit)
    return answer


async def fail(
    stores: Stores,
    *numbers: int,
    permit: EndpointPermit | None = None,
    reach: Reach = DOWN,
    process: int = 0,
    **more: Any,
) -> list[float | None]:
    """What was opened for how long by the failure of each."""
    asks = [replace(ask(number, **more), session_id=UUID(int=process)) for number in numbers]
    permit = permit or EndpointPermit()
    changes = [await stores.endpoints.record(request, permit, reach, "http_500") for request in asks]
    return [change and change.for_s for change in changes]


def paused(name: str, *said_by: object, for_s: float = 200.0, news: bool = True) -> EndpointChange:
    words = tuple(
        str(UUID(int=reporter)) if isinstance(reporter, int) else str(reporter) for reporter in said_by
    )
    return EndpointChange(name, "paused", pytest.approx(for_s, abs=2), news, words)


async def say(
    stores: Stores, reach: Any, *args: Any, hint_s: float = 0.0, **more: Any
) -> EndpointChange | None:
    """Admit, and record."""
    permit = await admitted(stores, *args, **more)
    return await stores.endpoints.record(ask(*args, **more), permit, reach, "invalid_client", hint_s)


async def endpoint_state(stores: Stores, client_id: str = "app") -> dict[str, object]:
    return {row["client_id"]: dict(row) for row in await stores.endpoints.search()}[client_id]


# ---- rate ------------------------------------------------------------------------------------------


async def test_without_a_rate_all_may_send(stores: Stores) -> None:
    answers = await asyncio.gather(*(stores.endpoints.admit(ask()) for _ in range(20)))
    assert answers == [EndpointPermit()] * 20


async def test_endpoint_rate_is_one_exact_bucket_for_the_fleet(stores: Stores) -> None:
    answers = await asyncio.gather(*(stores.endpoints.admit(ask(0, SLOW)) for _ in range(10)))
    waits = [answer for answer in answers if isinstance(answer, EndpointRefusal)]
    assert (len(answers) - len(waits), {answer.by for answer in waits}) == (3, {"rate"})
    assert (await refused(stores, 0, SLOW)).retry_after_s == pytest.approx(10, abs=2)
    await admitted(stores, 0, SLOW, client_id="app2")
    await stores.pass_time(25)
    for _ in range(2):
        await admitted(stores, 0, SLOW)
    assert (await refused(stores, 0, SLOW)).retry_after_s == pytest.approx(5, abs=2)


async def test_hosts_share_the_rate_of_their_app_and_accounts_do_not(stores: Stores) -> None:
    for host in ("a", "b", "c"):
        await admitted(stores, 0, SLOW, host=host)
    assert (await refused(stores, 0, SLOW, host="d")).by == "rate"
    await admitted(stores, 0, SLOW, host="d", account="4")
    assert [row["client_id"] for row in await stores.endpoints.search()] == ["app", "app account 4"]


async def test_a_bucket_holds_no_more_than_its_burst(stores: Stores) -> None:
    await admitted(stores, 0, SLOW)
    await stores.pass_time(10_000)
    for _ in range(3):
        await admitted(stores, 0, SLOW)
    await refused(stores, 0, SLOW)


async def test_too_many_told_to_two_connections_empties_the_bucket_until_the_hint_is_over(
    stores: Stores,
) -> None:
    limits = replace(SLOW, burst=9.0)
    for _ in range(3):
        await say(stores, LIMITED, 1, limits, hint_s=100.0)
    await admitted(stores, 0, limits)
    await say(stores, LIMITED, 2, limits, hint_s=100.0)
    await stores.endpoints.record(ask(3, limits), EndpointPermit(), LIMITED, "429", 20.0)
    assert (await refused(stores, 0, limits)).retry_after_s == pytest.approx(100, abs=2), (
        "the longer one stays, and is a debt of one bucket at most"
    )
    await stores.pass_time(90)
    assert (await refused(stores, 0, limits)).retry_after_s == pytest.approx(10, abs=2)
    await stores.pass_time(12)
    await admitted(stores, 0, limits)
    await refused(stores, 0, limits)


async def test_a_token_ends_the_debt_of_the_rate(stores: Stores) -> None:
    for number in (1, 2):
        await say(stores, LIMITED, number, SLOW, hint_s=900.0)
    await refused(stores, 0, SLOW)
    await stores.endpoints.record(ask(3, SLOW), EndpointPermit(dirty=True), GRANTED, "")
    await admitted(stores, 0, SLOW)
    await refused(stores, 0, SLOW)


async def test_a_token_between_two_that_were_limited_starts_the_count_again(stores: Stores) -> None:
    limits = replace(SLOW, burst=9.0)
    await say(stores, LIMITED, 1, limits, hint_s=100.0)
    await say(stores, GRANTED, 2, limits)
    await say(stores, LIMITED, 3, limits, hint_s=100.0)
    await admitted(stores, 0, limits)
    await say(stores, LIMITED, 1, replace(limits, per_s=None), hint_s=1e6)
    await admitted(stores, 0, limits)


# ---- breaker ---------------------------------------------------------------------------------------


async def test_enough_connections_that_fail_open_the_breaker_once(stores: Stores) -> None:
    assert await admitted(stores) == EndpointPermit()
    opened = await fail(stores, 1, 2, 3, 4, 5)
    assert [opened_s is not None for opened_s in opened] == [False, False, True, False, False]
    assert opened[2] == pytest.approx(60)
    answer = await refused(stores)
    assert (answer.by, answer.reason) == ("breaker", "breaker open: http_500")
    assert answer.retry_after_s == pytest.approx(60, abs=2)
    row = await endpoint_state(stores)
    assert (row["state"], row["reason"], row["failures"]) == ("open", "http_500", 3)
    assert row["open_for_s"] == pytest.approx(60, abs=2)


async def test_breaker_counts_a_connection_once_and_one_never_opens_it(stores: Stores) -> None:
    await admitted(stores)
    assert await fail(stores, *[1] * 20) == [None] * 20
    strict = replace(UNLIMITED, breaker_failures=1)
    assert await fail(stores, 1, limits=strict) == [None], "not even where one failure is said to be enough"
    assert await fail(stores, 2, limits=strict) == [pytest.approx(60)]


async def test_endpoint_stays_open_for_one_process_whose_requests_never_leave(stores: Stores) -> None:
    await admitted(stores)
    assert await fail(stores, *range(1, 9), reach=NOT_SENT, process=1) == [None] * 8
    assert await fail(stores, 1, 1, reach=NOT_SENT, process=1) == [None] * 2
    assert (await endpoint_state(stores))["failures"] == 3, (
        "no more is kept of one process than would be enough"
    )
    await say(stores, GRANTED, 9)
    assert await fail(stores, 1, 2, reach=NOT_SENT, process=1, limits=TWO) == [None] * 2
    change = await stores.endpoints.record(
        replace(ask(3, TWO), session_id=UUID(int=2)), EndpointPermit(), NOT_SENT, "dns"
    )
    assert change is not None
    assert (change.state, change.said_by) == ("open", tuple(str(UUID(int=number)) for number in (1, 2, 3)))


async def test_endpoint_stays_open_for_one_connection_whose_requests_never_leave(stores: Stores) -> None:
    await admitted(stores)
    for process in (1, 2, 3):
        assert await fail(stores, 1, reach=NOT_SENT, process=process, limits=TWO) == [None]


async def test_the_probe_of_a_process_that_had_failed_before_keeps_it_shut_for_nobody(stores: Stores) -> None:
    await admitted(stores)
    for process in (1, 2):
        await fail(stores, process, reach=NOT_SENT, process=process, limits=TWO)
    await stores.pass_time(61)
    permit = await admitted(stores, 3)
    assert await fail(stores, 3, permit=permit, reach=NOT_SENT, process=2) == [None]
    permit = await admitted(stores, 4)
    assert await fail(stores, 4, permit=permit, reach=NOT_SENT, process=3) == [pytest.approx(120)]


async def test_a_host_that_fails_closes_no_other(stores: Stores) -> None:
    await admitted(stores, host="a")
    await fail(stores, 1, 2, 3, host="a")
    assert (await refused(stores, host="a")).by == "breaker"
    assert await admitted(stores, host="b") == EndpointPermit()


async def test_a_success_forgets_failures(stores: Stores) -> None:
    await admitted(stores)
    await fail(stores, 1, 2)
    assert await say(stores, INVALID_GRANT, 3) is None, "any complete answer shows that it is there"
    assert await admitted(stores) == EndpointPermit()
    assert await fail(stores, 1, 2) == [None, None]
    assert (await endpoint_state(stores))["state"] == "closed"


async def test_breaker_admits_one_probe_of_the_fleet_and_its_result_decides(stores: Stores) -> None:
    await admitted(stores)
    await fail(stores, 1, 2, 3)
    await stores.pass_time(61)
    answers = await asyncio.gather(*(stores.endpoints.admit(ask(4)) for _ in range(5)))
    probes = [answer for answer in answers if isinstance(answer, EndpointPermit)]
    assert probes == [PROBE]
    waits = [answer for answer in answers if isinstance(answer, EndpointRefusal)]
    assert [answer.by for answer in waits] == ["breaker"] * 4
    assert (await refused(stores)).retry_after_s == pytest.approx(5, abs=2), "it answers soon"
    assert await fail(stores, 4, permit=probes[0]) == [pytest.approx(120)], "twice as long"
    await stores.pass_time(121)
    probe = await admitted(stores)
    assert probe.probe
    assert await fail(stores, 5, permit=probe) == [pytest.approx(200)], "and no longer than the longest"
    await stores.pass_time(201)
    assert await say(stores, GRANTED, 1) == EndpointChange("app", "closed")
    assert await admitted(stores) == EndpointPermit()
    assert (await endpoint_state(stores))["open_for_s"] is None


async def test_a_probe_of_one_that_had_failed_before_keeps_it_shut_for_nobody(stores: Stores) -> None:
    await admitted(stores)
    await fail(stores, 1, 2, 3)
    await stores.pass_time(61)
    assert await fail(stores, 1, permit=await admitted(stores, 1)) == [None]
    assert (await admitted(stores, 4)).probe, "the next one may look at once"


async def test_a_probe_that_never_left_makes_room_at_once_and_a_lost_one_later(stores: Stores) -> None:
    await admitted(stores)
    await fail(stores, 1, 2, 3)
    await stores.pass_time(61)
    assert await say(stores, NEVER_SENT, 4) is None
    assert (await admitted(stores)).probe
    await stores.pass_time(40)
    assert (await refused(stores)).by == "breaker"
    await stores.pass_time(15)
    assert (await admitted(stores)).probe


async def test_a_failure_of_others_does_not_prolong_it(stores: Stores) -> None:
    await admitted(stores)
    await fail(stores, 1, 2, 3)
    await stores.pass_time(50)
    assert await fail(stores, 4) == [None]
    assert (await refused(stores)).retry_after_s == pytest.approx(10, abs=2)


# ---- pause -----------------------------------------------------------------------------------------


async def test_a_secret_refused_to_two_connections_pauses_their_host_for_that_secret(stores: Stores) -> None:
    for _ in range(3):
        assert await say(stores, REFUSED, 1, secret="f1") is None
    assert await say(stores, REFUSED, 2, secret="f1") == paused("app", 1, 2)
    await stores.pass_time(20)
    late = await stores.endpoints.record(ask(3, secret="f1"), EndpointPermit(), REFUSED, "invalid_client")
    assert late == paused("app", 1, 2, 3, for_s=180.0, news=False), "and no longer than before"
    answer = await refused(stores, secret="f1")
    assert (answer.by, answer.retry_after_s, answer.reason) == ("pause", 60.0, "paused: invalid_client")
    assert (await endpoint_state(stores))["state"] == "paused"
    await admitted(stores, secret="f2")
    assert (await endpoint_state(stores))["state"] == "closed"
    assert (await refused(stores, secret="f1")).by == "pause", "that one stays refused"
    await admitted(stores, secret=None)


async def test_a_token_between_two_refusals_starts_the_count_again(stores: Stores) -> None:
    assert await say(stores, REFUSED, 1) is None
    assert await say(stores, GRANTED, 2) is None
    assert await say(stores, REFUSED, 3) is None
    assert await say(stores, REFUSED, 3, secret="other") is None, "two secrets, refused once each"
    assert await say(stores, REFUSED, 2, secret=None) is None, "its own secret says nothing of the app's"


async def test_two_paused_hosts_pause_the_whole_app(stores: Stores) -> None:
    for number, host in ((1, "a"), (1, "b"), (2, "c"), (3, "d")):
        assert await say(stores, REFUSED, number, host=host) is None, "no host is paused by one connection"
    assert await say(stores, REFUSED, 2, host="a") == paused("app a", 1, 2)
    await admitted(stores, 5, host="b")
    assert await say(stores, REFUSED, 3, host="b") == paused("app", "a", "b")
    assert (await refused(stores, host="c")).by == "pause"
    assert await stores.endpoints.record(ask(2, host="a"), PROBE, GRANTED, "") == EndpointChange(
        "app", "closed"
    )
    await admitted(stores, 5, host="c")
    assert (await refused(stores, host="b")).by == "pause"


async def test_a_paused_app_is_probed_now_and_then_and_a_token_lifts_the_pause(stores: Stores) -> None:
    for number in (1, 2):
        await say(stores, REFUSED, number)
    await stores.pass_time(201)
    answers = [await stores.endpoints.admit(ask(number)) for number in (3, 4)]
    assert [type(answer) for answer in answers] == [EndpointPermit, EndpointRefusal]
    again = await stores.endpoints.record(ask(3), PROBE, REFUSED, "no")
    assert again == paused("app", 1, 2, 3, news=False)
    await refused(stores)
    await stores.pass_time(201)
    assert await say(stores, REFUSED, 3) == paused("app", 1, 2, 3, for_s=0.0, news=False), (
        "it had said so before"
    )
    assert await say(stores, GRANTED, 4) == EndpointChange("app", "closed")
    assert await admitted(stores) == EndpointPermit()


async def test_an_outage_does_not_open_what_is_paused(stores: Stores) -> None:
    for number in (1, 2):
        await say(stores, REFUSED, number)
    assert await fail(stores, 1, 2, 3, 4) == [None] * 4
    assert (await endpoint_state(stores))["state"] == "paused"


async def test_a_person_resumes(stores: Stores) -> None:
    assert not await stores.endpoints.resume(KEY)
    for number in (1, 2):
        await say(stores, REFUSED, number)
    assert await stores.endpoints.resume(KEY)
    assert not await stores.endpoints.resume(KEY)
    await admitted(stores)
    await fail(stores, 1, 2, 3)
    assert await stores.endpoints.resume(KEY)
    assert await admitted(stores) == EndpointPermit()


async def test_endpoints_are_listed_by_provider_and_app(stores: Stores) -> None:
    for key in (("xero", "b"), ("xero", "a"), ("shopify", "c")):
        await admitted(stores, provider=key[0], client_id=key[1])
    names = [(row["provider"], row["client_id"]) for row in await stores.endpoints.search()]
    assert names == [("shopify", "c"), ("xero", "a"), ("xero", "b")]


async def test_endpoint_without_refreshes_is_pruned_paused_or_not(stores: Stores) -> None:
    for number in (1, 2):
        await say(stores, REFUSED, number)
    await stores.pass_time(50)
    await admitted(stores, client_id="used")
    assert await stores.endpoints.prune(60.0) == 0
    await stores.pass_time(50)
    assert await stores.endpoints.prune(60.0) == 1
    assert [row["client_id"] for row in await stores.endpoints.search()] == ["used"]
