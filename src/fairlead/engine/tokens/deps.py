"""The dependencies and settings that the parts of a refresh share, and the tokens that they return."""

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
"""The fingerprint of an app that is not in the settings."""


@dataclass(frozen=True, slots=True)
class RefreshSettings:
    """Durations and limits of refreshes. All are injected, so that tests run in milliseconds."""

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
    """The apps of the settings, by provider. A connection's own client id or secret overrides them."""

    def app(self, provider: str, client_id: str) -> AppCredential:
        """Return the app *client_id*; for an empty id, the provider's default."""
        ...


class Profiles(Protocol):
    """Provider profiles with the user's overrides."""

    def profile(self, provider: str, variant: str | None) -> Profile:
        """Return the profile of *provider*; ProviderNotFoundError if there is none."""
        ...


class Signer(Protocol):
    """A signer of assertions (RFC 7515). Only here the key leaves its Secret."""

    def sign(self, claims: dict[str, object], alg: str, private_key: Secret, key_id: str | None) -> Secret:
        """Return the compact JWS; raise InvalidConfigError for a key that does not fit *alg*."""
        ...


@dataclass(frozen=True, slots=True)
class RefreshDeps:
    """Everything that the parts of a refresh need from outside."""

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
    """A valid token of one connection. *expires_in_s* counts from the creation of this object."""

    connection_id: UUID
    key: ConnectionKey
    generation: int
    tokens: TokenSet
    expires_in_s: float | None
    account_id: str | None
    refreshed: bool = False  # by this process, not by another one


@dataclass(frozen=True, slots=True)
class Replay:
    """Permission to resend a request of unknown outcome, given after *replays* replays.

    *leave_by_mono*: the monotonic time after which it may not be sent; None: no limit.
    """

    replays: int
    leave_by_mono: float | None


def payload_context(credential: Credential, generation: int) -> SealContext:
    """Return the context that the stored secrets of *generation* are bound to."""
    return _context(credential, PAYLOAD_FIELD, generation)


def answer_context(credential: Credential, generation: int) -> SealContext:
    """Return the context of a raw response that replaces *generation*."""
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


def error_of(kind: type[FairleadError], credential: Credential, message: str, **more: Any) -> FairleadError:
    """Return an error of *kind* that names the tenant and provider of *credential*."""
    key = credential.connection.key
    if kind is NotSentError:
        more["hint"] = HINTS.get(more["reason"])
    error = kind(message, tenant=key.tenant, provider=key.provider, **more)
    if isinstance(error, ReauthRequiredError):
        error.account = key.account
    return error


def profile_of(deps: RefreshDeps, credential: Credential) -> Profile:
    """Return the profile of a stored connection. The error for a missing one names tenant and provider."""
    key = credential.connection.key
    try:
        return deps.profiles.profile(key.provider, credential.connection.variant)
    except ProviderNotFoundError as missing:
        raise ProviderNotFoundError(missing.message, tenant=key.tenant, provider=key.provider) from None
