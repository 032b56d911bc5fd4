"""Checks of the PostgreSQL server, from what it reports about itself."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.adapters.postgres.connection_setup import named
from fairlead.adapters.postgres.postgres_info import (
    ENCODING,
    ENCODING_HINT,
    MIN_VERSION,
    PostgresInfo,
    RowSecurityState,
)
from fairlead.assembly.doctor.check import Check
from fairlead.policy.text.names import listed

SKEW_WARN_S = 1.0
SKEW_FAIL_S = 30.0
"""Tokens are timed by the database's clock, files of the journal by this host's."""
SNAPSHOT_WARN_S = 300.0
"""A snapshot that is held for this long makes every claim read the jobs that ended since."""
BEHIND_WARN = 100_000
"""The same in transactions, for a standby or a replication slot: their snapshots have no start time."""


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


def row_security_check(wall: RowSecurityState) -> Check:
    """Check that row security separates tenants, in addition to the statements."""
    if wall.stands:
        return Check("row security", "ok", "statements made for a tenant reach no row of another")
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
    detail = f"row-level security is off: {detail}, so only the statements separate tenants"
    return Check("row security", "warn", detail, hint)


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
        return Check("old snapshots", "warn", detail, f"let it catch up, or drop it if it is unused: {harm}")
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
