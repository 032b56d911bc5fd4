"""E30: the scripts and the model answer alike, step by step, with time as an argument."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from secrets import token_hex
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from fairlead.engine.ports import AdmitRequest, Admitted, Observation, Queued, Release, Renewal, Reserved
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import Plan
from fairlead.policy.limits.pool import Holder
from tests.contract import histories
from tests.contract.gates import Timed, local_gate, redis_gate
from tests.contract.histories import DOMAIN, PAUSES_S, WORLDS, agree

COSTS, NUMBERS = st.sampled_from(histories.COSTS), st.sampled_from(histories.NUMBERS)


class Side:
    """One gate, and what was asked of it."""

    def __init__(self, timed: Timed) -> None:
        self.timed = timed
        self.admitted: list[Admitted] = []


class Lockstep(RuleBasedStateMachine):
    """Whatever is asked of one gate is asked of the other."""

    url: str

    @initialize(plans=st.sampled_from(WORLDS))
    def start(self, plans: Sequence[Plan]) -> None:
        self.plans = plans
        self.loop = asyncio.new_event_loop()
        self.sides = [Side(local_gate()), Side(redis_gate(self.url, f"model-{token_hex(6)}"))]
        self.asks: list[AdmitRequest] = []
        self.bookings: list[AdmitRequest] = []
        self.lease_ids = count(1)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.sides[1].timed.gate.close())  # type: ignore[attr-defined]
            self.loop.close()

    def both(self, act: Any) -> Any:
        """The answer of both to the same; they must agree."""
        local, redis = (self.loop.run_until_complete(act(side)) for side in self.sides)
        assert agree(shown(redis), shown(local)), f"model {local}, script {redis}"
        return local

    @rule(seconds=st.sampled_from(PAUSES_S))
    def time_passes(self, seconds: float) -> None:
        for side in self.sides:
            side.timed.tick(seconds)

    @rule(data=st.data())
    def asks_for_admission(self, data: st.DataObject) -> None:
        plan = data.draw(st.sampled_from(self.plans))
        holder = None
        if plan.pool is not None:
            classes = plan.pool.classes if plan.pool else 1
            number = data.draw(st.integers(1, classes))
            holder = Holder(next(self.lease_ids), "p1", "a", "j", number, plan.quota)
        ask = AdmitRequest(
            plan,
            tuple(data.draw(COSTS) for _ in plan.buckets),
            holder,
            waited_s=data.draw(st.sampled_from([0.0, 0.0, 2.0, 7.0])),
            wait_s=data.draw(st.sampled_from([0.0, 2.0])),
            reserve_ahead_s=data.draw(st.sampled_from([0.0, 3.0, 60.0])),
            reservation_id=next(self.lease_ids),
            call_s=2.0,
        )
        self.tells(ask)

    @rule(data=st.data())
    def asks_again(self, data: st.DataObject) -> None:
        if self.asks:
            self.tells(data.draw(st.sampled_from(self.asks)))

    @rule(data=st.data())
    def redeems(self, data: st.DataObject) -> None:
        if self.bookings:
            self.tells(data.draw(st.sampled_from(self.bookings)))

    def tells(self, ask: AdmitRequest) -> None:
        async def act(side: Side) -> Any:
            answer = await side.timed.admit(ask)
            if isinstance(answer, Admitted):
                side.admitted.append(answer)
            return answer

        answer = self.both(act)
        if isinstance(answer, Queued):
            self.asks.append(ask)
        if isinstance(answer, Reserved):
            self.bookings.append(ask)

    @rule(data=st.data())
    def gives_up(self, data: st.DataObject) -> None:
        given = self.asks + self.bookings
        if given:
            ask = data.draw(st.sampled_from(given))
            self.both(lambda side: side.timed.gate.cancel(ask))

    @rule(data=st.data(), held=st.booleans())
    def renews(self, data: st.DataObject, held: bool) -> None:
        asks = [ask for ask in self.asks if ask.plan.pool]
        asks += [AdmitRequest(one.plan, holder=one.holder) for one in self.sides[0].admitted if one.plan.pool]
        if asks:
            ask = data.draw(st.sampled_from(asks))
            assert ask.plan.pool is not None
            assert ask.holder is not None
            renewal = Renewal(DOMAIN, ask.plan.pool, ask.holder, wait_s=2.0, had_slot=held)
            self.both(lambda side: side.timed.gate.renew([renewal]))

    @rule(data=st.data(), health=st.sampled_from(DestinationHealth), reporter=st.sampled_from([2, 2, 3]))
    def ends(self, data: st.DataObject, health: DestinationHealth, reporter: int) -> None:
        if not self.sides[0].admitted:
            return
        number = data.draw(st.integers(0, len(self.sides[0].admitted) - 1))
        buckets = range(len(self.sides[0].admitted[number].plan.buckets))
        actual = {index: data.draw(COSTS) for index in buckets if data.draw(st.booleans())}
        observed = {index: self.observation(data) for index in buckets if data.draw(st.booleans())}

        async def act(side: Side) -> Any:
            admitted = side.admitted.pop(number)
            return await side.timed.gate.release(
                Release(admitted, health, actual, observed, reporter=reporter)
            )

        self.both(act)

    def observation(self, data: st.DataObject) -> Observation:
        def some(numbers: st.SearchStrategy[float]) -> float | None:
            return data.draw(st.one_of(st.none(), numbers))

        return Observation(
            some(NUMBERS),
            some(st.sampled_from([5.0, 40.0])),
            some(st.sampled_from([0.1, 50.0])),
            some(NUMBERS),
            some(NUMBERS),
        )


def shown(answer: Any) -> Any:
    """*answer* without its fence: two counters begin at two numbers."""
    return answer._replace(fence=0) if isinstance(answer, Admitted) else answer


@pytest.mark.parametrize("server", ["valkey", "redis_62"])
def test_e30_the_scripts_do_what_the_model_does(server: str, request: pytest.FixtureRequest) -> None:
    oldest = server == "redis_62"
    where = request.getfixturevalue("redis_62") if oldest else request.getfixturevalue("servers").redis_url

    class Machine(Lockstep):
        url = where

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Machine,
        settings=settings(
            max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
