"""Stores a response as the new generation: sealed, journaled, settled by compare-and-set.

The raw response goes to the fsynced journal first; from then on a crash loses nothing. Then it is merged and
settled; an unavailable store is retried for as long as this process lives. A response that cannot be
published stays in the journal, because it may be the only copy of the next refresh token.

Spec: T4, T7, R10-R12.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import TypeVar
from uuid import UUID

from fairlead._core.faultpoint import faultpoint
from fairlead._core.secret import Secret
from fairlead.engine.ports import Credential, HttpResponse, JournalEntry, Lifetime, Settlement
from fairlead.engine.tokens.deps import (
    FreshToken,
    RefreshDeps,
    answer_context,
    names_of,
    payload_context,
    profile_of,
)
from fairlead.engine.tokens.sealed_endpoints import check_endpoints, endpoint_digest_of
from fairlead.engine.tokens.sealed_records import (
    CredentialSecrets,
    decode_secrets,
    encode_answer,
    encode_secrets,
)
from fairlead.engine.tokens.send_history import is_newer
from fairlead.errors import CredentialUnreadableError, DependencyUnavailableError
from fairlead.events import StoreUnreachable, TokenRefreshed
from fairlead.policy.providers.profile import Profile
from fairlead.policy.tokens.lifetime import jwt_lifetime_s
from fairlead.policy.tokens.outcome import Granted
from fairlead.policy.tokens.replay import defer_s
from fairlead.policy.tokens.token import merge
from fairlead.policy.tokens.window import jitter_fraction, windows

_Result = TypeVar("_Result")

NEVER = Lifetime(expires_in_s=None, urgent_in_s=None, critical_in_s=None, due_in_s=None)
MAX_UNUSABLE = 10_000
"""Connections with unusable responses that one process remembers."""
MAX_WRITE_RACES = 5
"""How often a response is resealed because another process resealed the record that it replaces."""
SUPERSEDED = 0
"""In place of a generation: the token was sent again since, and that response has the newer one."""
AT_ONCE = Lifetime(expires_in_s=0.0, urgent_in_s=0.0, critical_in_s=0.0, due_in_s=0.0)


@dataclass(frozen=True, slots=True)
class Send:
    """One request that was sent, with instants of the database's clock.

    Attributes:
        sent_at: When its token was first sent.
        marked_at: When this send was marked.
        asked_mono: When the caller asked, by the monotonic clock.
        marked_mono: When this send was marked, by the monotonic clock.
        defers: Whether it defers to the response of a later send of the same token, if one may arrive.
    """

    credential: Credential
    attempt_id: UUID
    epoch: int
    sent_at: datetime
    marked_at: datetime
    asked_mono: float
    marked_mono: float
    actor: str
    defers: bool = True

    @property
    def from_generation(self) -> int:
        """The generation of the token that was sent."""
        return self.credential.generation


@dataclass(frozen=True, slots=True)
class Published:
    """A settled response: its generation, and the secrets that were stored."""

    generation: int
    secrets: CredentialSecrets


def lifetime_of(profile: Profile, connection_id: UUID, expires_in_s: float | None) -> Lifetime:
    """Return when a token that expires in *expires_in_s* is due, urgent and critical, with jitter.

    Spec: T2.
    """
    if expires_in_s is None:
        return NEVER
    offsets = windows(profile, expires_in_s, jitter_fraction(str(connection_id)))
    return Lifetime(
        expires_in_s=offsets.expires_in_s,
        urgent_in_s=offsets.urgent_in_s,
        critical_in_s=offsets.critical_in_s,
        due_in_s=offsets.due_in_s,
    )


def given_lifetime(
    profile: Profile,
    connection_id: UUID,
    access_token: Secret | None,
    expires_in_s: float | None,
    earlier_s: float | None,
) -> Lifetime:
    """Return the lifetime of a grant from a person, an import or a consent.

    Args:
        access_token: None: it is not valid, so that a refresh is due at once.
        expires_in_s: The rest of its lifetime, if known. A JWT that expires earlier wins.
        earlier_s: The lifetime that earlier responses to the connection stated. Default: the profile's.
    """
    if profile.ttl_default_s is None:
        return NEVER
    if access_token is None:
        return AT_ONCE
    own_s = jwt_lifetime_s(access_token.reveal())
    life_s = expires_in_s or own_s or earlier_s or profile.ttl_default_s
    return lifetime_of(profile, connection_id, min(life_s, own_s or life_s))


def is_same_successor(
    spent: CredentialSecrets, stored: CredentialSecrets | None, merged: CredentialSecrets
) -> bool:
    """Return whether a response has the refresh token that replaced *spent* in the store already.

    Some providers repeat the new token when the spent one is sent again. Storing it as one more generation
    would let two refreshes send it: one from either generation.
    """
    if stored is None:
        return False
    stored_token = stored.tokens.refresh_token
    return stored_token != spent.tokens.refresh_token and stored_token == merged.tokens.refresh_token


def defer_to_later_send_s(profile: Profile) -> float | None:
    """Return Settlement.defer_s by the replay policy of *profile*."""
    return None if profile.replay is None else defer_s(profile.replay.policy, profile.replay.grace_s)


class Settler:
    """Stores responses, for live refreshes and for recovery from the journal."""

    def __init__(self, deps: RefreshDeps, retry_s: float) -> None:
        self._deps = deps
        self._retry_s = retry_s
        self._unusable: dict[UUID, set[bytes]] = {}

    async def open_token(self, credential: Credential) -> FreshToken:
        """Return the stored token of *credential*; its expiry is the row's, not the sealed record's."""
        secrets = await self.open_secrets(credential)
        secrets = replace(secrets, tokens=replace(secrets.tokens, expires_at=credential.expires_at))
        return _fresh(credential, credential.generation, secrets, credential.expires_in_s)

    async def open_secrets(self, credential: Credential) -> CredentialSecrets:
        """Return the secrets of the stored generation.

        Raises:
            CredentialUnreadableError: They do not open, or the row would send them to other hosts than those
                they were sealed for.
        """
        context = payload_context(credential, credential.generation)
        secrets = decode_secrets(await self._deps.vault.open(context, credential.sealed))
        check_endpoints(credential, secrets)
        return secrets

    async def journal(self, send: Send, answer: HttpResponse) -> None:
        """Write the raw response to disk. If the disk fails, it is settled all the same."""
        await self._append(self._entry(send, answer))

    async def retain_unusable(self, send: Send, answer: HttpResponse) -> None:
        """Write a response that cannot be published to disk, until the connection has a newer token (R12)."""
        connection_id, digest = send.credential.connection.connection_id, sha256(answer.body).digest()
        digests = self._unusable.setdefault(connection_id, set())
        if digest not in digests and len(self._unusable) <= MAX_UNUSABLE:
            await self.journal(send, answer)
            digests.add(digest)

    def _entry(self, send: Send, answer: HttpResponse) -> JournalEntry:
        credential = send.credential
        plain = encode_answer(answer.status, answer.headers, answer.body)
        return JournalEntry(
            connection_id=credential.connection.connection_id,
            tenant=credential.connection.key.tenant,
            provider=credential.connection.key.provider,
            attempt_id=send.attempt_id,
            from_generation=credential.generation,
            epoch=send.epoch,
            sent_at=send.sent_at,
            sealed=self._deps.vault.seal(answer_context(credential, credential.generation), plain),
        )

    async def _append(self, entry: JournalEntry) -> bool:
        """Return whether *entry* is on disk."""
        try:
            await self._deps.journal.append(entry)
        except OSError as error:
            self._deps.emit(StoreUnreachable("journal", type(error).__name__))
            return False
        return True

    async def late(self, send: Send, answer: HttpResponse) -> Send:
        """Return *send*, which was sent long after its mark, with the epoch of the time when it was sent.

        The token may have been sent again in between. The provider lets the response to the later request
        live, which is the one with the higher epoch.
        """
        connection_id, spent = send.credential.connection.connection_id, send.credential.generation
        left_at = send.marked_at + timedelta(seconds=answer.late_s)
        epoch = await self._until_available(
            partial(self._deps.store.mark_late, connection_id, spent, left_at)
        )
        if epoch is None:
            return send
        late = replace(send, epoch=epoch)
        if await self._append(self._entry(late, answer)):
            self._deps.journal.settled(connection_id, send.epoch)
        return late

    async def publish(
        self, send: Send, secrets: CredentialSecrets, granted: Granted, *, recovered: bool
    ) -> Published | None:
        """Settle *granted* as the next generation; return None if there is a newer one, or will be."""
        merged = replace(
            secrets,
            tokens=merge(secrets.tokens, granted, send.sent_at),
            endpoint_digest=secrets.endpoint_digest or endpoint_digest_of(send.credential.connection),
        )
        generation = await self._settle_or_supersede(send, secrets, merged, granted)
        if generation == SUPERSEDED:  # it stays in the journal, in case nothing newer arrives
            return None
        connection_id = send.credential.connection.connection_id
        self._deps.journal.settled(connection_id, send.epoch)
        if generation is None:
            return None
        self._unusable.pop(connection_id, None)
        faultpoint("token.after_settle")
        self._emit_refreshed(send, generation, recovered)
        return Published(generation, merged)

    def fresh(self, send: Send, published: Published, expires_in_s: float | None) -> FreshToken:
        """Return the published token for the caller.

        Its lifetime counts from the call, so it never seems too long.
        """
        left_s = None
        if expires_in_s is not None:
            left_s = expires_in_s - (self._deps.clock.monotonic() - send.asked_mono)
        return _fresh(send.credential, published.generation, published.secrets, left_s, refreshed=True)

    async def _settle_or_supersede(
        self, send: Send, spent: CredentialSecrets, merged: CredentialSecrets, granted: Granted
    ) -> int | None:
        """Store *merged*; return its generation, SUPERSEDED, or None if it is not needed any more."""
        generation, base = send.credential.generation, send.credential
        for _ in range(MAX_WRITE_RACES):
            settle = partial(self._deps.store.settle, self._settlement(send, base, merged, granted))
            if await self._until_available(settle) == "settled":
                return base.generation + 1
            now = await self._deps.store.read_id(base.connection.connection_id)
            if now is None:
                return None
            unchanged = (now.generation, now.sealed) == (base.generation, base.sealed)
            if now.generation > generation and now.settled_epoch == send.epoch:
                return now.generation  # an earlier try had been committed
            if not is_newer(now, send):
                return None
            if unchanged:
                return SUPERSEDED if now.generation == generation and now.state != "revoked" else None
            stored = await self._readable_secrets(now)
            if now.generation != generation and is_same_successor(spent, stored, merged):
                return None
            digest = (stored and stored.endpoint_digest) or merged.endpoint_digest
            base, merged = now, replace(merged, endpoint_digest=digest)
        return SUPERSEDED

    async def _readable_secrets(self, credential: Credential) -> CredentialSecrets | None:
        """Return the stored secrets, which another process resealed; None if they do not open."""
        try:
            return await self.open_secrets(credential)
        except CredentialUnreadableError:
            return None

    def _settlement(
        self, send: Send, credential: Credential, merged: CredentialSecrets, granted: Granted
    ) -> Settlement:
        generation = credential.generation
        profile = profile_of(self._deps, credential)
        connection = credential.connection
        unnamed = connection.account_id is None
        return Settlement(
            connection_id=connection.connection_id,
            attempt_id=send.attempt_id,
            from_generation=generation,
            expected_sealed=credential.sealed,
            epoch=send.epoch,
            sealed=self._deps.vault.seal(payload_context(credential, generation + 1), encode_secrets(merged)),
            refreshable=profile.strategy == "assertion" or merged.tokens.refresh_token is not None,
            account_id=merged.tokens.account_id if unnamed else None,
            sent_at=send.sent_at,
            lifetime=lifetime_of(profile, connection.connection_id, granted.expires_in_s),
            actor=send.actor,
            audit_id=self._deps.ids.uuid7(),
            defer_s=defer_to_later_send_s(profile) if send.defers else None,
        )

    async def _until_available(self, query: Callable[[], Awaitable[_Result]]) -> _Result:
        """Retry *query* while the store is unavailable: the response is on disk, and the lease continues."""
        reported = False
        while True:
            try:
                return await query()
            except DependencyUnavailableError as unavailable:
                if not reported:
                    self._deps.emit(StoreUnreachable("postgres", unavailable.message))
                    reported = True
                await self._deps.clock.sleep(self._retry_s)

    def _emit_refreshed(self, send: Send, generation: int, recovered: bool) -> None:
        self._deps.emit(
            TokenRefreshed(
                **names_of(send.credential.connection),
                generation=generation,
                waited_s=self._deps.clock.monotonic() - send.asked_mono,
                recovered=recovered,
            )
        )


def _fresh(
    credential: Credential,
    generation: int,
    secrets: CredentialSecrets,
    expires_in_s: float | None,
    *,
    refreshed: bool = False,
) -> FreshToken:
    connection = credential.connection
    return FreshToken(
        connection_id=connection.connection_id,
        key=connection.key,
        generation=generation,
        tokens=secrets.tokens,
        expires_in_s=expires_in_s,
        account_id=connection.account_id or secrets.tokens.account_id,
        refreshed=refreshed,
    )
