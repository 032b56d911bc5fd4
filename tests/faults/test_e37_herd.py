"""E37: thousands of jobs are told "come back in ten seconds" together; they do not come as a herd (R15).

Each is of another tenant, so no limit of a connection spreads them. None comes before the time it was told,
and hardly any within the first moment after it: neither by the ledger of the vendor nor by what stands in the
database, since thousands that are due together come as fast as this machine runs them.
"""

from __future__ import annotations

import time
from itertools import pairwise
from secrets import token_hex

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.testing.api.request_log import Arrival
from fairlead.testing.api.stripe import StripeApi
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.stage import Stage, until

pytestmark = pytest.mark.slow

JOBS = sized(200, 5_000)
TOLD_S = sized(3, 10)  # more than a job waits inline
FIRST_S, MOST_SHARE = 0.2, 0.05
AT_ONCE = 500
AT_WORK = 40  # jobs at once: an answer is soon read, and its wait begins
WITHIN_S = sized(40.0, 300.0)
OVERLAY = {"allow_http": True, "apis": {"rest": {"url": "http://localhost/v1"}}, "hosts": ["127.0.0.1"]}


async def _experiment(stage: Stage, figures: Figures, redis_url: str, unsafe: tuple[str, ...] = ()) -> None:
    async with StripeApi(per_s=1e5, endpoint_per_s=1e5) as api:
        api.switch(capacity=1e-9, retry_after=str(TOLD_S))
        child = await stage.born(
            child="client",
            works=True,
            worker={"concurrency": AT_WORK},
            unsafe=unsafe,
            overlays={"stripe": OVERLAY},
            redis={"url": redis_url, "prefix": f"e37-{token_hex(4)}"},
        )
        tenants = [f"tenant-{number}" for number in range(JOBS)]
        for first in range(0, JOBS, AT_ONCE):
            names = tenants[first : first + AT_ONCE]
            grants = [{"tenant": name, "provider": "stripe", "api_key": "sk_1"} for name in names]
            await child.ask("connect", connections=grants)
        jobs = [
            {"tenant": name, "provider": "stripe", "url": f"{api.url}/{name}/v1/charges"} for name in tenants
        ]
        await child.ask("enqueue", jobs=jobs)
        arrivals_by_tenant = await _told_and_back(api, tenants)
    retry_delays = [
        again.begun_mono - (refused_arrival.ended_mono or 0.0) - TOLD_S
        for arrivals in arrivals_by_tenant.values()
        for refused_arrival, again in pairwise(arrivals)
    ]
    due = [
        due_s - (arrivals_by_tenant[name][-2].ended_mono or 0.0) - TOLD_S
        for name, due_s in (await _due(stage)).items()
    ]
    figures.note(n=JOBS, told_s=TOLD_S)
    for delay_name, after_s in (("came", retry_delays), ("due", due)):
        share = sum(0 <= each_s < FIRST_S for each_s in after_s) / len(after_s)
        figures.note(**{f"{delay_name}_after_s": quantiles(after_s)})
        figures.note(**{f"{delay_name}_first_200_ms_percent": round(100 * share, 2)})
        figures.zero(**{f"{delay_name}_early": sum(each_s < 0 for each_s in after_s)})
        figures.holds(share <= MOST_SHARE, f"{share:.1%} {delay_name} within {FIRST_S} s")


async def _due(stage: Stage) -> dict[str, float]:
    """When each tenant's job was to run again, by the ledger's clock."""
    ahead_s = time.time() - time.monotonic()
    rows = await stage.rows("SELECT tenant_id, run_at FROM job WHERE kind = 'fault.call'")
    return {row["tenant_id"]: row["run_at"].timestamp() - ahead_s for row in rows}


async def _told_and_back(api: StripeApi, tenants: list[str]) -> dict[str, list[Arrival]]:
    """Each tenant's requests: those that were refused, and the one that was not."""

    def accounts(refused: bool) -> set[str]:
        return {
            arrival.account
            for arrival in api.ledger.of()
            if arrival.ended_mono and (arrival.refused is not None) == refused
        }

    async def all_told() -> bool:
        return api.ledger.refused() >= JOBS and len(accounts(refused=True)) == JOBS

    await until(all_told, "all are told to come back", within_s=WITHIN_S)
    api.calm()

    async def all_back() -> bool:
        return api.ledger.admitted() >= JOBS and len(accounts(refused=False)) == JOBS

    await until(all_back, "all have come back", within_s=WITHIN_S)
    arrivals_by_tenant: dict[str, list[Arrival]] = {name: [] for name in tenants}
    for each_arrival in api.ledger.of():
        arrivals_by_tenant[each_arrival.account].append(each_arrival)
    return arrivals_by_tenant


async def test_E37_herd(stage: Stage, servers: Endpoints) -> None:
    figures = Figures("E37")
    await _experiment(stage, figures, servers.redis_url)
    figures.conclude()


async def test_E37_ablation_nothing_is_spread(stage: Stage, servers: Endpoints) -> None:
    figures = Figures("E37", ablation="no_spread", sees="within 0.2 s")
    await _experiment(stage, figures, servers.redis_url, ("no_spread",))
    figures.conclude()
