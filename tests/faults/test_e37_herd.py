"""E37: thousands of jobs are told "come back in ten seconds" together; they do not come as a herd (R15).

Each is of another tenant, so no limit of a connection spreads them. None comes before the time it was told,
and hardly any within the first moment after it.
"""

from __future__ import annotations

from secrets import token_hex

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.testing.api.ledger import Arrival
from fairlead.testing.api.stripe import StripeApi
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.stage import Stage, until

pytestmark = pytest.mark.slow

JOBS = sized(200, 5_000)
TOLD_S = sized(2, 10)
FIRST_S, MOST_SHARE = 0.2, 0.05
AT_ONCE = 500
WITHIN_S = sized(40.0, 300.0)
OVERLAY = {
    "allow_http": True,
    "hosts": ["127.0.0.1", "127.0.0.2", "localhost"],
    "apis": {"rest": {"url": "http://localhost/v1"}},
}


async def _experiment(stage: Stage, figures: Figures, redis_url: str, unsafe: tuple[str, ...] = ()) -> None:
    async with StripeApi(per_s=1e5, endpoint_per_s=1e5) as api:
        api.switch(capacity=1e-9, retry_after=str(TOLD_S))
        child = await stage.born(
            child="client",
            works=True,
            unsafe=unsafe,
            overlays={"stripe": OVERLAY},
            redis={"url": redis_url, "prefix": f"e37-{token_hex(4)}"},
        )
        tenants = [f"tenant-{number}" for number in range(JOBS)]
        for first in range(0, JOBS, AT_ONCE):
            names = tenants[first : first + AT_ONCE]
            who = [{"tenant": name, "provider": "stripe", "api_key": "sk_1"} for name in names]
            await child.ask("connect", connections=who)
        jobs = [
            {"tenant": name, "provider": "stripe", "url": f"{api.url}/{name}/v1/charges"} for name in tenants
        ]
        await child.ask("enqueue", jobs=jobs)
        by_tenant = await _told_and_back(api, tenants)
    offsets = [again.begun_s - (told.ended_s or 0.0) - TOLD_S for told, again in by_tenant]
    share = sum(0 <= offset < FIRST_S for offset in offsets) / JOBS
    figures.note(n=JOBS, told_s=TOLD_S, after_s=quantiles(offsets), first_200_ms=round(share, 4))
    figures.zero(early=sum(offset < 0 for offset in offsets))
    figures.holds(share <= MOST_SHARE, f"{share:.1%} came within {FIRST_S} s")


async def _told_and_back(api: StripeApi, tenants: list[str]) -> list[tuple[Arrival, Arrival]]:
    """Each tenant's first request, which is refused, and the next."""

    async def all_told() -> bool:
        return api.ledger.refused() >= len(tenants)

    await until(all_told, "all are told to come back", within_s=WITHIN_S)
    api.calm()

    async def all_back() -> bool:
        return api.ledger.admitted() >= len(tenants)

    await until(all_back, "all have come back", within_s=WITHIN_S)
    seen: dict[str, list[Arrival]] = {name: [] for name in tenants}
    for one in api.ledger.of():
        seen[one.account].append(one)
    return [(arrivals[0], arrivals[1]) for arrivals in seen.values()]


async def test_E37_herd(stage: Stage, servers: Endpoints) -> None:
    figures = Figures("E37")
    await _experiment(stage, figures, servers.redis_url)
    figures.conclude()


async def test_E37_ablation_nothing_is_spread(stage: Stage, servers: Endpoints) -> None:
    figures = Figures("E37", ablation="no_spread")
    await _experiment(stage, figures, servers.redis_url, ("no_spread",))
    figures.conclude()
