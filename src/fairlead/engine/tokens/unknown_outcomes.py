"""Resolves sends of unknown outcome: the journal first, then the provider's replay policy. Spec: T5, R7, R12.

Nothing is sent here. A rotation left behind by its owner is settled from the journal of this host or marked
unknown; an unknown one waits, may be sent once more, or is given up, as the policy of its provider says.
Meanwhile the stored token is served for as long as it lasts.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from fairlead.engine.ports import (
    Credential,
    JournalEntry,
    JournalHead,
    ReauthRequirement,
    Rotation,
    UnknownOutcome,
)
from fairlead.engine.tokens.deps import (
    RefreshDeps,
    RefreshSettings,
    Replay,
    answer_context,
    error_of,
    names_of,
    profile_of,
)
from fairlead.engine.tokens.sealed_records import decode_answer
from fairlead.engine.tokens.send_history import is_newer
from fairlead.engine.tokens.settle import Send, Settler, defer_to_later_send_s
from fairlead.errors import (
    CredentialUnreadableError,
    DependencyUnavailableError,
    FairleadError,
    MasterKeyMissingError,
    OutcomeUnknownError,
    ReauthRequiredError,
)
from fairlead.events import NeedsReauth, ServiceFailed, TokenOutcomeUnknown
from fairlead.policy.tokens.outcome import Granted, classify_token_response
from fairlead.policy.tokens.parse import parse_token_response
from fairlead.policy.tokens.replay import GiveUp, ReplayLater, ReplayNow, replay_decision
from fairlead.policy.tokens.token import account_mismatch


@dataclass(frozen=True, slots=True)
class SendHistory:
    """How long ago a token was sent first and last, and how many of the sends were replays."""

    first_s: float
    last_s: float
    replays: int


@dataclass(frozen=True, slots=True)
class _SearchResult:
    """The result of a journal search: an entry was settled, or the newest one is *unusable*."""

    settled: bool = False
    unusable: JournalEntry | None = None


class UnknownOutcomes:
    """Resolves sends of unknown outcome, and requires re-authorisation for grants that are gone."""

    def __init__(self, deps: RefreshDeps, settings: RefreshSettings, settler: Settler) -> None:
        self._deps = deps
        self._settings = settings
        self._settler = settler

    async def recover(self, credential: Credential) -> None:
        """Settle the journalled response of a send without an owner, or mark its outcome unknown."""
        if not await self.from_journal(credential):
            rotation = _rotation(credential)
            reason = "the process that sent it is gone"
            await self.mark(credential, rotation.attempt_id, reason, _send_history(rotation))

    async def mark(
        self, credential: Credential, attempt_id: UUID, reason: str, history: SendHistory
    ) -> float | None:
        """Mark a sent rotation unknown; return the seconds until it can be resolved, None: at once."""
        decision = self._decide(credential, history)
        due_in_s = decision.delay_s if isinstance(decision, ReplayLater) else 0.0
        connection = credential.connection
        marked = await self._deps.store.mark_unknown(
            UnknownOutcome(
                connection_id=connection.connection_id,
                attempt_id=attempt_id,
                reason=reason,
                due_in_s=due_in_s,
                audit_id=self._deps.ids.uuid7(),
            )
        )
        if marked:
            self._deps.emit(
                TokenOutcomeUnknown(**names_of(connection), generation=credential.generation, reason=reason)
            )
        return due_in_s if due_in_s > 0 else None

    async def may_replay(self, credential: Credential, read_mono: float) -> Replay | None:
        """Return permission to resend the token of *credential*, read at *read_mono*; None: read it again.

        Raises:
            OutcomeUnknownError: A replay is allowed later.
            ReauthRequiredError: The grant is lost.
        """
        if await self.from_journal(credential):
            return None
        rotation = _rotation(credential)
        decision = await self._decide_or_raise(credential, _send_history(rotation))
        if decision is None:
            return None
        within_s = decision.within_s
        return Replay(rotation.replays, None if within_s is None else read_mono + within_s)

    async def _decide_or_raise(self, credential: Credential, history: SendHistory) -> ReplayNow | None:
        """Decide on a send without a response; None: read again.

        Raise OutcomeUnknownError or ReauthRequiredError.
        """
        decision = self._decide(credential, history)
        if isinstance(decision, ReplayNow):
            return decision
        if isinstance(decision, ReplayLater):
            message = "a refresh was sent and its response never arrived"
            raise error_of(OutcomeUnknownError, credential, message, retry_after_s=decision.delay_s)
        if not await self.require_reauth(credential, decision.reason, attempt_id=_held_by(credential)):
            return None
        message = "the response of a refresh was lost and the provider does not repeat it"
        raise error_of(ReauthRequiredError, credential, message, reason=decision.reason)

    def _decide(self, credential: Credential, history: SendHistory) -> ReplayNow | ReplayLater | GiveUp:
        profile = profile_of(self._deps, credential)
        if profile.replay is None:  # a static key was never sent anywhere
            return GiveUp()
        return replay_decision(
            profile.replay.policy,
            grace_s=profile.replay.grace_s,
            replay_at_expiry=profile.replay_at_expiry,
            age_since_sent_s=history.first_s,
            age_since_last_sent_s=history.last_s,
            request_deadline_s=self._settings.request_deadline_s,
            access_expires_in_s=credential.expires_in_s,
            replays_done=history.replays,
        )

    async def require_reauth(self, credential: Credential, reason: str, *, attempt_id: UUID | None) -> bool:
        """Set needs_reauth once, by compare-and-set; return False for a newer generation or another owner."""
        connection = credential.connection
        link = self._deps.reauth_link(connection.key, connection.connection_id)
        is_required = await self._deps.store.require_reauth(
            ReauthRequirement(
                connection_id=connection.connection_id,
                from_generation=credential.generation,
                attempt_id=attempt_id,
                reason=reason,
                notice_id=self._deps.ids.uuid7(),
                notice_args={
                    "connection_id": str(connection.connection_id),
                    "account": connection.key.account,
                    "reason": reason,
                    "link": link,
                },
                audit_id=self._deps.ids.uuid7(),
            )
        )
        if is_required:
            self._deps.emit(NeedsReauth(**names_of(connection), reason=reason, link=link))
        return is_required

    # ---- the journal

    async def from_journal(self, credential: Credential, *, defers: bool = True) -> bool:
        """Settle the entry of the stored generation in this host's journals; return whether that decided.

        With *defers*, an entry does not decide if the token was sent again since. Responses to another
        grant, and those older than the stored token, stay in the journal.
        """
        result = await self._settle_from_journal(credential, credential.generation, defers=defers)
        return result.settled

    async def may_start(self, credential: Credential) -> bool:
        """Return whether to send the stored token for the first time. False: look again.

        After a restore the database may not know that it was sent. If the journal has the response and it
        cannot be read, it is lost, and the replay policy decides.

        Raises:
            OutcomeUnknownError, ReauthRequiredError: The response is lost, and the token may not be sent
                again.
        """
        result = await self._settle_from_journal(credential, credential.generation)
        if result.settled or result.unusable is None:
            return not result.settled
        age_s = (credential.read_at - result.unusable.sent_at).total_seconds()
        try:
            return await self._decide_or_raise(credential, SendHistory(age_s, age_s, replays=0)) is not None
        except OutcomeUnknownError as wait:
            connection_id = credential.connection.connection_id
            await self._deps.store.postpone(connection_id, credential.generation, wait.retry_after_s)
            raise

    async def _settle_from_journal(
        self, credential: Credential, generation: int, *, defers: bool = True
    ) -> _SearchResult:
        """Settle the newest usable response to *generation* that is newer than the stored token."""
        unusable: dict[int, JournalEntry] = {}

        def fits(entry: JournalEntry) -> bool:
            return entry.epoch not in unusable and is_newer(credential, entry)

        connection_id = credential.connection.connection_id
        find = partial(self._deps.journal.find, newer_than=credential.settled_epoch)  # as in is_newer
        while (entry := await find(connection_id, generation, fits)) is not None:
            if defers and self._defers_to_later_send(credential, entry):
                return _SearchResult()
            if await self.settle_entry(credential, entry, defers=defers):
                return _SearchResult(settled=True)
            unusable[entry.epoch] = entry
        return _SearchResult(unusable=next(iter(unusable.values()), None))

    def _defers_to_later_send(self, credential: Credential, entry: JournalEntry) -> bool:
        """Return whether *entry* defers to a later send. The store decides the same way; see Settlement."""
        rotation, within_s = credential.rotation, defer_to_later_send_s(profile_of(self._deps, credential))
        if rotation is None or within_s is None or rotation.from_generation != entry.from_generation:
            return False
        is_later = rotation.replays > 0 and rotation.epoch > entry.epoch
        return is_later and (rotation.age_sent_s or 0.0) <= within_s

    async def settle_entry(self, credential: Credential, entry: JournalEntry, *, defers: bool = True) -> bool:
        """Publish a journalled response that the database lacks.

        Returns:
            True if that decided, so that the credential must be read again. False: it cannot be published, and
            stays in the journal.
        """
        secrets = await self._settler.open_secrets(credential)
        try:
            plain = await self._deps.vault.open(
                answer_context(credential, entry.from_generation), entry.sealed
            )
            status, headers, body = decode_answer(plain)
        except (MasterKeyMissingError, CredentialUnreadableError) as error:  # a restore removed its data key
            self._deps.emit(ServiceFailed("journal", f"{entry.tenant} {entry.provider}: {error}"))
            return False
        _key = await self._deps.vault.preflight(
            credential.connection.key.tenant
        )  # kept in memory: publishing seals
        outcome = classify_token_response(
            profile_of(self._deps, credential),
            parse_token_response(status, headers, body),
            lifetime_s=secrets.tokens.lifetime_s,
        )
        if not isinstance(outcome, Granted):
            return False
        if account_mismatch(credential.connection.account_id, outcome):
            return await self.require_reauth(credential, "account_mismatch", attempt_id=_held_by(credential))
        send = Send(
            credential=credential,
            attempt_id=entry.attempt_id,
            epoch=entry.epoch,
            sent_at=entry.sent_at,
            marked_at=entry.sent_at,
            asked_mono=self._deps.clock.monotonic(),
            marked_mono=self._deps.clock.monotonic(),
            actor="fairlead",
            defers=defers,
        )
        await self._settler.publish(send, secrets, outcome, recovered=True)
        return True

    async def replay_journal(self) -> int:
        """Settle responses in this host's journals that the database lacks; return how many it took.

        Takes over the files of dead processes first. Called at each start, and after a fail-over or a restore
        of the database.
        """
        await self._deps.journal.orphans()
        return await self.replay_all()

    async def replay_all(self) -> int:
        """Do the same as replay_journal for the files that this process owns."""
        settled = highest = 0
        async for page in self._deps.journal.heads():
            newest = max((head.epoch for head in page), default=0)
            if newest > highest:
                await self._deps.store.raise_epochs(newest)
                highest = newest
            # in parallel, so that reads of database and journals are batched
            done = await asyncio.gather(*(self._catch_up(head) for head in page), return_exceptions=True)
            for error in done:
                if isinstance(error, BaseException):
                    raise error
            settled += sum(count for count in done if isinstance(count, int))
        return settled

    async def _catch_up(self, head: JournalHead) -> int:
        """Settle one response after the other until that of *head* is stored; return how many.

        An error of one connection, such as a missing profile or key, affects no other connection.
        """
        credential = await self._deps.store.read_id(head.connection_id)
        settled, generation = 0, 0 if credential is None else max(0, credential.generation - 1)
        try:
            while (
                credential is not None and is_newer(credential, head) and generation <= head.from_generation
            ):
                result = await self._settle_from_journal(credential, generation)
                generation += 1
                if result.settled:
                    current = await self._deps.store.read_id(head.connection_id)
                    settled += current is not None and current.generation > credential.generation
                    credential = current
        except DependencyUnavailableError:
            raise
        except FairleadError as error:
            assert credential is not None  # otherwise nothing was read
            key = credential.connection.key
            where = f"{key.tenant} {key.provider} {key.account}, connection {head.connection_id}"
            self._deps.emit(ServiceFailed("journal", f"{where}: {error}"))
        if credential is None or not is_newer(credential, head):
            self._deps.journal.settled(head.connection_id, head.epoch, just_now=False)
        return settled


def _held_by(credential: Credential) -> UUID | None:
    return credential.rotation.attempt_id if credential.rotation else None


def _rotation(credential: Credential) -> Rotation:
    if credential.rotation is None:
        raise RuntimeError("the plan resolves a rotation that does not exist")
    return credential.rotation


def _send_history(rotation: Rotation) -> SendHistory:
    return SendHistory(rotation.age_sent_s or 0.0, rotation.age_last_sent_s or 0.0, rotation.replays)
