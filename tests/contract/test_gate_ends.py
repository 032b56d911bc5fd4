"""Ends that nobody waits for, at every gate: surely done, and before what is asked later."""

from __future__ import annotations

import asyncio
from itertools import count

from fairlead.engine.ports.gate import Ask, Finish, Finished
from fairlead.policy.gate.limit import BreakerRule, Domain, Plan, PoolLimit
from fairlead.policy.gate.pool import Holder
from tests.contract.gates import Timed

DOMAIN = Domain(("tenant", "a"))
_ids = count(1)


def ask(plan: Plan) -> Ask:
    """One more asker."""
    return Ask(plan, holder=Holder(next(_ids), "process"))


async def test_what_is_asked_after_an_end_is_judged_after_it(timed: Timed) -> None:
    """Nobody waits for the end; however many connections there are, one who asks next finds its slot free."""
    plan, told = Plan(DOMAIN, pool=PoolLimit("p", 1)), []
    admitted = await timed.admitted(ask(plan))
    for _ in range(30):
        timed.gate.end(Finish(admitted), told.append)
        admitted = await timed.admitted(ask(plan))
    assert told == [Finished(kept=True)] * 30


async def test_an_end_stands_before_what_is_asked_with_it(timed: Timed) -> None:
    """In one batch, too, and where the next call of the same slots meets other limits."""
    limit, told = PoolLimit("p", 1), []
    admitted = await timed.admitted(ask(Plan(DOMAIN, pool=limit)))
    other = Plan(Domain(("tenant", "b")), pool=limit)
    guarded = Plan(DOMAIN, pool=limit, breaker=BreakerRule("c|h"))
    asking = asyncio.gather(*(timed.admitted(ask(plan)) for plan in (other, guarded)))
    timed.gate.end(Finish(admitted), told.append)
    await asking
    assert told == [Finished(kept=True)]
