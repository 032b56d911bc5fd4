"""The few steps that all suites about credentials share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from fairlead.engine.ports import (
    ConnectionKey,
    Credential,
    CredentialStore,
    EndpointKey,
    EndpointLimits,
    EndpointRefusal,
    Intent,
    Lifetime,
    NewCredential,
    PermitRequest,
    ReauthRequirement,
    Sealed,
    SentMark,
    Settlement,
    UnknownOutcome,
)
from tests.contract.stores import Stores, a_session
from tests.support.engine import IDS

KEY = ConnectionKey("acme", "mercadolibre")
HOUR = Lifetime(expires_in_s=3600.0, urgent_in_s=3000.0, critical_in_s=3500.0, due_in_s=2900.0)
FOR_EVER = Lifetime(None, None, None, None)
LEASE_S = 60.0


def new_credential(key: ConnectionKey = KEY, lifetime: Lifetime = HOUR, **fields: Any) -> NewCredential:
    """A first grant."""
    new_record = NewCredential(
        connection_id=IDS.uuid7(),
        key=key,
        variant="eu",
        account_id=None,
        client_id="app",
        endpoint={"shop": "x"},
        settings={"calls": 2},
        sealed=Sealed(IDS.uuid7(), b"secret 1"),
        generation=1,
        refreshable=True,
        lifetime=lifetime,
        actor="test",
        audit_id=IDS.uuid7(),
    )
    return replace(new_record, **fields)


async def connected(
    stores: Stores, key: ConnectionKey = KEY, lifetime: Lifetime = HOUR, **fields: Any
) -> Credential:
    """A new connection, as it is read."""
    assert await stores.credentials.create(new_credential(key, lifetime, **fields))
    return await read_credential(stores, key)


async def read_credential(stores: Stores, key: ConnectionKey = KEY) -> Credential:
    """A connection that is there."""
    credential = await stores.credentials.read(key)
    assert credential is not None
    return credential


def again(credential: Credential, **fields: Any) -> NewCredential:
    """A new grant for it."""
    connection = credential.connection
    record_fields: dict[str, Any] = {
        "connection_id": connection.connection_id,
        "generation": credential.generation + 1,
        "sealed": Sealed(IDS.uuid7(), b"granted"),
    }
    return new_credential(connection.key, **(record_fields | fields))


def intent(credential: Credential, session_id: UUID, lease_s: float = LEASE_S) -> Intent:
    """To refresh it."""
    connection_id = credential.connection.connection_id
    return Intent(connection_id, IDS.uuid7(), credential.generation, session_id, lease_s)


async def claim(store: CredentialStore, attempt: Intent) -> int | None:
    """Return the epoch of the INTENT, or None where it is lost; nothing limits the token endpoint."""
    endpoint, limits = EndpointKey("mercadolibre", "app"), EndpointLimits(per_s=None, burst=1.0)
    ask = PermitRequest(
        endpoint, limits, attempt.connection_id, attempt.from_generation, None, attempt.session_id
    )
    granted = await store.claim(attempt, ask)
    assert not isinstance(granted, EndpointRefusal), granted
    return granted and granted.epoch


async def claimed(stores: Stores, attempt: Intent) -> int:
    """It is granted."""
    granted = await claim(stores.credentials, attempt)
    assert granted is not None
    return granted


async def sent(stores: Stores, attempt: Intent) -> Settlement:
    """It is granted and sent; its answer, that nobody has stored yet."""
    granted = await claimed(stores, attempt)
    return await marked(stores, attempt, granted)


async def marked(stores: Stores, attempt: Intent, granted: int) -> Settlement:
    """What was granted is sent; its answer."""
    mark = await stores.credentials.mark_sent(attempt.connection_id, attempt.attempt_id)
    assert mark is not None
    return answer(attempt, mark, granted)


def answer(attempt: Intent, mark: SentMark, epoch: int) -> Settlement:
    """Of what was sent."""
    return Settlement(
        connection_id=attempt.connection_id,
        attempt_id=attempt.attempt_id,
        from_generation=attempt.from_generation,
        epoch=epoch,
        sealed=Sealed(IDS.uuid7(), b"refreshed"),
        refreshable=True,
        account_id=None,
        sent_at=mark.first_at,
        lifetime=HOUR,
        actor="fairlead",
        audit_id=IDS.uuid7(),
    )


def unknown(attempt: Intent, due_in_s: float | None = 0.0, reason: str = "cut") -> UnknownOutcome:
    """Its outcome is not known."""
    return UnknownOutcome(attempt.connection_id, attempt.attempt_id, reason, due_in_s, IDS.uuid7())


async def unknown_rotation(stores: Stores) -> tuple[Credential, Intent]:
    """A connection whose refresh was sent, and nobody knows what came of it."""
    credential = await connected(stores)
    attempt = intent(credential, await a_session(stores))
    await sent(stores, attempt)
    assert await stores.credentials.mark_unknown(unknown(attempt))
    return credential, attempt


def reauth_requirement(credential: Credential, attempt_id: UUID | None = None) -> ReauthRequirement:
    """The grant is dead."""
    return ReauthRequirement(
        connection_id=credential.connection.connection_id,
        from_generation=credential.generation,
        attempt_id=attempt_id,
        reason="invalid_grant",
        notice_id=IDS.uuid7(),
        notice_args={"why": "invalid_grant"},
        audit_id=IDS.uuid7(),
    )
