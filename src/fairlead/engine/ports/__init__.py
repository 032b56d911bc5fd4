"""What the engine asks of the outside world: one narrow Protocol per thing, and the values they carry.

Adapters implement these and know nothing of each other; the runtime wires them. Every duration is in
seconds, every moment that is stored is the database's. Values are frozen: a port never hands out
something that changes under its reader. Methods marked *batched* may be called by thousands of tasks
at once; the adapter sends those that wait together as one statement.
"""

from __future__ import annotations

from fairlead.engine.ports.audit import (
    AuditRecord,
    AuditStore,
)
from fairlead.engine.ports.callers import (
    CallerJobs,
)
from fairlead.engine.ports.credentials import (
    Condemnation,
    Connection,
    ConnectionKey,
    Credential,
    CredentialStore,
    DueConnection,
    DuePage,
    Intent,
    IntentGranted,
    Lifetime,
    NewCredential,
    Rotation,
    Sealed,
    Settlement,
    SettleVerdict,
    Unknown,
    Withheld,
)
from fairlead.engine.ports.dead_letters import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterStore,
)
from fairlead.engine.ports.host import (
    MemoryGauge,
    MemoryUsage,
    ProcessProbe,
)
from fairlead.engine.ports.jobs import (
    Cancelled,
    ClaimFilter,
    Completed,
    Discarded,
    Enqueued,
    FailureRecord,
    Job,
    JobStore,
    JobView,
    NewJob,
    Outcome,
    Rescheduled,
    Rescue,
)
from fairlead.engine.ports.notices import (
    Webhook,
    WebhookSender,
)
from fairlead.engine.ports.processes import (
    DutyStore,
    Pause,
    ProcessIdentity,
    Schedule,
    ScheduleState,
    SessionStore,
    SessionView,
    TakenTick,
)
from fairlead.engine.ports.sealing import (
    DataKey,
    Journal,
    JournalEntry,
    KeySmith,
    KeyStore,
    SealContext,
    SealedRecords,
    StoredRecord,
    Vault,
)
from fairlead.engine.ports.sending import (
    Answered,
    EndpointGate,
    EndpointKey,
    EndpointLimits,
    EndpointPermit,
    EndpointRefusal,
    NoAnswer,
    TokenCall,
    TokenTransport,
)
from fairlead.engine.ports.values import (
    Json,
)

__all__ = [
    "Answered",
    "AuditRecord",
    "AuditStore",
    "CallerJobs",
    "Cancelled",
    "ClaimFilter",
    "Completed",
    "Condemnation",
    "Connection",
    "ConnectionKey",
    "Credential",
    "CredentialStore",
    "DataKey",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterGroup",
    "DeadLetterStore",
    "Discarded",
    "DueConnection",
    "DuePage",
    "DutyStore",
    "EndpointGate",
    "EndpointKey",
    "EndpointLimits",
    "EndpointPermit",
    "EndpointRefusal",
    "Enqueued",
    "FailureRecord",
    "Intent",
    "IntentGranted",
    "Job",
    "JobStore",
    "JobView",
    "Journal",
    "JournalEntry",
    "Json",
    "KeySmith",
    "KeyStore",
    "Lifetime",
    "MemoryGauge",
    "MemoryUsage",
    "NewCredential",
    "NewJob",
    "NoAnswer",
    "Outcome",
    "Pause",
    "ProcessIdentity",
    "ProcessProbe",
    "Rescheduled",
    "Rescue",
    "Rotation",
    "Schedule",
    "ScheduleState",
    "SealContext",
    "Sealed",
    "SealedRecords",
    "SessionStore",
    "SessionView",
    "SettleVerdict",
    "Settlement",
    "StoredRecord",
    "TakenTick",
    "TokenCall",
    "TokenTransport",
    "Unknown",
    "Vault",
    "Webhook",
    "WebhookSender",
    "Withheld",
]
