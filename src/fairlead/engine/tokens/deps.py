"""What the rooms of the coordinator share: their ports, their numbers, and what they hand out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from fairlead._core.clock import Clock, Draw
from fairlead._core.ids import Ids
from fairlead._core.secret import Secret
from fairlead.engine.ports import (
    Connection,
    ConnectionKey,
    Credential,
    CredentialStore,
    EndpointGate,
    Journal,
    SealContext,
    TokenTransport,
    Vault,
)
from fairlead.errors import FairleadError, NotSentError, ProviderNotFoundError, ReauthRequiredError
from fairlead.events import Emit
from fairlead.policy.failures.process_health import HINTS
from fairlead.policy.providers.profile import Profile
from fairlead.policy.tokens.token import TokenSet

PAYLOAD_FIELD = "credential"
"""Field name of the stored credential in its associated data."""
ANSWER_FIELD = "answer"
"""Field name of a raw answer in the journal."""
UNKNOWN_APP = "none"
"""Fingerprint of an app that the settings do not know."""


@dataclass(frozen=True, slots=True)
class RefreshSettings:
    """Durations of DEFAULTS §1; all injected, so that tests run in milliseconds."""

    request_deadline_s: float = 15.0
    total_deadline_s: float = 50.0
    lease_s: float = 60.0
    not_sent_delays_s: tuple[float, ...] = (1.0, 3.0)
    cooldown_s: float = 30.0
    min_remaining_s: float = 60.0
    wait_s: float = 15.0
    settle_retry_s: float = 0.2
    retry_dead_after_s: float = 900.0
    backoff_s: float = 1.0
    breaker_failures: int = 10
    breaker_open_s: float = 60.0
    breaker_open_max_s: float = 600.0
    scan_page: int = 1000


@dataclass(frozen=True, slots=True)
class AppCredential:
    """Your app at a provider.

    Attributes:
        fingerprint: A digest that identifies the secret. None: the secret is a connection's own, and its
            refusal says nothing about other connections. Spec: R13.
        hosts: Hosts that may receive the app's secret although the tenant chose them.
    """

    client_id: str
    client_secret: Secret | None = None
    private_key: Secret | None = None
    key_id: str | None = None
    fingerprint: str | None = ""
    hosts: frozenset[str] = frozenset()


class Apps(Protocol):
    """Apps by provider; a connection's own client id or secret goes before."""

    def app(self, provider: str, client_id: str) -> AppCredential:
        """The app called *client_id*, or the provider's default for an empty one."""
        ...


class Profiles(Protocol):
    """Provider profiles, with the user's changes laid over."""

    def profile(self, provider: str, variant: str | None) -> Profile:
        """Raises ProviderNotFoundError."""
        ...


class Signer(Protocol):
    """Signs assertions (RFC 7515); the key never leaves its Secret but in here."""

    def sign(self, claims: dict[str, object], alg: str, private_key: Secret, key_id: str | None) -> Secret:
        """The compact JWS; raises InvalidConfigError for a key that does not fit *alg*."""
        ...


@dataclass(frozen=True, slots=True)
class RefreshDeps:
    """Everything the coordinator needs of the outside world."""

    store: CredentialStore
    vault: Vault
    journal: Journal
    transport: TokenTransport
    gate: EndpointGate
    apps: Apps
    profiles: Profiles
    signer: Signer
    clock: Clock
    draw: Draw
    ids: Ids
    emit: Emit
    session_id: Callable[[], UUID]
    reauth_link: Callable[[ConnectionKey, UUID], str | None]


@dataclass(frozen=True, slots=True)
class FreshToken:
    """A usable token of one connection. *expires_in_s* counts from the moment this was made."""

    connection_id: UUID
    key: ConnectionKey
    generation: int
    tokens: TokenSet
    expires_in_s: float | None
    account_id: str | None
    refreshed: bool = False  # by this very flight


@dataclass(frozen=True, slots=True)
class Replay:
    """Leave to send again what was sent with unknown outcome, judged after *replays* of them.

    *leave_by_s*: the monotonic clock's time after which it may not leave any more (None: it always may).
    """

    replays: int
    leave_by_s: float | None


def payload_context(credential: Credential, generation: int) -> SealContext:
    """What the stored secrets of *generation* are bound to."""
    return _context(credential, PAYLOAD_FIELD, generation)


def answer_context(credential: Credential, generation: int) -> SealContext:
    """What a raw answer that replaces *generation* is bound to."""
    return _context(credential, ANSWER_FIELD, generation)


def _context(credential: Credential, field: str, generation: int) -> SealContext:
    connection = credential.connection
    return SealContext(
        tenant=connection.key.tenant,
        connection_id=connection.connection_id,
        provider=connection.key.provider,
        field=field,
        generation=generation,
    )


def names_of(connection: Connection) -> dict[str, Any]:
    """Return the fields that name *connection* in events."""
    return {**connection.key._asdict(), "connection_id": connection.connection_id}


def error_of(kind: type[FairleadError], credential: Credential, what: str, **more: Any) -> FairleadError:
    """Return an error of *kind* that names the tenant and provider of *credential*."""
    key = credential.connection.key
    if kind is NotSentError:
        more["hint"] = HINTS.get(more["reason"])
    error = kind(what, tenant=key.tenant, provider=key.provider, **more)
    if isinstance(error, ReauthRequiredError):
        error.account = key.account
    return error


def profile_of(deps: RefreshDeps, credential: Credential) -> Profile:
    """The profile of a stored connection; says whose it is where there is none any more."""
    key = credential.connection.key
    try:
        return deps.profiles.profile(key.provider, credential.connection.variant)
    except ProviderNotFoundError as missing:
        raise ProviderNotFoundError(missing.message, tenant=key.tenant, provider=key.provider) from None
