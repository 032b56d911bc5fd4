"""E42: many processes ask for the same connection at the same moment; one request per generation leaves.

The issuer revokes the whole family at a single replay. Some answers take longer than the lease lasts, which
is what no lock with a time limit survives, and some processes reach their database over a slow wire. Whoever
asks gets the fresh token; only where the answer takes longer than the lease he may be told to ask again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from fairlead.testing import Quirk
from tests.faults.support.child import Asked, Child
from tests.faults.support.faultproxy import postgres_proxy
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.stage import FAMILY, Stage
from tests.faults.support.unsafe import TTL_LOCK_TABLE
from tests.support.standstill import ran_s

pytestmark = pytest.mark.slow

PROCESSES, FAR, ROUNDS = sized(5, 32), sized(1, 4), sized(16, 1000)
SLOW_EVERY = sized(8, 20)
LEASE_S, SLOW_S, SPREAD_S, WIRE_DELAY_S = 0.25, 0.6, 0.004, 0.003
NUMBERS = {"lease_s": LEASE_S, "wait_s": 10.0, "request_deadline_s": 10.0, "total_deadline_s": 20.0}
ASK_AGAIN = ("OutcomeUnknownError", "RefreshInProgressError")
"""Errors that say so; any other speaks of a credential, or of us."""


async def _ask(child: Child, connection: str, generation: int, after_s: float) -> dict[str, object]:
    try:
        return await child.ask("refresh", connection=connection, newer_than=generation, after_s=after_s)
    except Asked as refused:
        return {"error": refused.error}


async def _race(stage: Stage, figures: Figures, rounds: int, unsafe: tuple[str, ...] = ()) -> list[float]:
    """All processes ask at once, *rounds* times; how long each quick round took."""
    async with postgres_proxy(stage.database.settings.dsn) as (wire, url):
        wire.delay_s = lambda: figures.draw.uniform(0, WIRE_DELAY_S)
        children = await stage.all_born(PROCESSES - FAR, unsafe=unsafe, numbers=NUMBERS)
        children += await stage.all_born(FAR, unsafe=unsafe, numbers=NUMBERS, url=url)
        took_s = await _rounds(stage, figures, children, rounds, until_burnt=bool(unsafe))
        for child in children:
            await child.kill()
    return took_s


async def _rounds(
    stage: Stage, figures: Figures, children: list[Child], rounds: int, *, until_burnt: bool
) -> list[float]:
    (connection,) = await stage.connect(children[0], FAMILY, ["acme"])
    took_s, wrong, other_errors, counts = [], 0, 0, Counter[str]()
    for generation in range(1, rounds + 1):
        slow = generation % SLOW_EVERY == 0
        if slow:
            stage.issuer.be_rude(Quirk(slow_head_s=SLOW_S), times=1)
        began_s = time.monotonic()
        asks = [_ask(child, connection, generation, figures.draw.uniform(0, SPREAD_S)) for child in children]
        answers = await asyncio.gather(*asks)
        outlasted = time.monotonic() - began_s > LEASE_S  # slow, or on a machine that stood still
        took_s += [] if slow else [ran_s(began_s)]
        served = {(answer["generation"], answer["token"]) for answer in answers if "token" in answer}
        wrong += served != {(generation + 1, stage.live_token(FAMILY, "acme"))}
        errors = [str(answer["error"]) for answer in answers if "error" in answer]
        other_errors += sum(not outlasted or error not in ASK_AGAIN for error in errors)
        counts.update(errors)
        if until_burnt and stage.verdict().burnt:
            break
    figures.note(processes=PROCESSES, rounds=rounds, told_instead=dict(counts))
    figures.zero(wrong_answers=wrong, other_errors=other_errors)
    return took_s


def _judge(stage: Stage, figures: Figures, rounds: int) -> None:
    verdict = stage.verdict()
    figures.note(provider_posts=verdict.provider_posts, generations=verdict.generations)
    figures.holds(verdict.provider_posts == verdict.generations == rounds, "one post per generation")
    figures.zero(burnt=verdict.burnt, overlaps=verdict.overlaps, violations=len(verdict.violations))


async def test_E42_refresh_race(stage: Stage) -> None:
    figures = Figures("E42")
    took_s = await _race(stage, figures, ROUNDS)
    _judge(stage, figures, ROUNDS)
    figures.note(n=ROUNDS * PROCESSES, round_ms=quantiles(took_s, 1000))
    states = {row["state"] for row in (await stage.credentials()).values()}
    figures.holds(states == {"active"}, f"states {states}")
    figures.conclude()


async def test_E42_ablation_a_lock_with_a_time_limit(stage: Stage) -> None:
    figures = Figures("E42", ablation="ttl_lock", sees="burnt")
    await stage.run(TTL_LOCK_TABLE)
    rounds = SLOW_EVERY * 2
    await _race(stage, figures, rounds, ("ttl_lock",))
    figures.broken.clear()  # what counts is what was burnt
    figures.zero(burnt=stage.verdict().burnt)
    figures.conclude()
