"""What `gate doctor` makes of what a Redis says and does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairlead.adapters.postgres.postgres_info import PostgresInfo, RowSecurityState
from fairlead.adapters.redis import RedisInfo
from fairlead.adapters.redis.probe import ClusterState, RedisProbe
from fairlead.assembly.doctor.check import Check
from fairlead.assembly.doctor.gate_checks import (
    clock_check,
    eviction_check,
    latency_check,
    memory_check,
    of_each,
    persistence_check,
    prefix_check,
    role_check,
    scripts_check,
    version_check,
)
from fairlead.engine.ports import KeySurvey, KindUse

FACTS = RedisInfo("Valkey", "9.1.2", "noeviction", 0, appends=True, read_only=False)
PROBE = RedisProbe(None, {"gate": True, "hello": True}, True, 100, 0, (0.001,), 1000.0, 1000.0, 0.001)
COMPLETE_STATE = ClusterState("ok", 16_384)
WALL = RowSecurityState(role=True, bound=True, member=True, guarded=True)
DATABASE = PostgresInfo(180004, "on", "read committed", True, WALL, skew_s=0.0, doubt_s=0.001)
SURVEY = KeySurvey((KindUse("cells", 3, 90, 0),), 10, True, 10, 1000, 0, ())


def in_cluster(state: ClusterState) -> Check:
    """What is told of a cluster of two, one of which sees it so."""
    probes = {"a:1": replace(PROBE, cluster=COMPLETE_STATE), "b:2": replace(PROBE, cluster=state)}
    return role_check(dict.fromkeys(probes, FACTS), probes)


@pytest.mark.parametrize(
    ("product", "version", "status"),
    [
        ("Redis", "6.2.20", "ok"),
        ("Redis", "6.0.16", "fail"),
        ("Redis", "10.0", "ok"),
        ("Redis", "5.0.7", "fail"),
        ("Redis", "6.2.0", "warn"),  # from here on: scripts that leave their sandbox
        ("Redis", "6.2.19", "warn"),
        ("Redis", "7.0.15", "warn"),
        ("Redis", "7.2.11", "ok"),
        ("Redis", "8.2.1", "warn"),
        ("Redis", "8.2.2", "ok"),
        ("Redis", "8.4.0", "ok"),
        ("Valkey", "7.2.5", "warn"),
        ("Valkey", "7.2.11", "ok"),
        ("Valkey", "8.1.3", "warn"),
        ("Valkey", "9.1.2", "ok"),
    ],
)
def test_versions(product: str, version: str, status: str) -> None:
    assert version_check(replace(FACTS, product=product, version=version)).status == status


def test_unusable_redis_is_a_failure_with_a_hint() -> None:
    bad = [
        role_check({"": replace(FACTS, read_only=True)}, {"": PROBE}),
        in_cluster(ClusterState("fail", 16_384)),
        in_cluster(ClusterState("ok", 10_923)),
        eviction_check(replace(FACTS, eviction="allkeys-lru")),
        persistence_check(FACTS, replace(PROBE, appended=False)),
        memory_check(replace(PROBE, used_bytes=91, max_bytes=100)),
        latency_check("ping", [0.001] * 90 + [0.9] * 10),
    ]
    assert {check.status for check in bad} == {"fail"}
    assert all(check.hint for check in bad)


def test_doubtful_redis_is_a_warning_with_a_hint() -> None:
    doubtful = [
        persistence_check(replace(FACTS, appends=False), PROBE),
        memory_check(replace(PROBE, used_bytes=85, max_bytes=100)),
        latency_check("ping", [0.001] * 90 + [0.2] * 10),
        clock_check(replace(PROBE, clock_at=1002.0), None),
        clock_check(PROBE, replace(DATABASE, skew_s=-3.0)),
        prefix_check("fairlead1:", replace(SURVEY, kinds=(KindUse("unknown", 1, 90, 0),))),
        prefix_check("fairlead1:", replace(SURVEY, no_ttl=("fairlead1:m",))),
    ]
    assert {check.status for check in doubtful} == {"warn"}
    assert all(check.hint for check in doubtful)


def test_a_sound_one_is_sound() -> None:
    good = [
        version_check(FACTS),
        role_check({"": FACTS}, {"": PROBE}),
        in_cluster(COMPLETE_STATE),
        eviction_check(FACTS),
        eviction_check(replace(FACTS, eviction="")),
        persistence_check(FACTS, PROBE),
        memory_check(PROBE),
        memory_check(replace(PROBE, max_bytes=1000)),
        latency_check("ping", [0.001] * 100),
        latency_check("ping", [0.002]),
        scripts_check(PROBE),
        scripts_check(replace(PROBE, scripts={"gate": False})),
        clock_check(replace(PROBE, clock_at=1000.5), DATABASE),
        clock_check(replace(PROBE, clock_at=1005.0, doubt_s=4.5), None),
        prefix_check("fairlead1:", SURVEY),
    ]
    assert {check.status for check in good} == {"ok"}


def test_the_clock_is_compared_with_the_database_by_way_of_this_host() -> None:
    """Redis is 5 s ahead of this host, the database 4.5 s: half a second apart."""
    detail = clock_check(replace(PROBE, clock_at=1005.0), replace(DATABASE, skew_s=4.5)).detail
    assert "+5.000 s to this host" in detail
    assert "+0.500 s to the database" in detail


def test_a_cluster_is_told_with_its_state_and_by_whom() -> None:
    assert in_cluster(COMPLETE_STATE).detail == "cluster, 2 primaries, state ok"
    detail = in_cluster(ClusterState("fail", 10_923)).detail
    assert detail == "cluster, 2 primaries, state fail, 10923 slots with a server, by b:2"


def test_of_several_servers_the_worst_is_told_by_name() -> None:
    sound = eviction_check(FACTS)
    assert of_each({"a:1": sound, "b:2": sound}) == sound
    evicts, drops = (
        eviction_check(replace(FACTS, eviction=name)) for name in ("allkeys-lru", "volatile-lru")
    )
    check = of_each({"a:1": sound, "b:2": evicts, "c:3": drops, "d:4": evicts})
    assert check == replace(
        evicts, detail="b:2, d:4: maxmemory-policy allkeys-lru; c:3: maxmemory-policy volatile-lru"
    )
    many = {str(number): memory_check(replace(PROBE, used_bytes=number << 20)) for number in range(9)}
    assert of_each(many).detail.endswith("4: 4.0 MiB used, no bound; 4 more")
