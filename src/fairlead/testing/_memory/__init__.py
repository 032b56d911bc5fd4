"""Stores in memory that pass the same contract suites as the real ones (tests/contract).

They store their rows in the tables of one `MemoryDatabase`, and take all instants from its clock. Each operation is
atomic, as one statement of the real store is.
"""

from __future__ import annotations

from fairlead.testing._memory.database import MemoryDatabase, MemoryLink
from fairlead.testing._memory.dead_letters import MemoryDeadLetterStore
from fairlead.testing._memory.jobs import MemoryJobStore
from fairlead.testing._memory.lanes import MemoryLaneStore
from fairlead.testing._memory.schedules import MemoryScheduleStore
from fairlead.testing._memory.sessions import MemorySessionStore

__all__ = [
    "MemoryDatabase",
    "MemoryDeadLetterStore",
    "MemoryJobStore",
    "MemoryLaneStore",
    "MemoryLink",
    "MemoryScheduleStore",
    "MemorySessionStore",
]
