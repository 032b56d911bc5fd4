"""Views of jobs."""

from __future__ import annotations

from fairlead.engine.ports import JobView
from fairlead.policy.jobs.job import job_label
from fairlead.testing._memory.database import MemoryDatabase
from fairlead.testing._memory.rows import JobRow, copied


def job_view(database: MemoryDatabase, row: JobRow) -> JobView:
    """Return the view of *row*."""
    return copied(
        JobView,
        row,
        tags=list(row.tags),
        state=row.state.value,
        label=job_label(row.state, due=row.run_at <= database.now, attempt=row.attempt),
        args=dict(row.args),
        failures=list(row.failures),
    )
