"""S07: the rights of docs/reference/redis-user.md are enough for all that fairlead asks of Redis.

None of them is there for nothing, and what could hurt others is refused."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, ResponseError

from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.redis import redis_info_by_server
from fairlead.adapters.redis.admin import RedisAdmin
from fairlead.adapters.redis.inspector import RedisInspector
from fairlead.adapters.redis.keys import RedisKeys
from fairlead.adapters.redis.probe import probe_redis
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.ports import AdmitRequest, Admitted, Queued, Release, Renewal
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.key import Keyspace
from fairlead.policy.limits.limit import BreakerRule, BucketLimit, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
from tests.faults.support.valkey import OwnValkey, oldest_redis, own_valkey
from tests.lint.tree import PACKAGE, ROOT, files

PAGE = ROOT / "docs/reference/redis-user.md"
KEYS = Keyspace()
DOMAIN = Domain(("tenant", "acme"))
POOL, QUOTA = PoolLimit("p", 1, classes=2), QuotaLimit("q", 5)
HOLDER = Holder(1, "p", "acme", "job", 1, QUOTA)
PLAN = Plan(
    DOMAIN,
    buckets=(BucketLimit("b", 100, 50),),
    pool=POOL,
    quota=QUOTA,
    breaker=BreakerRule("k"),
)
OTHERS = {"cluster|slots", "cluster|info", "select"}  # clusters; a database other than 0
FREE = {"auth", "hello", "client|setinfo", "client", "command", "command|docs"}
"""Asked by the library, which does without the answer."""


def rights() -> list[list[str]]:
    """The lines of the page, as commands."""
    (block,) = re.findall(r"```redis\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return [line.split() for line in block.strip().splitlines()]


@pytest.fixture(params=["valkey", "redis_62"])
def server(request: pytest.FixtureRequest) -> Iterator[OwnValkey]:
    with own_valkey(program=oldest_redis() if request.param == "redis_62" else None) as server:
        yield server


@pytest.fixture
async def url(server: OwnValkey) -> str:
    """As the user of the page."""
    for line in rights():
        await server.tell(*line)
    return server.url.replace("redis://", "redis://fairlead:PASSWORD@")


@pytest.fixture
async def gate(url: str) -> AsyncIterator[RedisGate]:
    gate = RedisGate(Secret(url), clock=SystemClock(), process="p", keys=KEYS, new=True, events=50, spends=50)
    yield gate
    await gate.close()


def ask(lease_id: int, number: int = 1) -> AdmitRequest:
    return AdmitRequest(PLAN, holder=HOLDER._replace(lease_id=lease_id, priority_class=number), wait_s=30)


async def everything(gate: RedisGate, url: str) -> None:
    """All that fairlead asks of a server, by the classes that ask it."""
    woken: list[int] = []
    await gate.listen(woken.append)
    first = await gate.admit(ask(1))
    assert isinstance(first, Admitted)
    assert isinstance(await gate.admit(ask(2)), Queued)
    assert isinstance(await gate.admit(ask(3, 2)), Queued)
    await gate.renew([Renewal(DOMAIN, POOL, HOLDER, had_slot=True)])
    operator, viewer, keys = (kind(Secret(url), KEYS) for kind in (RedisAdmin, RedisInspector, RedisKeys))
    assert await operator.promote(PLAN, 3, dry_run=True)
    await operator.promote(PLAN, 3)
    await gate.ping()
    await gate.release(Release(first, DestinationHealth.UNHEALTHY))
    assert isinstance(await gate.admit(ask(3, 2)), Admitted)
    await gate.cancel(ask(2))
    await viewer.inspect(PLAN, events=10)
    await operator.reset_breaker(PLAN)
    survey = await keys.survey(leases=True, window_s=60.0)
    assert survey.kinds
    assert survey.leases
    await keys.remove_leases(survey.leases)
    await keys.set_ttl([KEYS.marker], 60.0)
    assert await redis_info_by_server(Secret(url))
    assert await probe_redis(Secret(url), 3)
    assert await operator.clear(dry_run=True)
    await operator.clear()


async def test_S07_the_least_rights_are_enough(gate: RedisGate, url: str, server: OwnValkey) -> None:
    await server.tell("CONFIG", "RESETSTAT")
    await everything(gate, url)
    stats = await server.tell("INFO", "commandstats")
    refused = [name for name, line in stats.items() if int(line.get("rejected_calls", 0))]
    assert not [name for name in refused if name.removeprefix("cmdstat_") not in FREE]
    used = {name.removeprefix("cmdstat_") for name, line in stats.items() if int(line["calls"])}
    idle = {name for name in granted() if name not in used and name.partition("|")[0] not in used}
    assert idle - OTHERS - in_scripts() == set(), "a right that nothing needs"


def test_S07_acl_grants_every_command_of_a_script() -> None:
    assert in_scripts() - granted() == set()
    assert "evalsha" in granted()


def granted() -> set[str]:
    return {word[1:] for line in rights() for word in line if word.startswith("+")}


def in_scripts() -> set[str]:
    """The commands that stand in our scripts."""
    texts = (path.read_text("utf-8") for path in files(f"{PACKAGE}/adapters/redis/lua", suffixes=(".lua",)))
    return {name.lower() for text in texts for name in re.findall(r"redis\.p?call\(\s*'([A-Z]+)'", text)}


def test_S07_acl_grants_the_commands_for_a_cluster() -> None:
    texts = (path.read_text("utf-8") for path in files(f"{PACKAGE}/adapters/redis", suffixes=(".py",)))
    commands = {word.lower() for text in texts for word in re.findall(r'"CLUSTER", "([A-Z]+)"', text)}
    assert {f"cluster|{word}" for word in commands} == {
        name for name in granted() if name.startswith("cluster")
    }


@pytest.mark.parametrize("command", ["CLUSTER SLOTS", "CLUSTER INFO"])
async def test_S07_a_cluster_may_be_looked_at(url: str, command: str) -> None:
    client = Redis.from_url(url)
    try:
        with pytest.raises(ResponseError, match="cluster support disabled"):  # not: no permission
            await client.execute_command(*command.split(" "))
    finally:
        await client.aclose()


@pytest.mark.parametrize(
    "command",
    ["CONFIG GET *", "CONFIG SET maxmemory 1", "DEBUG SLEEP 0", "FLUSHALL", "FLUSHDB", "KEYS *", "SAVE",
     "MONITOR", "SHUTDOWN NOSAVE", "REPLICAOF NO ONE", "ACL LIST", "SCRIPT FLUSH", "CLIENT LIST",
     "MODULE LIST", "GET other", "SWAPDB 0 1", "RENAME fairlead3:a b", "SET other 1", "DEL other",
     "ZADD other 1 a", "SUBSCRIBE other", "PUBLISH other x", "EVAL redis.call('FLUSHALL') 0",
     "EVAL redis.call('SET',KEYS[1],'x') 1 other", "GET fairlead-staging3:a", "SET fairlead-staging3:a 1",
     "DEL fairlead32:a", "SET fairlead3 1", "SUBSCRIBE fairlead-staging3:g:p",
     "PUBLISH fairlead-staging3:g:p x", "CLUSTER RESET", "CLUSTER FAILOVER", "CLUSTER MEET 127.0.0.1 1",
     "CLUSTER FORGET x", "CLUSTER FLUSHSLOTS", "CLUSTER SETSLOT 0 NODE x"],
)  # fmt: skip
async def test_S07_acl_refuses_commands_that_harm_others(url: str, server: OwnValkey, command: str) -> None:
    await server.tell("SET", "other", "kept")
    client = Redis.from_url(url)
    try:
        with pytest.raises((NoPermissionError, ResponseError), match=r"(?i)permission|NOPERM|ACL|can't run"):
            await client.execute_command(*command.split(" "))
    finally:
        await client.aclose()
    assert await server.tell("GET", "other") == b"kept"
