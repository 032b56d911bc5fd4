"""Looks at the Redis of the gate, piece by piece, for `fairlead gate doctor` (G9, G12).

Everything is tried as the gate does it, under keys of its own that are deleted again. What makes the gate
refuse a server, or fall back to shares, is a ``fail``; what will hurt some day is a ``warn``.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock, SystemIds
from fairlead.adapters.postgres.postgres_info import PostgresInfo, server_facts
from fairlead.adapters.redis import APPEND_ADVICE, RedisInfo, facts_of_each
from fairlead.adapters.redis.keys import RedisKeys
from fairlead.adapters.redis.probe import RedisProbe, probe_redis
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.assembly.doctor.checks import Check, Status
from fairlead.assembly.settings import Settings
from fairlead.assembly.stores import database_settings, resolve_stores
from fairlead.engine.ports.gate import AdmitRequest, Admitted, Release
from fairlead.engine.ports.gate_keys import UNKNOWN, KeySurvey
from fairlead.errors import DependencyUnavailableError, FairleadError, LimiterUnavailableError
from fairlead.policy.limits.key import LONGEST_PREFIX, Keyspace
from fairlead.policy.limits.limit import BucketLimit, Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder

OLDEST_REDIS = (6, 2)
_ESCAPE = "CVE-2025-49844"
_ESCAPE_MENDED: Mapping[str, Mapping[tuple[int, int], int]] = {
    "Redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "Valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
"""From which patch of each branch on a script cannot leave its sandbox; branches between are not mended."""
TIMES = 100
"""Pings, and calls through the gate's script, that are timed."""
SLOW_S, TOO_SLOW_S = 0.1, 0.8
"""p99 of an answer: 100 ms is what a reservation may take; after 0.8 s a process falls back to its share."""
OFF_S = 1.0
MEMORY_WARN, MEMORY_FAIL = 0.8, 0.9
MOST_KEYS = 20_000
MOST_TOLD = 5
_WORSE: Sequence[Status] = ("ok", "warn", "fail")


async def gate_checkup(settings: Settings) -> AsyncIterator[Check]:
    """Every check, as it is done; nothing is left changed."""
    async with resolve_stores(settings) as found:
        url, prefix = found.redis_url, settings.redis.prefix
        if url is None:
            told = "no Redis is set: each process keeps to its share of every limit"
            yield Check("redis", "warn", told, "set REDIS_URL, so that limits are counted once for all")
            return
        try:
            facts, probes = await facts_of_each(url), await probe_redis(url, TIMES)
        except FairleadError as error:
            yield Check("redis", "fail", error.message, "check REDIS_URL, and that the server runs")
            return
        yield of_each({name: version_check(each) for name, each in facts.items()})
        yield role_check(facts, probes)
        yield of_each({name: eviction_check(each) for name, each in facts.items()})
        yield of_each({name: persistence_check(facts[name], each) for name, each in probes.items()})
        yield of_each({name: memory_check(each) for name, each in probes.items()})
        yield of_each({name: latency_check("ping", each.pings_s) for name, each in probes.items()})
        yield await _through_the_gate(url, prefix)
        yield of_each({name: scripts_check(each) for name, each in probes.items()})
        database = None
        if found.database_url is not None:
            try:
                database = await server_facts(database_settings(settings, found.database_url))
            except FairleadError:  # `fairlead doctor` tells of it
                database = None
        yield of_each({name: clock_check(each, database) for name, each in probes.items()})
        yield await _prefix(url, prefix)


def of_each(checks: Mapping[str, Check]) -> Check:
    """The same check of every server as one: the worst, and at which of them it was found."""
    worst = max(checks.values(), key=lambda check: _WORSE.index(check.status))
    found: dict[str, list[str]] = {}
    for name, check in checks.items():
        if check.status == worst.status:
            found.setdefault(check.detail, []).append(name)
    if len(found) == 1 and len(found[worst.detail]) == len(checks):
        return worst
    told = [f"{', '.join(names)}: {detail}" for detail, names in found.items()]
    more = [f"{len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
    return replace(worst, detail="; ".join([*told[:MOST_TOLD], *more]))


def version_check(facts: RedisInfo) -> Check:
    """Whether it is new enough: Redis 6.2, or any Valkey, without a flaw that scripts can use (S07)."""
    told = f"{facts.product} {facts.version}"
    numbers = tuple(int(part) for part in re.findall(r"\d+", facts.version)[:3])
    if facts.product == "Redis" and numbers < OLDEST_REDIS:
        return Check("version", "fail", told, "the gate needs Redis 6.2 or later, or Valkey")
    if _lets_scripts_out(facts.product, numbers):
        hint = "update it; until then let nobody else use scripts there (docs/reference/redis-user.md)"
        return Check("version", "warn", f"{told}: a script can take over its host ({_ESCAPE})", hint)
    return Check("version", "ok", told)


def _lets_scripts_out(product: str, numbers: tuple[int, ...]) -> bool:
    mended = _ESCAPE_MENDED.get(product, {})
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    branch = major, minor
    if branch in mended:
        return patch < mended[branch]
    return bool(mended) and branch < max(mended)


def role_check(facts: Mapping[str, RedisInfo], probes: Mapping[str, RedisProbe]) -> Check:
    """Whether writes are taken, for all keys."""
    if any(each.read_only for each in facts.values()):
        return Check(
            "role", "fail", "a replica, read-only", "REDIS_URL points at a replica: name the primary"
        )
    states = {name: each.cluster for name, each in probes.items() if each.cluster}
    if not states:
        return Check("role", "ok", "a primary, no cluster")
    told = f"cluster, {len(states)} primaries"
    for name, each in states.items():
        if not each.is_whole:
            hint = "redis-cli --cluster check tells which slots have no server; meanwhile calls go by shares"
            told = f"{told}, state {each.state}, {each.slots} slots with a server, by {name}"
            return Check("role", "fail", told, hint)
    return Check("role", "ok", f"{told}, state ok")


def eviction_check(facts: RedisInfo) -> Check:
    """Whether it keeps what it is given."""
    told = f"maxmemory-policy {facts.eviction or 'unknown'}"
    if facts.eviction not in {"noeviction", ""}:
        hint = "set maxmemory-policy noeviction: a server that evicts forgets who holds a slot"
        return Check("eviction", "fail", told, hint)
    return Check("eviction", "ok", told)


def persistence_check(facts: RedisInfo, probe: RedisProbe) -> Check:
    """Whether a restart finds what was there."""
    if facts.appends and not probe.appended:
        hint = "look at its log and at the disk: until it can write again the server may refuse writes, too"
        return Check("persistence", "fail", "the last write to the append-only file failed", hint)
    if not facts.appends:
        return Check("persistence", "warn", "no append-only file", APPEND_ADVICE)
    return Check("persistence", "ok", "an append-only file")


def memory_check(probe: RedisProbe) -> Check:
    """How near it is to its bound, at which it refuses writes."""
    used = f"{probe.used_bytes / 2**20:.1f} MiB used"
    if not probe.max_bytes:
        return Check("memory", "ok", f"{used}, no bound")
    share = probe.used_bytes / probe.max_bytes
    told = f"{used}, {share:.0%} of maxmemory"
    if share < MEMORY_WARN:
        return Check("memory", "ok", told)
    hint = "raise maxmemory, or take other data to another server; `fairlead gate memory` tells what is ours"
    return Check("memory", "fail" if share >= MEMORY_FAIL else "warn", told, hint)


def latency_check(name: str, times_s: Sequence[float]) -> Check:
    """How long it takes to answer."""
    ordered = sorted(times_s)
    p50_s, p99_s = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    told = f"p50 {p50_s * 1000:.2f} ms, p99 {p99_s * 1000:.2f} ms of {len(ordered)}"
    if p99_s < SLOW_S:
        return Check(name, "ok", told)
    hint = "look for slow commands (SLOWLOG), swapping, a full disk, or a long way to the server"
    return Check(name, "fail" if p99_s >= TOO_SLOW_S else "warn", told, hint)


def scripts_check(probe: RedisProbe) -> Check:
    """Which scripts it has by now."""
    missing = [name for name, known in probe.scripts.items() if not known]
    told = f"{len(probe.scripts) - len(missing)} of {len(probe.scripts)} loaded"
    return Check("scripts", "ok", f"{told}; {', '.join(missing)} at the first use" if missing else told)


def clock_check(probe: RedisProbe, database: PostgresInfo | None) -> Check:
    """How far its clock is from others. Limits go by it alone; what people compare goes by several."""
    ours_s, doubt_s = probe.clock_s - probe.asked_s, probe.doubt_s
    told = f"{ours_s:+.3f} s to this host (± {doubt_s:.3f} s)"
    apart_s = [abs(ours_s) - doubt_s]
    if database is not None:
        theirs_s, both_s = ours_s - database.skew_s, doubt_s + database.doubt_s
        told += f", {theirs_s:+.3f} s to the database (± {both_s:.3f} s)"
        apart_s.append(abs(theirs_s) - both_s)
    if max(apart_s) < OFF_S:
        return Check("clock", "ok", told)
    hint = "have NTP set all of them: limits go by Redis's clock, tokens and jobs by the database's"
    return Check("clock", "warn", told, hint)


def prefix_check(prefix: str, survey: KeySurvey) -> Check:
    """Whether the keys under our prefix are ours, and none stays for ever."""
    unknown = sum(use.keys for use in survey.kinds if use.kind == UNKNOWN)
    told = f"{survey.keys} of {survey.server_keys} keys begin with {prefix}"
    if not survey.complete:
        told += f", of which {survey.looked_at} were looked at"
    status: Status = "warn"
    if unknown:
        hint = "something else uses this prefix: set redis.prefix to a name of your own"
        return Check("prefix", status, f"{told}; {unknown} are none of ours", hint)
    if survey.no_ttl:
        hint = "the hourly clean-up gives them one; `fairlead gate memory` names their kinds"
        return Check("prefix", status, f"{told}; {len(survey.no_ttl)} without a time to live", hint)
    return Check("prefix", "ok", told)


async def _prefix(url: Secret, prefix: str) -> Check:
    try:
        survey = await RedisKeys(url, Keyspace(prefix)).survey(most=MOST_KEYS, weighed=0)
    except LimiterUnavailableError as error:
        return Check("prefix", "warn", error.message, error.hint)
    return prefix_check(Keyspace(prefix).prefix, survey)


async def _through_the_gate(url: Secret, prefix: str) -> Check:
    """Calls through the gate itself: written, judged by the script, and given back."""
    ids, clock = SystemIds(), SystemClock()
    own = f"-doctor-{ids.lease_id():016x}"
    keys = Keyspace(prefix[: LONGEST_PREFIX - len(own)] + own)
    gate = RedisGate(url, clock=clock, process="doctor", keys=keys, new=True)
    times_s: list[float] = []
    try:
        await gate.ping()
        for number in range(TIMES):
            began_s = clock.monotonic()
            answer = await gate.admit(AdmitRequest(_try(number), holder=Holder(number, "doctor", "doctor")))
            times_s.append(clock.monotonic() - began_s)
            if not isinstance(answer, Admitted):
                return Check("script", "fail", f"a free slot was refused: {answer}", "report this")
            await gate.release(Release(answer))
    except (LimiterUnavailableError, DependencyUnavailableError) as error:
        return Check("script", "fail", error.message, error.hint)
    finally:
        await gate.close()
        await _forget(RedisKeys(url, keys))
    return latency_check("script", times_s)


def _try(number: int) -> Plan:
    """In a domain of its own: of a cluster every server has some."""
    bucket = BucketLimit("doctor", 1_000_000, 1_000_000)
    return Plan(Domain(("tenant", f"doctor-{number}")), pool=PoolLimit("doctor", 1), buckets=(bucket,))


async def _forget(keys: RedisKeys) -> None:
    try:
        await keys.clear()
    except LimiterUnavailableError:
        return  # the check has said so; what was written ends by itself
