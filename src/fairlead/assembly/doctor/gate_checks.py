"""Checks the Redis of the gate, for `fairlead gate doctor`.

The checks use the server as the gate does, under keys of their own that are deleted again. A ``fail`` makes the
gate refuse the server or fall back to shares; a ``warn`` will cause trouble later.

Spec: G9, G12.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock, SystemIds
from fairlead.adapters.postgres.postgres_info import PostgresInfo, server_facts
from fairlead.adapters.redis import APPEND_ADVICE, RedisInfo, redis_info_by_server
from fairlead.adapters.redis.keys import RedisKeys
from fairlead.adapters.redis.probe import RedisProbe, probe_redis
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.assembly.doctor.check import Check, Status
from fairlead.assembly.settings import Settings
from fairlead.assembly.stores import database_settings, resolve_stores
from fairlead.engine.ports import UNKNOWN_KIND, AdmitRequest, Admitted, KeySurvey, Release
from fairlead.errors import DependencyUnavailableError, FairleadError, LimiterUnavailableError
from fairlead.policy.limits.key import LONGEST_PREFIX, Keyspace
from fairlead.policy.limits.limit import BucketLimit, Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder

OLDEST_REDIS = (6, 2)
_ESCAPE = "CVE-2025-49844"
_ESCAPE_FIXED: Mapping[str, Mapping[tuple[int, int], int]] = {
    "Redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "Valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
"""The first patch of each branch in which a script cannot leave its sandbox. Other branches have none."""
TIMES = 100
"""How many pings, and calls through the gate's script, are timed."""
SLOW_S, TOO_SLOW_S = 0.1, 0.8
"""Bounds of the p99: a reservation may take 100 ms; after 0.8 s a process falls back to its share."""
OFF_S = 1.0
MEMORY_WARN, MEMORY_FAIL = 0.8, 0.9
MOST_KEYS = 20_000
MOST_TOLD = 5
_WORSE: Sequence[Status] = ("ok", "warn", "fail")


async def gate_checkup(settings: Settings) -> AsyncIterator[Check]:
    """Run all checks, and yield the result of each. Nothing is left changed."""
    async with resolve_stores(settings) as stores:
        url, prefix = stores.redis_url, settings.redis.prefix
        if url is None:
            detail = "no Redis is set: each process keeps to its share of every limit"
            yield Check("redis", "warn", detail, "set REDIS_URL, so that limits are counted once for all")
            return
        try:
            facts, probes = await redis_info_by_server(url), await probe_redis(url, TIMES)
        except FairleadError as error:
            yield Check("redis", "fail", error.message, "check REDIS_URL, and that the server runs")
            return
        yield of_each({name: version_check(info) for name, info in facts.items()})
        yield role_check(facts, probes)
        yield of_each({name: eviction_check(info) for name, info in facts.items()})
        yield of_each({name: persistence_check(facts[name], probe) for name, probe in probes.items()})
        yield of_each({name: memory_check(probe) for name, probe in probes.items()})
        yield of_each({name: latency_check("ping", probe.pings_s) for name, probe in probes.items()})
        yield await _measure_gate(url, prefix)
        yield of_each({name: scripts_check(probe) for name, probe in probes.items()})
        database = None
        if stores.database_url is not None:
            try:
                database = await server_facts(database_settings(settings, stores.database_url))
            except FairleadError:  # `fairlead doctor` reports it
                database = None
        yield of_each({name: clock_check(probe, database) for name, probe in probes.items()})
        yield await _inspect_prefix(url, prefix)


def of_each(checks: Mapping[str, Check]) -> Check:
    """Return one check for all servers: the worst result, with the servers that have it."""
    worst = max(checks.values(), key=lambda check: _WORSE.index(check.status))
    servers_by_detail: dict[str, list[str]] = {}
    for name, check in checks.items():
        if check.status == worst.status:
            servers_by_detail.setdefault(check.detail, []).append(name)
    if len(servers_by_detail) == 1 and len(servers_by_detail[worst.detail]) == len(checks):
        return worst
    parts = [f"{', '.join(names)}: {detail}" for detail, names in servers_by_detail.items()]
    more = [f"{len(parts) - MOST_TOLD} more"] if len(parts) > MOST_TOLD else []
    return replace(worst, detail="; ".join([*parts[:MOST_TOLD], *more]))


def version_check(facts: RedisInfo) -> Check:
    """Check for Redis 6.2 or later, or any Valkey, without a known escape from the script sandbox.

    Spec: S07.
    """
    detail = f"{facts.product} {facts.version}"
    numbers = tuple(int(part) for part in re.findall(r"\d+", facts.version)[:3])
    if facts.product == "Redis" and numbers < OLDEST_REDIS:
        return Check("version", "fail", detail, "the gate needs Redis 6.2 or later, or Valkey")
    if _lets_scripts_out(facts.product, numbers):
        hint = "update it; until then let nobody else use scripts there (docs/reference/redis-user.md)"
        return Check("version", "warn", f"{detail}: a script can take over its host ({_ESCAPE})", hint)
    return Check("version", "ok", detail)


def _lets_scripts_out(product: str, numbers: tuple[int, ...]) -> bool:
    fixed = _ESCAPE_FIXED.get(product, {})
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    branch = major, minor
    if branch in fixed:
        return patch < fixed[branch]
    return bool(fixed) and branch < max(fixed)


def role_check(facts: Mapping[str, RedisInfo], probes: Mapping[str, RedisProbe]) -> Check:
    """Check that the server accepts writes for all keys."""
    if any(info.read_only for info in facts.values()):
        return Check(
            "role", "fail", "a replica, read-only", "REDIS_URL points at a replica: name the primary"
        )
    states = {name: probe.cluster for name, probe in probes.items() if probe.cluster}
    if not states:
        return Check("role", "ok", "a primary, no cluster")
    detail = f"cluster, {len(states)} primaries"
    for name, state in states.items():
        if not state.is_whole:
            hint = "redis-cli --cluster check tells which slots have no server; meanwhile calls go by shares"
            detail = f"{detail}, state {state.state}, {state.slots} slots with a server, by {name}"
            return Check("role", "fail", detail, hint)
    return Check("role", "ok", f"{detail}, state ok")


def eviction_check(facts: RedisInfo) -> Check:
    """Check that the server evicts nothing."""
    detail = f"maxmemory-policy {facts.eviction or 'unknown'}"
    if facts.eviction not in {"noeviction", ""}:
        hint = "set maxmemory-policy noeviction: a server that evicts forgets who holds a slot"
        return Check("eviction", "fail", detail, hint)
    return Check("eviction", "ok", detail)


def persistence_check(facts: RedisInfo, probe: RedisProbe) -> Check:
    """Check that a restart keeps the data."""
    if facts.appends and not probe.appended:
        hint = "look at its log and at the disk: until it can write again the server may refuse writes, too"
        return Check("persistence", "fail", "the last write to the append-only file failed", hint)
    if not facts.appends:
        return Check("persistence", "warn", "no append-only file", APPEND_ADVICE)
    return Check("persistence", "ok", "an append-only file")


def memory_check(probe: RedisProbe) -> Check:
    """Check how near the server is to maxmemory, at which it refuses writes."""
    used = f"{probe.used_bytes / 2**20:.1f} MiB used"
    if not probe.max_bytes:
        return Check("memory", "ok", f"{used}, no bound")
    share = probe.used_bytes / probe.max_bytes
    detail = f"{used}, {share:.0%} of maxmemory"
    if share < MEMORY_WARN:
        return Check("memory", "ok", detail)
    hint = "raise maxmemory, or take other data to another server; `fairlead gate memory` tells what is ours"
    return Check("memory", "fail" if share >= MEMORY_FAIL else "warn", detail, hint)


def latency_check(name: str, times_s: Sequence[float]) -> Check:
    """Check the 99th percentile of *times_s*: how long pings, or calls through the gate's script, took."""
    ordered = sorted(times_s)
    p50_s, p99_s = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    detail = f"p50 {p50_s * 1000:.2f} ms, p99 {p99_s * 1000:.2f} ms of {len(ordered)}"
    if p99_s < SLOW_S:
        return Check(name, "ok", detail)
    hint = "look for slow commands (SLOWLOG), swapping, a full disk, or a long way to the server"
    return Check(name, "fail" if p99_s >= TOO_SLOW_S else "warn", detail, hint)


def scripts_check(probe: RedisProbe) -> Check:
    """Report which scripts the server has loaded. A missing one is no fault: its first use loads it."""
    missing = [name for name, is_loaded in probe.scripts.items() if not is_loaded]
    detail = f"{len(probe.scripts) - len(missing)} of {len(probe.scripts)} loaded"
    return Check("scripts", "ok", f"{detail}; {', '.join(missing)} at the first use" if missing else detail)


def clock_check(probe: RedisProbe, database: PostgresInfo | None) -> Check:
    """Check that the server's clock agrees with this host and the database.

    Limits use the server's clock alone; logs and tables that people compare use all three.
    """
    ours_s, doubt_s = probe.clock_at - probe.read_at, probe.doubt_s
    detail = f"{ours_s:+.3f} s to this host (± {doubt_s:.3f} s)"
    apart_s = [abs(ours_s) - doubt_s]
    if database is not None:
        theirs_s, both_s = ours_s - database.skew_s, doubt_s + database.doubt_s
        detail += f", {theirs_s:+.3f} s to the database (± {both_s:.3f} s)"
        apart_s.append(abs(theirs_s) - both_s)
    if max(apart_s) < OFF_S:
        return Check("clock", "ok", detail)
    hint = "have NTP set all of them: limits go by Redis's clock, tokens and jobs by the database's"
    return Check("clock", "warn", detail, hint)


def prefix_check(prefix: str, survey: KeySurvey) -> Check:
    """Check that all keys under the prefix are fairlead's and have a time to live."""
    unknown = sum(use.keys for use in survey.kinds if use.kind == UNKNOWN_KIND)
    detail = f"{survey.keys} of {survey.server_keys} keys begin with {prefix}"
    if not survey.complete:
        detail += f", of which {survey.keys_scanned} were looked at"
    status: Status = "warn"
    if unknown:
        hint = "something else uses this prefix: set redis.prefix to a name of your own"
        return Check("prefix", status, f"{detail}; {unknown} are none of ours", hint)
    if survey.no_ttl:
        hint = "the hourly clean-up gives them one; `fairlead gate memory` names their kinds"
        return Check("prefix", status, f"{detail}; {len(survey.no_ttl)} without a time to live", hint)
    return Check("prefix", "ok", detail)


async def _inspect_prefix(url: Secret, prefix: str) -> Check:
    try:
        survey = await RedisKeys(url, Keyspace(prefix)).survey(max_keys=MOST_KEYS, sample=0)
    except LimiterUnavailableError as error:
        return Check("prefix", "warn", error.message, error.hint)
    return prefix_check(Keyspace(prefix).prefix, survey)


async def _measure_gate(url: Secret, prefix: str) -> Check:
    """Measure calls through the gate: admit by the script, then release."""
    ids, clock = SystemIds(), SystemClock()
    suffix = f"-doctor-{ids.lease_id():016x}"
    keys = Keyspace(prefix[: LONGEST_PREFIX - len(suffix)] + suffix)
    gate = RedisGate(url, clock=clock, process="doctor", keys=keys, new=True)
    times_s: list[float] = []
    try:
        await gate.ping()
        for number in range(TIMES):
            started_mono = clock.monotonic()
            result = await gate.admit(AdmitRequest(_try(number), holder=Holder(number, "doctor", "doctor")))
            times_s.append(clock.monotonic() - started_mono)
            if not isinstance(result, Admitted):
                return Check("script", "fail", f"a free slot was refused: {result}", "report this")
            await gate.release(Release(result))
    except (LimiterUnavailableError, DependencyUnavailableError) as error:
        return Check("script", "fail", error.message, error.hint)
    finally:
        await gate.close()
        await _delete_keys(RedisKeys(url, keys))
    return latency_check("script", times_s)


def _try(number: int) -> Plan:
    """Return a plan in a domain of its own, so that every server of a cluster gets some."""
    bucket = BucketLimit("doctor", 1_000_000, 1_000_000)
    return Plan(Domain(("tenant", f"doctor-{number}")), pool=PoolLimit("doctor", 1), buckets=(bucket,))


async def _delete_keys(keys: RedisKeys) -> None:
    try:
        await keys.clear()
    except LimiterUnavailableError:
        return  # the check has reported it; the keys expire by themselves
