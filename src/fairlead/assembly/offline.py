"""Services that need no open Runtime: ids, and jobs stored through database connections of their callers."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead._core.ids import Ids
from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.caller_transactions import PostgresCallerJobs
from fairlead.adapters.postgres.connection_setup import DEFAULT_SCHEMA
from fairlead.assembly.settings import Settings
from fairlead.engine.ports import CallerJobs


@dataclass(frozen=True, slots=True)
class OfflineServices:
    """The services that open no connection."""

    ids: Ids
    callers: CallerJobs


def offline_services(settings: Settings) -> OfflineServices:
    """Return the services; nothing is connected."""
    return OfflineServices(SystemIds(), caller_jobs(settings))


def caller_jobs(settings: Settings) -> CallerJobs:
    """Return the store of jobs in transactions of their callers."""
    schema = settings.database.schema_name or DEFAULT_SCHEMA
    return PostgresCallerJobs(schema=schema, bound=settings.retention.dead_letter_bound)
