"""E38: an API loses nine tenths of its capacity for a while; its callers let it recover (P10).

Calls through the real client, in an open loop at 80 % of what the API can do. One API puts what it cannot do
in line, also for those who have gone: only a breaker keeps that line short. The other refuses it at once:
only the budget keeps retries from becoming the load. Without its safeguard each violates P10, and callers
that know of nothing but retries violate it as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bench import storm as bench
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.session import DatabaseSettings
from fairlead.engine.call import pipeline
from fairlead.policy.gate.breaker import Health
from fairlead.policy.gate.retries import RetryBudget
from fairlead.policy.lost import lost
from tests.faults.support.report import Figures, sized

pytestmark = pytest.mark.slow

SIZE = sized(bench.SMALL, bench.FULL)
RECOVERY_S = sized(17.0, bench.MOST_RECOVERY_S)

Storm = Callable[[str], AbstractAsyncContextManager[bench.Told]]


@pytest.fixture
def ours(servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path) -> Storm:
    """A storm on an API of this kind, through fairlead."""
    environ = {
        "DATABASE_URL": database_settings.dsn,
        "REDIS_URL": servers.redis_url,
        "FAIRLEAD_DATABASE__SCHEMA_NAME": database_settings.schema or "",
    }

    @asynccontextmanager
    async def blown(kind: str) -> AsyncIterator[bench.Told]:
        async with (
            bench.stripe(kind) as api,
            bench.house(tmp_path, api.url, environ) as fl,
            bench.through_fairlead(fl, SIZE, bench.KINDS[kind][1]) as call,
        ):
            yield await bench.storm(api, SIZE, call)

    return blown


def _judge(figures: Figures, told: bench.Told) -> None:
    recovery_s = told.recovery_s
    before = told.share(0, SIZE.before_s)
    figures.note(n=told.calls.total(), sent=told.sent, requests=told.requests, recovery_s=recovery_s)
    figures.note(amplification=round(told.amplification, 3), good_before=round(before, 3))
    figures.note(good_by_second=[round(told.share(each, each + 1), 2) for each in sorted(told.calls)])
    figures.holds(told.amplification <= bench.MOST_AMPLIFIED, f"{told.amplification:.2f} requests a call")
    figures.holds(recovery_s is not None and recovery_s <= RECOVERY_S, f"good again after {recovery_s} s")


@pytest.mark.parametrize("kind", bench.KINDS)
async def test_E38_metastable(ours: Storm, kind: str) -> None:
    figures = Figures(f"E38-{kind}")
    async with ours(kind) as told:
        _judge(figures, told)
    figures.holds(told.share(0, SIZE.before_s) >= bench.GOOD, "it was well before")
    figures.holds(told.share(SIZE.before_s, SIZE.before_s + SIZE.trigger_s) < bench.GOOD, "it was ill")
    figures.conclude()


async def test_E38_ablation_no_breaker(ours: Storm, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Figures("E38-queues", ablation="no_breaker")
    monkeypatch.setattr(pipeline, "lost", lambda *it, **how: replace(lost(*it, **how), health=Health.NEUTRAL))
    async with ours("queues") as told:
        _judge(figures, told)
    figures.conclude()


async def test_E38_ablation_no_budget(ours: Storm, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Figures("E38-sheds", ablation="no_budget")
    monkeypatch.setattr(RetryBudget, "takes_retry", lambda *_: True)
    async with ours("sheds") as told:
        _judge(figures, told)
    figures.conclude()


@pytest.mark.parametrize("kind", bench.KINDS)
async def test_E38_ablation_retries_only(kind: str) -> None:
    figures = Figures(f"E38-{kind}", ablation="retries_only")
    async with bench.stripe(kind) as api, bench.with_retries_only(api.url, figures.seed) as call:
        _judge(figures, await bench.storm(api, SIZE, call))
    figures.conclude()
