"""E41: thousands of connections have expired together, and a job of each wants to call its API at once.

The token endpoint gets what its limit allows and no more; jobs wait for their turn at it, none fails, and no
call goes out with a token that is dead.

What counts is what the issuer saw. A request that was on its way for longer than the next ones comes together
with them there; so the database notes when each was begun, right after it was given leave: those moments keep
to the limit closely, and what the issuer saw may be late by the longest way.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from secrets import token_hex

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.policy.limits.event_log_check import verify_bucket_log
from fairlead.policy.limits.limit import MICRO
from fairlead.testing.api.stripe import StripeApi
from fairlead.testing.ledger.lines import posts_of
from tests.faults.support.report import Figures, sized
from tests.faults.support.stage import Stage, until
from tests.support.raw_connections import raw_connection

pytestmark = pytest.mark.slow

PROVIDER = "stable"
PROCESSES = 2
AT_WORK = 8  # jobs at once of each process: else a permit is old when its request leaves
CONNECTIONS = sized(120, 10_000)
LIMIT, PER_S = sized((10, 0.5), (20, 0.5))  # requests of the token endpoint, in so many seconds
BEGUN_S = 0.05  # from the leave to the note that it was begun
ON_WAY_S = 0.25  # from there to the issuer's ledger, at most
AT_ONCE = 500
WITHIN_S = sized(50.0, 600.0)


LOG = """
CREATE UNLOGGED TABLE begun_log (connection_id uuid, at_s float8);
CREATE FUNCTION begun_noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO begun_log VALUES (NEW.connection_id, extract(epoch FROM clock_timestamp()));
    RETURN NULL;
END $$;
CREATE TRIGGER begun_noted AFTER INSERT ON refresh_attempt FOR EACH ROW EXECUTE FUNCTION begun_noted();
"""


async def _experiment(stage: Stage, figures: Figures, redis_url: str, limit: int = LIMIT) -> None:
    redis = {"url": redis_url, "prefix": f"e41-{token_hex(4)}"}
    overlays = {PROVIDER: {"rate": {"limit": limit, "window_s": PER_S}, "hosts": ["127.0.0.1"]}}
    idle = await stage.born(child="client", redis=redis, overlays=overlays)
    tenants = [f"tenant-{number}" for number in range(CONNECTIONS)]
    grants = [stage.issuer.register(PROVIDER, name, account_id=f"account-{name}") for name in tenants]
    ids: list[str] = []
    for first in range(0, CONNECTIONS, AT_ONCE):
        own_grants = [
            {
                "tenant": grant.connection,
                "provider": PROVIDER,
                "access_token": grant.access_token,
                "refresh_token": grant.refresh_token,
                "expires_in_s": 3600.0,
            }
            for grant in grants[first : first + AT_ONCE]
        ]
        ids += (await idle.ask("connect", connections=own_grants))["ids"]
    await stage.expire(ids)
    async with raw_connection(stage.database) as connection:
        await connection.execute(LOG)
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
        statuses = Counter(arrival.status for arrival in api.ledger.of())
    await _judge(stage, figures, statuses)


async def _judge(stage: Stage, figures: Figures, statuses: Counter[int | None]) -> None:
    rows = await stage.rows("SELECT state::text, count(*) AS n FROM job WHERE kind = 'fault.call' GROUP BY 1")
    states = {row["state"]: row["n"] for row in rows}
    epoch_s = time.time() - time.monotonic()
    arrivals = sorted(epoch_s + post.t_arrived for post in posts_of(stage.issuer.ledger()))
    last = await stage.rows("SELECT max(at_s) AS at_s FROM begun_log GROUP BY connection_id ORDER BY 1")
    starts = [row["at_s"] for row in last]
    lag_s = max(came_s - begun_s for came_s, begun_s in zip(arrivals, starts, strict=False))
    per_s = LIMIT / PER_S
    over, begun_over = _over(arrivals), _over(starts)
    took_s = arrivals[-1] - arrivals[0]
    figures.note(n=CONNECTIONS, token_posts=len(arrivals), per_s=round(len(arrivals) / took_s, 1))
    figures.note(cap_per_s=per_s, states=states)
    figures.note(rate_over=round(over, 2), begun_over=round(begun_over, 2), lag_s=round(lag_s, 3))
    figures.zero(failed=CONNECTIONS - states.get("completed", 0), dead_tokens_sent=statuses[401])
    figures.holds(len(arrivals) == CONNECTIONS, "one request for each connection")
    figures.holds(len(starts) == CONNECTIONS, "each was noted when it was begun")
    figures.holds(over <= ON_WAY_S * per_s, f"{over:.1f} requests over the cap")
    figures.holds(begun_over <= BEGUN_S * per_s, f"{begun_over:.1f} were begun over it")


def _over(moments_s: Sequence[float]) -> float:
    """By how many requests the worst window passes the limit."""
    spends = ((round(at_s * MICRO), MICRO) for at_s in moments_s)
    rate = round(LIMIT / PER_S * MICRO)
    return verify_bucket_log(spends, capacity=LIMIT * MICRO, rate=rate).max_excess


async def test_E41_refresh_storm(stage: Stage, servers: Endpoints) -> None:
    figures = Figures("E41")
    await _experiment(stage, figures, servers.redis_url)
    figures.conclude()


async def test_E41_ablation_no_cap(stage: Stage, servers: Endpoints) -> None:
    figures = Figures("E41", ablation="no_cap", sees="were begun over it")
    await _experiment(stage, figures, servers.redis_url, limit=1_000_000)
    figures.conclude()
