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
from fairlead.engine.ports.caller_jobs import (
    CallerJobs,
)
from fairlead.engine.ports.credentials import (
    Claim,
    Connection,
    ConnectionKey,
    Credential,
    CredentialState,
    CredentialStore,
    DueConnection,
    DuePage,
    GrantState,
    Intent,
    Lifetime,
    NewCredential,
    ReauthRequirement,
    Rotation,
    Sealed,
    SentMark,
    SettingsChange,
    Settlement,
    SettleVerdict,
    Unknown,
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
from fairlead.engine.ports.http import (
    TRANSPORT_HEADERS,
    HttpRequest,
    HttpResponse,
    HttpStream,
    NoResponse,
    NoResponseKind,
    StreamBroken,
    Transport,
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
from fairlead.engine.ports.lanes import (
    Explanation,
    GroupCap,
    LaneStore,
    PauseView,
    Swept,
    TenantShare,
    TenantTurn,
    Tier,
)
from fairlead.engine.ports.notifications import (
    Webhook,
    WebhookSender,
)
from fairlead.engine.ports.processes import (
    KeyHolder,
    Pause,
    ProcessIdentity,
    Renewed,
    Schedule,
    ScheduleRun,
    ScheduleState,
    ScheduleStore,
    SessionStore,
    SessionView,
)
from fairlead.engine.ports.sealing import (
    DataKey,
    Journal,
    JournalEntry,
    JournalHead,
    KeyRotator,
    KeyStore,
    SealContext,
    SealedRecords,
    StoredRecord,
    Vault,
)
from fairlead.engine.ports.sending import (
    EndpointAsk,
    EndpointChange,
    EndpointGate,
    EndpointKey,
    EndpointLimits,
    EndpointPermit,
    EndpointRefusal,
    TokenCall,
    TokenTransport,
)
from fairlead.engine.ports.values import (
    Json,
)
