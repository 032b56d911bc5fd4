"""E41: thousands of connections have expired together, and a job of each wants to call its API at once.

The token endpoint gets what its limit allows and no more; jobs wait for their turn at it, none fails, and no
call goes out with a token that is dead.
"""

from __future__ import annotations

from collections import Counter
from secrets import token_hex

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.policy.gate.limit import MICRO
from fairlead.policy.gate.verdict import judge_bucket
from fairlead.testing.api.stripe import StripeApi
from fairlead.testing.ledger.lines import posts_of
from tests.faults.support.report import Figures, sized
from tests.faults.support.stage import Stage, until

pytestmark = pytest.mark.slow

PROVIDER = "stable"
PROCESSES = 2
AT_WORK = 8  # jobs at once of each process: else a permit is old when its request leaves
CONNECTIONS = sized(120, 10_000)
LIMIT, PER_S = sized((10, 0.5), (20, 0.5))  # requests of the token endpoint, in so many seconds
ON_WAY_S = 0.25  # from our clock to the issuer's ledger; what comes closer together there was not sent so
AT_ONCE = 500
WITHIN_S = sized(50.0, 600.0)


async def _experiment(stage: Stage, figures: Figures, redis_url: str, limit: int = LIMIT) -> None:
    redis = {"url": redis_url, "prefix": f"e41-{token_hex(4)}"}
    overlays = {PROVIDER: {"rate": {"limit": limit, "per_s": PER_S}, "hosts": ["127.0.0.1"]}}
    idle = await stage.born(child="client", redis=redis, overlays=overlays)
    tenants = [f"tenant-{number}" for number in range(CONNECTIONS)]
    grants = [stage.issuer.register(PROVIDER, name, account_id=f"account-{name}") for name in tenants]
    ids: list[str] = []
    for first in range(0, CONNECTIONS, AT_ONCE):
        who = [
            {
                "tenant": grant.connection,
                "provider": PROVIDER,
                "access_token": grant.access_token,
                "refresh_token": grant.refresh_token,
                "expires_in_s": 3600.0,
            }
            for grant in grants[first : first + AT_ONCE]
        ]
        ids += (await idle.ask("connect", connections=who))["ids"]
    await stage.expire(ids)
    async with StripeApi(per_s=1e6, endpoint_per_s=1e6) as api:
        api.switch(unauthorised=[grant.access_token for grant in grants])
        jobs = [
            {"tenant": name, "provider": PROVIDER, "url": f"{api.url}/{name}/v1/charges"} for name in tenants
        ]
        await idle.ask("enqueue", jobs=jobs)
        for _ in range(PROCESSES):
            await stage.born(
                child="client", works=True, redis=redis, overlays=overlays, worker={"concurrency": AT_WORK}
            )

        async def all_over() -> bool:
            return not await stage.rows(
                "SELECT FROM job WHERE kind = 'fault.call' AND state IN ('available', 'running') LIMIT 1"
            )

        await until(all_over, "all jobs are over", within_s=WITHIN_S)
        statuses = Counter(one.status for one in api.ledger.of())
    await _judge(stage, figures, statuses)


async def _judge(stage: Stage, figures: Figures, statuses: Counter[int | None]) -> None:
    rows = await stage.rows("SELECT state::text, count(*) AS n FROM job WHERE kind = 'fault.call' GROUP BY 1")
    states = {row["state"]: row["n"] for row in rows}
    arrivals = sorted(post.t_arrived for post in posts_of(stage.issuer.ledger()))
    per_s = LIMIT / PER_S
    spends = ((round(at_s * MICRO), MICRO) for at_s in arrivals)
    over = judge_bucket(spends, capacity=LIMIT * MICRO, rate=round(per_s * MICRO)).most_over
    took_s = arrivals[-1] - arrivals[0]
    figures.note(n=CONNECTIONS, token_posts=len(arrivals), per_s=round(len(arrivals) / took_s, 1))
    figures.note(cap_per_s=per_s, over=round(over, 2), states=states)
    figures.zero(failed=CONNECTIONS - states.get("completed", 0), dead_tokens_sent=statuses[401])
    figures.holds(len(arrivals) == CONNECTIONS, "one request for each connection")
    figures.holds(over <= ON_WAY_S * per_s, f"{over:.1f} requests over the cap")


async def test_E41_refresh_storm(stage: Stage, servers: Endpoints) -> None:
    figures = Figures("E41")
    await _experiment(stage, figures, servers.redis_url)
    figures.conclude()


async def test_E41_ablation_no_cap(stage: Stage, servers: Endpoints) -> None:
    figures = Figures("E41", ablation="no_cap")
    await _experiment(stage, figures, servers.redis_url, limit=1_000_000)
    figures.conclude()
