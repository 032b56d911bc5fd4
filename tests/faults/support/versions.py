"""A made-up next version of fairlead: two migrations more, and a column that it alone writes.

``pre`` adds the column. ``post`` demands it of every completed job, which the version before never gives: so
a ``post`` that comes too early shows. An order with ``newer`` makes a child of that version.
"""

from __future__ import annotations

from fairlead.adapters.postgres import jobs as jobs_module
from fairlead.adapters.postgres import migrate
from fairlead.adapters.postgres.migrate import Migration, read_migration, shipped_migrations
from tests.faults.support.unsafe import _alter

PRE = """-- {title}: which version completed a job.
-- Phase   pre
-- Needs   nothing
ALTER TABLE job ADD COLUMN completed_by text;
"""
POST = """-- {title}: every completed job says so.
-- Phase   post
-- Needs   the migration before it
UPDATE job SET completed_by = 'older' WHERE state = 'completed' AND completed_by IS NULL;
ALTER TABLE job ADD CONSTRAINT job_completed_by_check
    CHECK (state <> 'completed' OR completed_by IS NOT NULL) NOT VALID;
"""


def newer_migrations() -> tuple[Migration, ...]:
    """Those of the next version."""
    ours = shipped_migrations()
    texts = ("completed_by", PRE), ("completed_by_check", POST)
    versions_made = []
    for number, (name, text) in enumerate(texts, len(ours)):
        title = f"{number:04}_{name}"
        versions_made.append(read_migration(f"{title}.sql", text.format(title=title)))
    return (*ours, *versions_made)


def be_newer() -> None:
    """Make this process one of the next version, before there is a runtime."""
    migrations = newer_migrations()
    migrate.shipped_migrations = lambda: migrations  # type: ignore[assignment]
    _alter(jobs_module, "job_complete", "SET\n        state = 'completed',", _COMPLETED)


_COMPLETED = "SET\n        completed_by = 'newer', state = 'completed',"
