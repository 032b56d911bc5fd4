"""What only a cluster does: slots move, servers fail over, one is emptied, one is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from secrets import token_hex

import pytest
from redis import Redis

from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.redis import redis_info, redis_info_by_server
from fairlead.adapters.redis.cluster import hash_slot_of
from fairlead.adapters.redis.data_loss import RedisDataLoss
from fairlead.adapters.redis.inspector import RedisInspector
from fairlead.adapters.redis.keys import RedisKeys
from fairlead.adapters.redis.probe import probe_redis
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.assembly.doctor.gate_checks import eviction_check, of_each, role_check
from fairlead.engine.ports import AdmitRequest, Admitted, GateRefusal, RefusedBy, Release
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.key import KeyKind, Keyspace
from fairlead.policy.limits.limit import BucketLimit, Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder
from tests.faults.support.cluster import OwnCluster, own_cluster
from tests.faults.support.valkey import OwnValkey

LEASE_S = 30.0
SLOW = BucketLimit("slow", 10, 0.001)
TENANTS = 24


def plan_of(number: int) -> Plan:
    """Ten calls, and one slot, in a domain of its own."""
    return Plan(Domain(("tenant", str(number))), pool=PoolLimit("slots", 1), buckets=(SLOW,))


@asynccontextmanager
async def gate_of(cluster: OwnCluster, keys: Keyspace, *, new: bool = True) -> AsyncIterator[RedisGate]:
    gate = RedisGate(Secret(cluster.url), clock=SystemClock(), keys=keys, new=new, lease_s=LEASE_S)
    yield gate
    await gate.close()


def home_of(cluster: OwnCluster, keys: Keyspace, number: int) -> OwnValkey:
    """The server that has the domain of a tenant, from the first on."""
    return cluster.owner(hash_slot_of(keys.key(KeyKind.CELL, plan_of(number).domain).encode()))


async def once(gate: RedisGate, number: int, plan: Plan | None = None) -> object:
    """One call, admitted and ended; or why not."""
    answer = await gate.admit(AdmitRequest(plan or plan_of(number), holder=Holder(number + 1, "p")))
    if isinstance(answer, Admitted):
        assert (await gate.release(Release(answer))).was_held
    return answer


async def test_domains_lie_all_over_it_and_are_judged_in_one_go() -> None:
    with own_cluster() as cluster:
        keys = Keyspace(f"t{token_hex(4)}")
        async with gate_of(cluster, keys) as gate:
            for _ in range(10):
                answers = await asyncio.gather(*(once(gate, number) for number in range(TENANTS)))
                assert all(isinstance(answer, Admitted) for answer in answers)
            refused = await asyncio.gather(*(once(gate, number) for number in range(TENANTS)))
            assert all(isinstance(answer, GateRefusal) for answer in refused)  # 10 of 10 are spent everywhere
        homes = {home_of(cluster, keys, number).port for number in range(TENANTS)}
        assert len(homes) == 3


async def test_a_slot_that_moves_takes_its_limits_along() -> None:
    """ASK while it moves, MOVED afterwards: what was spent stays spent.

    Not so with slots: a server answers TRYAGAIN to a call whose keys are not all on one side, such as an
    empty set of leases, which is no key.
    """
    rates = Plan(Domain(("tenant", "0")), buckets=(SLOW,))
    with own_cluster() as cluster:
        keys = Keyspace(f"t{token_hex(4)}")
        async with gate_of(cluster, keys) as gate:
            await gate.ping()  # knows all primaries
            for _ in range(6):
                assert isinstance(await once(gate, 0, rates), Admitted)
            here = home_of(cluster, keys, 0)
            there = next(server for server in cluster.primaries if server is not here)
            slot = hash_slot_of(keys.key(KeyKind.CELL, plan_of(0).domain).encode())
            with Redis(port=here.port) as source, Redis(port=there.port) as target:
                ids = [client.execute_command("CLUSTER", "MYID").decode() for client in (source, target)]
                target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
                source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
                assert isinstance(await once(gate, 0, rates), Admitted)
                with pytest.raises(LimiterUnavailableError, match="TryAgain"):
                    await once(gate, 0)
                moving = source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100)
                assert len(moving) >= 2
                source.execute_command("MIGRATE", "127.0.0.1", there.port, "", 0, 5000, "KEYS", *moving)
                assert isinstance(await once(gate, 0, rates), Admitted)  # asked where it goes to
                for client in (target, source):
                    client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
            assert [isinstance(await once(gate, 0, rates), Admitted) for _ in range(3)] == [True, True, False]


async def test_a_domain_that_is_looked_for_in_the_wrong_place_is_not_taken_for_lost() -> None:
    """Its first call goes where it was last known to lie: that tells nothing of what lies there (R23)."""
    with own_cluster() as cluster:
        keys = Keyspace(f"t{token_hex(4)}")
        async with gate_of(cluster, keys) as gate:
            await gate.ping()  # knows who has what
            here = home_of(cluster, keys, 0)
            there = next(server for server in cluster.primaries if server is not here)
            slot = hash_slot_of(keys.key(KeyKind.CELL, plan_of(0).domain).encode())
            with Redis(port=here.port) as source, Redis(port=there.port) as target:
                owner = target.execute_command("CLUSTER", "MYID").decode()
                for client in (target, source):
                    client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", owner)
            assert isinstance(await once(gate, 0), Admitted)


async def test_a_server_that_was_emptied_says_so_with_each_of_its_domains() -> None:
    """Nobody takes an old birth for theirs: what is missing is empty, and slots wait for a lease (R23)."""
    with own_cluster() as cluster:
        keys = Keyspace(f"t{token_hex(4)}")
        async with gate_of(cluster, keys) as gate:
            for number in range(TENANTS):
                assert isinstance(await once(gate, number), Admitted)
            lost = home_of(cluster, keys, 0)
            await lost.tell("FLUSHALL")
            for number in range(TENANTS):
                answer = await once(gate, number)
                if home_of(cluster, keys, number) is lost:
                    assert isinstance(answer, GateRefusal)
                else:
                    assert isinstance(answer, Admitted)
            await gate.ping()  # finds it, so that a domain not met before is empty, too
            unmet = next(n for n in range(TENANTS, 200) if home_of(cluster, keys, n) is lost)
            assert isinstance(await once(gate, unmet), GateRefusal)


async def test_after_a_fail_over_nothing_is_granted_for_a_lease() -> None:
    with own_cluster(replicas=True) as cluster:
        keys = Keyspace(f"t{token_hex(4)}")
        async with gate_of(cluster, keys) as gate:
            assert isinstance(await once(gate, 0), Admitted)
            lost = home_of(cluster, keys, 0)
            heir = cluster.replicas[cluster.primaries.index(lost)]
            while await heir.tell("DBSIZE") < await lost.tell("DBSIZE"):
                await asyncio.sleep(0.01)
            lost.kill()
            with pytest.raises(LimiterUnavailableError):
                await gate.ping()
            async with asyncio.timeout(30):
                while True:
                    try:
                        await gate.ping()
                        break
                    except LimiterUnavailableError:
                        await asyncio.sleep(0.05)
            answer = await once(gate, 0)
            assert isinstance(answer, GateRefusal)
            assert answer.by in {RefusedBy.RECOVERY, RefusedBy.BUCKET}
            slots_only = Plan(Domain(("tenant", "0")), pool=PoolLimit("slots", 1))
            refused = await gate.admit(AdmitRequest(slots_only, holder=Holder(99, "p")))
            assert isinstance(refused, GateRefusal)
            assert refused.by is RefusedBy.RECOVERY


async def test_a_server_that_is_away_takes_only_its_domains_along() -> None:
    with own_cluster() as cluster:
        keys = Keyspace(f"t{token_hex(4)}")
        async with gate_of(cluster, keys) as gate:
            await asyncio.gather(*(once(gate, number) for number in range(TENANTS)))
            lost = home_of(cluster, keys, 0)
            lost.kill()
            answers = await asyncio.gather(
                *(once(gate, number) for number in range(TENANTS)), return_exceptions=True
            )
            for number, answer in enumerate(answers):
                expected = LimiterUnavailableError if home_of(cluster, keys, number) is lost else Admitted
                assert isinstance(answer, expected)


async def test_call_on_a_cluster_that_is_down_raises_our_error() -> None:
    """As one of ours: else no share is taken, and callers see an error of the driver."""
    with own_cluster() as cluster:
        keys = Keyspace(f"t{token_hex(4)}")
        home = home_of(cluster, keys, 0)
        next(server for server in cluster.primaries if server is not home).kill()
        async with asyncio.timeout(30):
            while b"cluster_state:ok" in await home.tell("CLUSTER", "INFO"):
                await asyncio.sleep(0.05)
        gate = RedisGate(Secret(home.url), clock=SystemClock(), keys=keys)
        with pytest.raises(LimiterUnavailableError, match="The cluster is down"):
            await once(gate, 0)
        await gate.close()


async def test_a_process_that_comes_later_goes_by_the_birth_of_the_server() -> None:
    """It meets domains that others have long known: nothing waits for a lease."""
    with own_cluster() as cluster:
        keys = Keyspace(f"t{token_hex(4)}")
        async with gate_of(cluster, keys) as first:
            assert isinstance(await once(first, 0), Admitted)
        async with gate_of(cluster, keys, new=False) as second:
            for _ in range(9):
                assert isinstance(await once(second, 0), Admitted)
            assert isinstance(await once(second, 0), GateRefusal)


async def test_each_domain_tells_when_it_was_lost() -> None:
    with own_cluster() as cluster:
        known_keyspace, lost = Keyspace(f"t{token_hex(4)}"), Keyspace(f"t{token_hex(4)}")
        for keys, new in ((known_keyspace, True), (lost, False)):
            losses = RedisDataLoss(Secret(cluster.url), keys)
            for number in range(4):
                domain = plan_of(number).domain
                assert await losses.granting_s(domain) == 0, "nothing is known of it yet"
                async with gate_of(cluster, keys, new=new) as gate:
                    await once(gate, number)
                granting_s = await losses.granting_s(domain)
                assert granting_s > 86_400 if new else granting_s < LEASE_S


async def test_hints_come_by_another_server_where_the_first_is_away() -> None:
    """Whoever waits would find its slot by asking again, too, but a second later."""
    with own_cluster() as cluster:
        keys = Keyspace(f"t{token_hex(4)}")
        gate = RedisGate(Secret(cluster.url), clock=SystemClock(), process="p", keys=keys)
        woken: asyncio.Queue[int] = asyncio.Queue()
        await gate.listen(woken.put_nowait)
        first, second, third = cluster.primaries
        async with asyncio.timeout(30):
            await _wait_for_wake(second, keys.channel("p"), woken, 1)
            first.kill()
            await _wait_for_wake(third, keys.channel("p"), woken, 2)
        await gate.close()


async def _wait_for_wake(server: OwnValkey, channel: str, woken: asyncio.Queue[int], lease_id: int) -> None:
    """Publish until it is heard: nobody tells when a subscription stands."""
    while True:
        await server.tell("PUBLISH", channel, f"{lease_id:016x}")
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                while await woken.get() != lease_id:
                    pass
                return


async def test_doctor_names_the_server_that_is_not_fit_and_the_slots_that_none_has() -> None:
    with own_cluster() as cluster:
        url, last = Secret(cluster.url), cluster.primaries[2]
        await last.tell("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        facts = await redis_info_by_server(url)
        assert [name.partition(":")[2] for name in facts] == [str(node.port) for node in cluster.primaries]
        check = of_each({name: eviction_check(info) for name, info in facts.items()})
        assert (check.status, check.detail) == (
            "fail",
            f"127.0.0.1:{last.port}: maxmemory-policy allkeys-lru",
        )
        assert (await redis_info(url)).evicts, "an app refuses to start on it"
        assert role_check(facts, await probe_redis(url, 1)).status == "ok"
        for server in cluster.primaries:
            await server.tell("CLUSTER", "DELSLOTS", 16_383)
        check = role_check(facts, await probe_redis(url, 1))
        assert check.status == "fail"
        assert "16383 slots with a server" in check.detail
        keys = RedisKeys(url, Keyspace("any"))
        with pytest.raises(LimiterUnavailableError, match="no server owns"):
            await keys.set_ttl([_in_slot(16_383)], 1.0)


def _in_slot(slot: int) -> str:
    return next(key for number in count() if hash_slot_of((key := f"{{{number}}}").encode()) == slot)


async def test_keys_that_are_moving_are_passed_by_in_a_look_and_told_where_they_are_asked_for() -> None:
    """Neither the hourly look nor `memory` fails for a slot that is on its way."""
    with own_cluster() as cluster:
        url, keyspace = Secret(cluster.url), Keyspace(f"t{token_hex(4)}")
        async with gate_of(cluster, keyspace) as gate:
            for number in range(TENANTS):
                assert isinstance(
                    await gate.admit(AdmitRequest(plan_of(number), holder=Holder(1, "p"))), Admitted
                )
        keys, survey_before = RedisKeys(url, keyspace), await RedisKeys(url, keyspace).survey(leases=True)
        here, there = home_of(cluster, keyspace, 0), cluster.primaries[0]
        there = there if there is not here else cluster.primaries[1]
        slot = hash_slot_of(keyspace.key(KeyKind.CELL, plan_of(0).domain).encode())
        with Redis(port=here.port) as source, Redis(port=there.port) as target:
            ids = [client.execute_command("CLUSTER", "MYID").decode() for client in (source, target)]
            target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
            source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
            moving = source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100)
            source.execute_command("MIGRATE", "127.0.0.1", there.port, "", 0, 5000, "KEYS", *moving)
        during = await keys.survey(leases=True, window_s=60.0)
        assert during.complete
        assert during.keys == survey_before.keys - len(moving)
        assert len(during.leases) == TENANTS - 1
        with pytest.raises(LimiterUnavailableError, match="on their way") as error:
            await RedisInspector(url, keyspace).inspect(plan_of(0))
        assert "ask again" in error.value.hint


async def test_the_first_calls_of_a_process_may_come_beside_its_first_look() -> None:
    """Nobody goes by a greeting that is still under way: the server is one of a cluster, and has a birth."""
    with own_cluster() as cluster:
        keys = Keyspace(f"t{token_hex(4)}")
        async with gate_of(cluster, keys) as gate:
            looking = asyncio.create_task(gate.ping())
            while not gate._seed._control._connection.is_connected:
                await asyncio.sleep(0)
            answers = await asyncio.gather(*(once(gate, number) for number in range(TENANTS)))
            assert all(isinstance(answer, Admitted) for answer in answers)
            await looking
