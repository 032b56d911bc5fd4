"""The interfaces of the engine to the outside: one narrow protocol per dependency, and its values.

Import them from here; the modules of this package group them by subject. Adapters implement the protocols and
know nothing of each other; assembly wires them. Durations are in seconds, stored instants are by the
database's clock. Values do not change after their creation. Methods described as *batched* may be called by
thousands of tasks at once; the adapter sends calls that wait together as one statement.
"""

from __future__ import annotations

from fairlead.engine.ports.audit import AuditRecord, AuditStore
from fairlead.engine.ports.caller_jobs import CallerJobs
from fairlead.engine.ports.connection import (
    CONNECT_HINT,
    Connection,
    ConnectionKey,
    LearnedSlots,
    Sealed,
    SettingsChange,
    connection_not_found,
)
from fairlead.engine.ports.credentials import (
    Claim,
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
    SentMark,
    Settlement,
    SettleVerdict,
    UnknownOutcome,
)
from fairlead.engine.ports.dead_letters import DeadLetter, DeadLetterFilter, DeadLetterGroup, DeadLetterStore
from fairlead.engine.ports.gate import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    FleetGate,
    Gate,
    GateRefusal,
    Lease,
    Observation,
    OnReleased,
    Queued,
    RefusedBy,
    Release,
    Released,
    Renewal,
    Reserved,
    Wake,
)
from fairlead.engine.ports.gate_acts import GateOperator
from fairlead.engine.ports.gate_keys import UNKNOWN_KIND, GateKeys, KeySurvey, KindUse, StoredLease
from fairlead.engine.ports.gate_notes import SLOTS_LIMIT, GateNotes, LearnedLimit
from fairlead.engine.ports.gate_view import (
    BreakerView,
    BucketView,
    DestinationView,
    FailureView,
    GateInspector,
    GateView,
    HolderView,
    PromotionView,
    WaiterView,
)
from fairlead.engine.ports.host import MemoryGauge, MemoryUsage, ProcessProbe
from fairlead.engine.ports.http import (
    TRANSPORT_HEADERS,
    CallTransport,
    DialObserver,
    HttpRequest,
    HttpResponse,
    HttpStream,
    NoResponse,
    NoResponseKind,
    StreamBrokenError,
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
    UnhandledKind,
)
from fairlead.engine.ports.notifications import Webhook, WebhookSender
from fairlead.engine.ports.overrides import Override, OverrideStore, Rollout
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
    EntryFilter,
    Journal,
    JournalEntry,
    JournalHead,
    KeyRotator,
    KeyStore,
    SealContext,
    SealedRecords,
    StoredRecord,
    Vault,
    any_entry,
)
from fairlead.engine.ports.sending import (
    EndpointChange,
    EndpointGate,
    EndpointKey,
    EndpointLimits,
    EndpointPermit,
    EndpointRefusal,
    PermitRequest,
    TokenCall,
    TokenTransport,
    permit_from_row,
)
from fairlead.engine.ports.values import Json
