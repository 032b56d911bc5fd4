"""Jobs as people see them."""

from __future__ import annotations

from fairlead.engine.ports import JobView
from fairlead.policy.job import job_label
from fairlead.testing.memory.database import MemoryDatabase
from fairlead.testing.memory.rows import JobRow


def job_view(database: MemoryDatabase, row: JobRow) -> JobView:
    """*row* as people see it."""
    return JobView(
        job_id=row.job_id,
        queue=row.queue,
        kind=row.kind,
        tenant_id=row.tenant_id,
        provider=row.provider,
        group_key=row.group_key,
        tags=list(row.tags),
        state=row.state.value,
        label=job_label(row.state, due=row.run_at <= database.now, attempt=row.attempt),
        priority=row.priority,
        attempt=row.attempt,
        crash_count=row.crash_count,
        run_at=row.run_at,
        created_at=row.created_at,
        finished_at=row.finished_at,
        expires_at=row.expires_at,
        unique_key=row.unique_key,
        args=dict(row.args),
        failures=list(row.failures),
        result=row.result,
    )
