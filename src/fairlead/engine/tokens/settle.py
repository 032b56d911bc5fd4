"""An answer becomes the new generation: sealed, journaled, settled by compare-and-set (T4, T7, R10-R12).

The order is the promise. Raw answer to the fsynced journal first: from then on a crash loses nothing.
Then merge and settle; a store that is away is asked again for as long as this process lives. An answer
that cannot be published is kept all the same: it was paid for with a spent token.
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

_Heard = TypeVar("_Heard")

NEVER = Lifetime(expires_in_s=None, urgent_in_s=None, critical_in_s=None, due_in_s=None)
AT_ONCE = Lifetime(expires_in_s=0.0, urgent_in_s=0.0, critical_in_s=0.0, due_in_s=0.0)


@dataclass(frozen=True, slots=True)
class Send:
    """One request that left: which rotation it was, and when by the database's clock.

    *sent_at* is when its token was sent first, *marked_at* when it was marked this time.
    """

    credential: Credential
    attempt_id: UUID
    epoch: int
    sent_at: datetime
    marked_at: datetime
    asked_mono: float  # monotonic, when the caller asked
    marked_mono: float  # monotonic, when it was marked as sent
    actor: str
    defers: bool = True  # to the answer of a later send of the same token, where one may still come

    @property
    def from_generation(self) -> int:
        """The generation whose token was spent."""
        return self.credential.generation


@dataclass(frozen=True, slots=True)
class Published:
    """A settled answer: its generation, and the secrets that were stored."""

    generation: int
    stored: CredentialSecrets


def lifetime_of(profile: Profile, connection_id: UUID, expires_in_s: float | None) -> Lifetime:
    """When a token that lives *expires_in_s* is due, urgent and critical, jitter included (T2)."""
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
        access_token: None: there is no valid one, so a refresh is due at once.
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


MOST_UNUSABLE = 10_000
"""Connections whose unreadable answers one process keeps at the same time."""
WRITERS = 5
"""How often an answer is sealed anew because others sealed the record that it replaces."""
SUPERSEDED = 0
"""In the place of a generation: the token was sent again since, and that answer has the newer one."""


def is_same_successor(
    before: CredentialSecrets, there: CredentialSecrets | None, merged: CredentialSecrets
) -> bool:
    """Whether an answer brings, in place of the refresh token *before*, that which is *there* already.

    Some providers repeat it to whoever presents the spent one again. As one more generation it would be sent
    twice: by who has sent it from this one since, and by who reads the new one.
    """
    if there is None:
        return False
    spent, stored = before.tokens.refresh_token, there.tokens.refresh_token
    return stored != spent and stored == merged.tokens.refresh_token


def defer_to_later_send_s(profile: Profile) -> float | None:
    """Settlement.yields_s by the replay policy of *profile*."""
    return None if profile.replay is None else defer_s(profile.replay.policy, profile.replay.grace_s)


class Settler:
    """Stores answers; shared by live exchanges and by recovery from the journal."""

    def __init__(self, deps: RefreshDeps, retry_s: float) -> None:
        self._deps = deps
        self._retry_s = retry_s
        self._unusable: dict[UUID, set[bytes]] = {}

    async def open(self, credential: Credential) -> FreshToken:
        """The stored token of *credential*, as it stands; its end is the row's, not the sealed record's."""
        stored = await self.stored(credential)
        stored = replace(stored, tokens=replace(stored.tokens, expires_at=credential.expires_at))
        return _fresh(credential, credential.generation, stored, credential.expires_in_s)

    async def stored(self, credential: Credential) -> CredentialSecrets:
        """The secrets of the stored generation, opened; CredentialUnreadableError also where the row would send
        them elsewhere than they were sealed for."""
        context = payload_context(credential, credential.generation)
        stored = decode_secrets(await self._deps.vault.open(context, credential.sealed))
        check_endpoints(credential, stored)
        return stored

    async def journal(self, send: Send, answer: HttpResponse) -> None:
        """Have the raw answer on disk. A disk that fails now is no reason to drop it: settling goes on."""
        await self._is_kept(self._entry(send, answer))

    async def retain_unusable(self, send: Send, answer: HttpResponse) -> None:
        """Write a response that cannot be published to disk, until the connection has a newer token (R12)."""
        connection_id, digest = send.credential.connection.connection_id, sha256(answer.body).digest()
        kept = self._unusable.setdefault(connection_id, set())
        if digest not in kept and len(self._unusable) <= MOST_UNUSABLE:
            await self.journal(send, answer)
            kept.add(digest)

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

    async def _is_kept(self, entry: JournalEntry) -> bool:
        try:
            await self._deps.journal.append(entry)
        except OSError as error:
            self._deps.emit(StoreUnreachable("journal", type(error).__name__))
            return False
        return True

    async def late(self, send: Send, answer: HttpResponse) -> Send:
        """*send* in the place that it has by when it left: others may have sent the token again before.

        Of two answers the provider lets the one to the later request live (E44), and of two epochs the higher
        stands for it.
        """
        connection_id, spent = send.credential.connection.connection_id, send.credential.generation
        left_at = send.marked_at + timedelta(seconds=answer.late_s)
        epoch = await self._until_heard(partial(self._deps.store.mark_late, connection_id, spent, left_at))
        if epoch is None:
            return send
        late = replace(send, epoch=epoch)
        if await self._is_kept(self._entry(late, answer)):
            self._deps.journal.settled(connection_id, send.epoch)
        return late

    async def publish(
        self, send: Send, stored: CredentialSecrets, granted: Granted, *, recovered: bool
    ) -> Published | None:
        """Settle *granted* as the next generation; None if a newer one is there by now, or is to be had."""
        merged = replace(
            stored,
            tokens=merge(stored.tokens, granted, send.sent_at),
            endpoint_digest=stored.endpoint_digest or endpoint_digest_of(send.credential.connection),
        )
        generation = await self._settle_or_supersede(send, stored, merged, granted)
        if generation == SUPERSEDED:  # it stays in the journal, should nothing newer come
            return None
        connection_id = send.credential.connection.connection_id
        self._deps.journal.settled(connection_id, send.epoch)
        if generation is None:
            return None
        self._unusable.pop(connection_id, None)
        faultpoint("token.after_settle")
        self._tell(send, generation, recovered)
        return Published(generation, merged)

    def fresh(self, send: Send, published: Published, expires_in_s: float | None) -> FreshToken:
        """The token just published, for who asked; its life counts from the ask: early is safe."""
        left_s = None
        if expires_in_s is not None:
            left_s = expires_in_s - (self._deps.clock.monotonic() - send.asked_mono)
        return _fresh(send.credential, published.generation, published.stored, left_s, refreshed=True)

    async def _settle_or_supersede(
        self, send: Send, before: CredentialSecrets, merged: CredentialSecrets, granted: Granted
    ) -> int | None:
        spent, base = send.credential.generation, send.credential
        for _ in range(WRITERS):
            settle = partial(self._deps.store.settle, self._settlement(send, base, merged, granted))
            if await self._until_heard(settle) == "settled":
                return base.generation + 1
            now = await self._deps.store.read_id(base.connection.connection_id)
            if now is None:
                return None
            unchanged = (now.generation, now.sealed) == (base.generation, base.sealed)
            if now.generation > spent and now.settled_epoch == send.epoch:
                return now.generation  # ours: its commit had been in doubt
            if not is_newer(now, send):
                return None
            if unchanged:
                return SUPERSEDED if now.generation == spent and now.state != "revoked" else None
            there = await self._there(now)
            if now.generation != spent and is_same_successor(before, there, merged):
                return None
            base, merged = (
                now,
                replace(merged, endpoint_digest=(there and there.endpoint_digest) or merged.endpoint_digest),
            )
        return SUPERSEDED

    async def _there(self, now: Credential) -> CredentialSecrets | None:
        """What is stored by now. A change of settings seals where secrets may go; what does not open says
        nothing."""
        try:
            return await self.stored(now)
        except CredentialUnreadableError:
            return None

    def _settlement(
        self, send: Send, credential: Credential, merged: CredentialSecrets, granted: Granted
    ) -> Settlement:
        spent = credential.generation
        profile = profile_of(self._deps, credential)
        connection = credential.connection
        unnamed = connection.account_id is None
        return Settlement(
            connection_id=connection.connection_id,
            attempt_id=send.attempt_id,
            from_generation=spent,
            expected_sealed=credential.sealed,
            epoch=send.epoch,
            sealed=self._deps.vault.seal(payload_context(credential, spent + 1), encode_secrets(merged)),
            refreshable=profile.strategy == "assertion" or merged.tokens.refresh_token is not None,
            account_id=merged.tokens.account_id if unnamed else None,
            sent_at=send.sent_at,
            lifetime=lifetime_of(profile, connection.connection_id, granted.expires_in_s),
            actor=send.actor,
            audit_id=self._deps.ids.uuid7(),
            defer_s=defer_to_later_send_s(profile) if send.defers else None,
        )

    async def _until_heard(self, ask: Callable[[], Awaitable[_Heard]]) -> _Heard:
        """Ask until the store answers: the answer is on disk, the lease runs on, nothing is dropped."""
        told = False
        while True:
            try:
                return await ask()
            except DependencyUnavailableError as away:
                if not told:
                    self._deps.emit(StoreUnreachable("postgres", away.message))
                    told = True
                await self._deps.clock.sleep(self._retry_s)

    def _tell(self, send: Send, generation: int, recovered: bool) -> None:
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
    stored: CredentialSecrets,
    expires_in_s: float | None,
    *,
    refreshed: bool = False,
) -> FreshToken:
    connection = credential.connection
    return FreshToken(
        connection_id=connection.connection_id,
        key=connection.key,
        generation=generation,
        tokens=stored.tokens,
        expires_in_s=expires_in_s,
        account_id=connection.account_id or stored.tokens.account_id,
        refreshed=refreshed,
    )
