"""Sends without an answer: the journal first, then the provider's replay policy (T5, R7, R12).

Nobody sends here. A rotation left behind by its owner is settled from the journal of this host or marked
unknown; an unknown one waits, may be sent once more, or is given up, as the policy of its provider says.
Meanwhile the stored token is served for as long as it lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from fairlead.engine.ports import Condemnation, Credential, JournalEntry, Rotation, Unknown
from fairlead.engine.token.parts import RefreshSettings, Replay, Rooms, answer_context, profile_of
from fairlead.engine.token.settle import Send, Settler, give_way_s, is_of_grant
from fairlead.engine.token.stored import decode_answer
from fairlead.errors import DependencyUnavailable, FairleadError, OutcomeUnknown, ReauthRequired
from fairlead.events import NeedsReauth, ServiceFailed, TokenOutcomeUnknown
from fairlead.policy.token import account_mismatch
from fairlead.policy.token_outcome import Granted, classify_answer
from fairlead.policy.token_parse import parse_answer
from fairlead.policy.token_replay import GiveUp, ReplayNow, replay_decision
from fairlead.policy.token_replay import Wait as WaitUntil

JOURNAL_KEPT_S = 86_400.0
"""How far back answers are settled again after a fail-over (R11)."""
PAGE = 256


@dataclass(frozen=True, slots=True)
class Sends:
    """How long ago a token was sent first and last, and how many of the sends were replays."""

    first_s: float
    last_s: float
    replays: int


class UnknownOutcomes:
    """Judges sends of unknown outcome and condemns grants that are gone."""

    def __init__(self, rooms: Rooms, settings: RefreshSettings, settler: Settler) -> None:
        self._rooms = rooms
        self._settings = settings
        self._settler = settler

    async def recover(self, credential: Credential) -> None:
        """Settle the journaled answer of a send whose owner is gone, or mark it unknown; then look again."""
        if not await self.from_journal(credential):
            rotation = _rotation(credential)
            reason = "the process that sent it is gone"
            await self.mark(credential, rotation.rotation_id, reason, _sends(rotation))

    async def mark(
        self, credential: Credential, rotation_id: UUID, reason: str, sends: Sends
    ) -> float | None:
        """Mark a sent rotation unknown; returns seconds until something can be done, None: at once."""
        decision = self._decide(credential, sends)
        due_in_s = decision.delay_s if isinstance(decision, WaitUntil) else 0.0
        connection = credential.connection
        marked = await self._rooms.store.mark_unknown(
            Unknown(
                connection_id=connection.connection_id,
                rotation_id=rotation_id,
                reason=reason,
                due_in_s=due_in_s,
                audit_id=self._rooms.ids.uuid7(),
            )
        )
        if marked:
            self._rooms.emit(
                TokenOutcomeUnknown(
                    tenant=connection.key.tenant,
                    provider=connection.key.provider,
                    bucket=connection.key.bucket,
                    connection_id=connection.connection_id,
                    generation=credential.generation,
                    reason=reason,
                )
            )
        return due_in_s if due_in_s > 0 else None

    async def may_replay(self, credential: Credential, read_s: float) -> Replay | None:
        """Leave to send once more what was read at *read_s* (monotonic). None: look again.

        Raises OutcomeUnknown (wait) or ReauthRequired (gone).
        """
        if await self.from_journal(credential):
            return None
        rotation = _rotation(credential)
        decision = self._decide(credential, _sends(rotation))
        if isinstance(decision, ReplayNow):
            within_s = decision.within_s
            return Replay(rotation.replays, None if within_s is None else read_s + within_s)
        key = credential.connection.key
        if isinstance(decision, WaitUntil):
            raise OutcomeUnknown(
                "a refresh was sent and its answer never came",
                tenant=key.tenant,
                provider=key.provider,
                retry_after_s=decision.delay_s,
            )
        if not await self.condemn(credential, decision.reason, rotation_id=rotation.rotation_id):
            return None
        raise ReauthRequired(
            "the answer of a refresh was lost and the provider does not repeat it",
            tenant=key.tenant,
            provider=key.provider,
            reason=decision.reason,
        )

    def _decide(self, credential: Credential, sends: Sends) -> ReplayNow | WaitUntil | GiveUp:
        profile = profile_of(self._rooms, credential)
        if profile.replay is None:  # a static key was never sent anywhere
            return GiveUp()
        return replay_decision(
            profile.replay.policy,
            grace_s=profile.replay.grace_s,
            replay_at_expiry=profile.replay_at_expiry,
            age_since_sent_s=sends.first_s,
            age_since_last_sent_s=sends.last_s,
            request_deadline_s=self._settings.request_deadline_s,
            access_expires_in_s=credential.expires_in_s,
            replays_done=sends.replays,
        )

    async def condemn(self, credential: Credential, reason: str, *, rotation_id: UUID | None) -> bool:
        """needs_reauth, once, by compare-and-set; False if a newer generation or another owner was there."""
        connection = credential.connection
        link = self._rooms.reauth_link(connection.key, connection.connection_id)
        condemned = await self._rooms.store.condemn(
            Condemnation(
                connection_id=connection.connection_id,
                from_generation=credential.generation,
                rotation_id=rotation_id,
                reason=reason,
                notice_id=self._rooms.ids.uuid7(),
                notice_args={
                    "connection_id": str(connection.connection_id),
                    "bucket": connection.key.bucket,
                    "reason": reason,
                    "link": link,
                },
                audit_id=self._rooms.ids.uuid7(),
            )
        )
        if condemned:
            self._rooms.emit(
                NeedsReauth(
                    tenant=connection.key.tenant,
                    provider=connection.key.provider,
                    bucket=connection.key.bucket,
                    connection_id=connection.connection_id,
                    reason=reason,
                    link=link,
                )
            )
        return condemned

    # ---- the journal

    async def from_journal(self, credential: Credential, *, yields: bool = True) -> bool:
        """Settle what this host's journals hold for the stored generation; False if that decides nothing.

        Nor does it where it *yields*: the token was sent again since, and may be once more. What was got with
        another grant stays where it is.
        """
        entry = await self._rooms.journal.find(
            credential.connection.connection_id, credential.generation, partial(_is_of_grant, credential)
        )
        if entry is None or (yields and self._gives_way(credential, entry)):
            return False
        return await self.settle_entry(credential, entry, yields=yields)

    def _gives_way(self, credential: Credential, entry: JournalEntry) -> bool:
        """As the store judges it, too; see Settlement."""
        rotation, within_s = credential.rotation, give_way_s(profile_of(self._rooms, credential))
        if rotation is None or within_s is None or rotation.from_generation != entry.from_generation:
            return False
        is_later = rotation.replays > 0 and rotation.epoch > entry.epoch
        return is_later and (rotation.age_sent_s or 0.0) <= within_s

    async def settle_entry(self, credential: Credential, entry: JournalEntry, *, yields: bool = True) -> bool:
        """Publish a journaled answer, or keep it where it cannot be published (R12). True: look again."""
        context = answer_context(credential, entry.from_generation)
        status, headers, body = decode_answer(await self._rooms.vault.open(context, entry.sealed))
        _key = await self._rooms.vault.preflight(credential.connection.key.tenant)  # publishing seals
        stored = await self._settler.stored(credential)
        outcome = classify_answer(profile_of(self._rooms, credential), parse_answer(status, headers, body))
        send = Send(
            credential=credential,
            rotation_id=entry.rotation_id,
            epoch=entry.epoch,
            sent_at=entry.sent_at,
            marked_at=entry.sent_at,
            asked_s=self._rooms.clock.monotonic(),
            marked_s=self._rooms.clock.monotonic(),
            actor="fairlead",
            yields=yields,
        )
        if not isinstance(outcome, Granted):
            await self._settler.withhold(send, entry.sealed, "unreadable")
            return False
        if account_mismatch(credential.connection.account_id, outcome):
            await self._settler.withhold(send, entry.sealed, "account_mismatch")
            held = credential.rotation.rotation_id if credential.rotation else None
            return await self.condemn(credential, "account_mismatch", rotation_id=held)
        await self._settler.publish(send, stored, outcome, recovered=True)
        return True

    async def replay_journal(self) -> int:
        """At start: settle what dead processes of this host had journaled; how many came good."""
        return sum([await self._replay(entry) for entry in await self._rooms.journal.orphans()])

    async def replay_all(self) -> int:
        """After a fail-over: settle again whatever the database forgot; how many it took."""
        taken, page = 0, list[JournalEntry]()
        async for entry in self._rooms.journal.all_entries(JOURNAL_KEPT_S):
            page.append(entry)
            if len(page) == PAGE:
                taken += await self._replay_page(page)
                page = []
        return taken + await self._replay_page(page)

    async def _replay_page(self, page: Sequence[JournalEntry]) -> int:
        """What the database still knows is passed over: a day of answers is read in few round trips."""
        ids = list({entry.connection_id for entry in page})
        read = await asyncio.gather(*(self._rooms.store.read_id(connection_id) for connection_id in ids))
        stored = dict(zip(ids, read, strict=True))
        taken = 0
        for entry in page:
            if _may_be_newer(stored[entry.connection_id], entry):
                taken += await self._replay(entry)
            else:
                self._rooms.journal.settled(entry.rotation_id, entry.epoch)
        return taken

    async def _replay(self, entry: JournalEntry) -> bool:
        """One entry; what is wrong with it (a profile or key that is gone) concerns no other."""
        try:
            credential = await self._rooms.store.read_id(entry.connection_id)
            if credential is not None and self._gives_way(credential, entry):
                return False
            if credential is not None and _is_newer(credential, entry):
                return await self.settle_entry(credential, entry)
        except DependencyUnavailable:
            raise
        except FairleadError as error:
            self._rooms.emit(ServiceFailed("journal", f"{entry.tenant} {entry.provider}: {error}"))
            return False
        self._rooms.journal.settled(entry.rotation_id, entry.epoch)
        return False


def _is_newer(credential: Credential, entry: JournalEntry) -> bool:
    """Whether *entry* holds a newer token than what is stored.

    It does where it was got with the stored one; and where the stored one came of an earlier send than its
    own: of two answers to one token, which lay on two hosts, the later replaces the first. What was got with
    another grant is none.
    """
    if not _is_of_grant(credential, entry):
        return False
    if credential.generation == entry.from_generation:
        return True
    sent_later = 0 < credential.settled_epoch < entry.epoch
    return credential.generation == entry.from_generation + 1 and sent_later


def _may_be_newer(credential: Credential | None, entry: JournalEntry) -> bool:
    """Whether *entry* may hold a newer token, once those before it are settled."""
    if credential is None:
        return False
    if credential.generation < entry.from_generation:
        return _is_of_grant(credential, entry)
    return _is_newer(credential, entry)


def _is_of_grant(credential: Credential, entry: JournalEntry) -> bool:
    return is_of_grant(credential, entry.rotation_id, entry.sent_at)


def _rotation(credential: Credential) -> Rotation:
    if credential.rotation is None:
        raise RuntimeError("the plan asked to judge a rotation that is not there")
    return credential.rotation


def _sends(rotation: Rotation) -> Sends:
    return Sends(rotation.age_sent_s or 0.0, rotation.age_last_sent_s or 0.0, rotation.replays)
