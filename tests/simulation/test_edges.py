"""The servers of the world fail as real ones do: what was sent arrives, what is lost is lost, all is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context
from random import Random

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.redis.connection import RESPONSE_TIMEOUT_S
from fairlead.engine.ports import (
    AdmitRequest,
    Admitted,
    GateRefusal,
    HttpRequest,
    HttpResponse,
    Lease,
    NoResponse,
    RefusedBy,
    Renewal,
    TokenCall,
)
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.limit import MICRO, BucketLimit, Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder
from fairlead.testing.ledger import judge
from tests.simulation.issuer import SimIssuer, Tokens
from tests.simulation.loop import SimLoop
from tests.simulation.process import SimProcess
from tests.simulation.redis import SimRedis
from tests.simulation.shared_gate import LEASE_S
from tests.simulation.upstream import CALL_HEADER, SimUpstream, UpstreamManner
from tests.simulation.watch import NOBODY, Arrived, Left, Watch

DOMAIN = Domain(("account", "a"))
POOL = PoolLimit("pool", 1, lease_s=LEASE_S)
BUCKET = BucketLimit("bucket", 10, 1.0)


class Edges:
    """Issuer, upstream and Redis, and a process with a way to each."""

    def __init__(self) -> None:
        self.loop = SimLoop(Random(1))
        self.watch = Watch(self.loop.time, lambda: NOBODY)
        self.process = SimProcess("p1", "host")
        self.issuer = SimIssuer(self.loop.time, Random(2))
        self.upstream = SimUpstream(self.loop.time, Random(3), self.watch, self.issuer)
        self.redis = SimRedis(lambda: round(self.loop.time() * MICRO), Random(4), self.watch)
        self.tokens = self.issuer.transport(self.process, lambda: 0.01)
        self.calls = self.upstream.transport(self.process, lambda: 0.01)
        self.gate = self.redis.gate(self.process, lambda: 0.01)

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        async def scenario() -> None:
            await story()

        self.loop.run_until_complete(self.loop.create_task(scenario(), context=self.process.context()))

    async def refresh(self, tokens: Tokens, deadline_s: float = 5.0) -> HttpResponse | NoResponse:
        form = {"grant_type": Secret("refresh_token"), "refresh_token": Secret(tokens.refresh_token)}
        call = TokenCall("https://issuer.sim/strict/token", {}, form, deadline_s, reuse_connection=True)
        return await self.tokens.send(call, self.leave)

    async def leave(self) -> None:
        """To send."""

    async def call(self, tokens: Tokens, name: str = "c1") -> HttpResponse | NoResponse:
        headers = {"Authorization": Secret(f"Bearer {tokens.access_token}"), CALL_HEADER: name}
        return await self.calls.send(HttpRequest("GET", "https://api.sim/x", headers, None, 5.0, 1000))


@pytest.fixture
def edges() -> Iterator[Edges]:
    edges = Edges()
    yield edges
    edges.loop.close()


# ---- issuer --------------------------------------------------------------------------------------


def test_an_answer_that_is_lost_was_given(edges: Edges) -> None:
    async def story() -> None:
        tokens = edges.issuer.register("strict", "acme")
        edges.issuer.manner.lost = 1.0
        response = await edges.refresh(tokens)
        assert isinstance(response, NoResponse)
        assert (response.sent, response.kind) == (True, "timeout")

    edges.run(story)
    assert edges.issuer.ends == {1: "lost"}
    verdict = judge(edges.issuer.ledger())
    assert (verdict.generations, [burn.cause for burn in verdict.burns]) == (1, ["lost_answer"])


def test_request_to_an_absent_server_was_not_sent(edges: Edges) -> None:
    async def story() -> None:
        edges.issuer.manner.down = 1.0
        response = await edges.refresh(edges.issuer.register("strict", "acme"))
        assert isinstance(response, NoResponse)
        assert not response.sent

    edges.run(story)
    assert judge(edges.issuer.ledger()).provider_posts == 0


def test_request_sent_before_a_process_died_arrives(edges: Edges) -> None:
    tokens = edges.issuer.register("strict", "acme")
    refresh = edges.loop.create_task(edges.refresh(tokens), context=edges.process.context())
    edges.loop.call_later(0.025, edges.process.die, context=Context())
    edges.loop.run_until_complete(edges.loop.create_task(asyncio.sleep(1.0), context=Context()))
    assert not refresh.done()
    refresh.cancel()
    assert edges.issuer.ends == {1: "died"}
    assert judge(edges.issuer.ledger()).generations == 1


# ---- upstream ------------------------------------------------------------------------------------


def test_the_upstream_knows_whose_token_it_is_and_tells_what_is_in_flight(edges: Edges) -> None:
    async def story() -> None:
        tokens = edges.issuer.register("strict", "acme")
        response = await edges.call(tokens)
        assert isinstance(response, HttpResponse)
        assert (response.status, response.body) == (200, b'{"tenant": "acme"}')
        await edges.call(tokens._replace(access_token="nobody's"))

    edges.run(story)
    arrived = [entry.seen for entry in edges.watch.told if isinstance(entry.seen, Arrived)]
    assert [(arrival.account, arrival.status, arrival.in_flight) for arrival in arrived] == [
        ("strict/acme", 200, (1,)),
        ("nobody", 401, (2,)),
    ]
    assert sum(isinstance(entry.seen, Left) for entry in edges.watch.told) == 2


def test_the_upstream_works_on_for_the_dead(edges: Edges) -> None:
    tokens = edges.issuer.register("strict", "acme")
    edges.upstream.manner.slow = 1.0
    call = edges.loop.create_task(edges.call(tokens), context=edges.process.context())
    edges.loop.call_later(0.1, edges.process.die, context=Context())

    async def story() -> None:
        await asyncio.sleep(0.2)
        edges.calls = edges.upstream.transport(SimProcess("p2", "host"), lambda: 0.01)
        edges.upstream.manner.heal()
        await edges.call(tokens)
        await asyncio.sleep(UpstreamManner.slow_s)
        await edges.call(tokens)

    edges.loop.run_until_complete(edges.loop.create_task(story(), context=Context()))
    assert not call.done()
    call.cancel()
    arrived = [entry.seen for entry in edges.watch.told if isinstance(entry.seen, Arrived)]
    assert [arrival.in_flight for arrival in arrived] == [(1,), (1, 2), (3,)]


# ---- redis ---------------------------------------------------------------------------------------


def ask(number: int) -> AdmitRequest:
    return AdmitRequest(Plan(DOMAIN, pool=POOL), holder=Holder(number, "p1"))


def test_after_a_loss_no_slot_is_granted_before_every_old_lease_has_ended(edges: Edges) -> None:
    async def story() -> None:
        first = await edges.gate.admit(ask(1))
        assert isinstance(first, Admitted)
        edges.redis.lose()
        refused = await edges.gate.admit(ask(2))
        assert isinstance(refused, GateRefusal)
        assert refused.by is RefusedBy.RECOVERY
        renewed = await edges.gate.renew([Renewal(DOMAIN, POOL, Holder(1, "p1"), had_slot=True)])
        assert renewed == [Lease.ACTIVE], "who had it a moment ago has it back"

    edges.run(story)


def test_after_a_loss_buckets_are_empty(edges: Edges) -> None:
    async def story() -> None:
        spend = AdmitRequest(Plan(DOMAIN, buckets=(BUCKET,)))
        await asyncio.sleep(20.0)
        assert isinstance(await edges.gate.admit(spend), Admitted)
        edges.redis.lose()
        assert isinstance(await edges.gate.admit(spend), GateRefusal)

    edges.run(story)


def test_unreachable_server_responds_to_no_process(edges: Edges) -> None:
    async def story() -> None:
        edges.redis.away_for(5.0)
        with pytest.raises(LimiterUnavailableError):
            await edges.gate.ping()

    edges.run(story)


def test_server_unreachable_for_one_process_responds_to_others(edges: Edges) -> None:
    async def story() -> None:
        edges.redis.away_for(5.0, "p2")
        await edges.gate.ping()
        other = edges.redis.gate(SimProcess("p2", "host"), lambda: 0.01)
        with pytest.raises(LimiterUnavailableError):
            await other.ping()

    edges.run(story)
    assert +edges.watch.strikes == {"redis_away": 1, "redis_away one": 1}


def test_an_answer_of_redis_is_lost_and_all_is_done(edges: Edges) -> None:
    async def story() -> None:
        edges.redis.lost = 1.0
        with pytest.raises(LimiterUnavailableError):
            await edges.gate.admit(ask(1))
        assert [*edges.redis.slots_in_use()] == ["p1 holds a slot of pool"]

    edges.run(story)


def test_process_cut_off_meanwhile_receives_no_response(edges: Edges) -> None:
    async def story() -> None:
        asyncio.get_running_loop().call_later(0.015, edges.redis.away_for, 5.0, context=Context())
        with pytest.raises(LimiterUnavailableError):
            await edges.gate.admit(ask(1))
        assert [*edges.redis.slots_in_use()] == ["p1 holds a slot of pool"]

    edges.run(story)


def test_redis_command_that_timed_out_is_executed_later(edges: Edges) -> None:
    async def story() -> None:
        edges.redis.stall_for(10.0)
        with pytest.raises(LimiterUnavailableError):
            await edges.gate.admit(ask(1))
        assert edges.loop.time() == pytest.approx(RESPONSE_TIMEOUT_S)
        await asyncio.sleep(10.0)
        assert [*edges.redis.slots_in_use()] == ["p1 holds a slot of pool"]

    edges.run(story)


def test_command_sent_in_a_stall_is_executed_after_it(edges: Edges) -> None:
    async def story() -> None:
        edges.redis.stall_for(2.0)
        await edges.gate.ping()
        assert edges.loop.time() == pytest.approx(2.02)

    edges.run(story)
