"""Checks of what is stored: sealed data, refused assertions, jobs without a worker."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.adapters.local.system import SystemClock, SystemIds
from fairlead.adapters.postgres.data_keys import PostgresKeyStore
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.vault import TenantVault
from fairlead.assembly.doctor.check import Check
from fairlead.assembly.settings import Settings
from fairlead.assembly.stores import master_keyring
from fairlead.engine.ports import DeadLetter, DeadLetterFilter, UnhandledKind
from fairlead.errors import IssuerClockError
from fairlead.policy.text.names import listed

UNHANDLED_SHOWN = 5
"""How many kinds without a worker a message names."""


async def inspect_handlers(database: Database) -> Check:
    """Look for due jobs of a kind that no worker takes."""
    return handlers_check(await PostgresLaneStore(database).unhandled_kinds(UNHANDLED_SHOWN + 1))


def handlers_check(unhandled: Sequence[UnhandledKind]) -> Check:
    """Check that a worker takes the kind of every job that is due."""
    if not unhandled:
        return Check("handlers", "ok", "every job that is due has a worker that takes its kind")
    named = [f"{kind.jobs} of {kind.kind} in queue {kind.queue}" for kind in unhandled[:UNHANDLED_SHOWN]]
    more = ", and others" if len(unhandled) > UNHANDLED_SHOWN else ""
    detail = f"no_handler: no worker takes these due jobs: {', '.join(named)}{more}"
    hint = "start a worker that declares the kind, or `fairlead jobs cancel` what you do not need"
    return Check("handlers", "warn", detail, hint)


async def inspect_sealed_data(settings: Settings, database: Database) -> Check:
    """Open one data key of each master key in use."""
    keys = PostgresKeyStore(database)
    samples = await keys.samples()
    await TenantVault(keys, master_keyring(settings), clock=SystemClock(), ids=SystemIds()).check()
    if not samples:
        return Check("sealed data", "ok", "nothing is sealed yet")
    masters = sorted({key.master_id for key in samples})
    return Check("sealed data", "ok", f"the master key opens what {', '.join(masters)} sealed")


async def inspect_issuer_clocks(database: Database) -> Check:
    """Look for refreshes with a signed assertion that was refused because of a clock."""
    refused = DeadLetterFilter(status="pending_review", code=IssuerClockError.code)
    return issuer_clocks_check(await PostgresDeadLetterStore(database).find(refused, limit=1_000))


def issuer_clocks_check(refused: Sequence[DeadLetter]) -> Check:
    """Check that no signed assertion was refused while the clocks of issuer and database differed."""
    if not refused:
        return Check("issuer clocks", "ok", "no signed assertion was refused because of a clock")
    providers = listed(sorted({str(entry.provider) for entry in refused}))
    detail = f"{len(refused)} connections of {providers} cannot refresh; the last one: {refused[0].reason}"
    hint = "have NTP set the database's host; if it is right, the issuer is wrong: write to it"
    return Check("issuer clocks", "fail", detail, hint)
