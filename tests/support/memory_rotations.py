"""Refreshes in flight in memory: the row that is mutex, intent and SENT mark, and what ends it (R5-R8)."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from fairlead.engine.ports import (
    Claim,
    EndpointPermit,
    EndpointRefusal,
    Intent,
    Json,
    PermitRequest,
    ReauthRequirement,
    SentMark,
    Settlement,
    SettleVerdict,
    UnknownOutcome,
)
from fairlead.policy.jobs.states import Resolution
from fairlead.testing._memory.database import MemoryStore, seconds, statement
from fairlead.testing._memory.token_rows import RotationRow, shifted
from tests.support.memory_endpoints import MemoryEndpointGate
from tests.support.memory_grants import (
    audit,
    await_grant,
    bury_refresh,
    heal,
    resume_after_grant,
    tell_needs_reauth,
)


class Rotations(MemoryStore):
    """The part of a credential store that is about refreshes in flight."""

    @statement
    def claim(self, intent: Intent, ask: PermitRequest) -> Claim | EndpointRefusal | None:
        epochs = list[int]()

        def claims() -> bool:
            epoch = self._claim(intent)
            if epoch is not None:
                epochs.append(epoch)
            return epoch is not None

        answer = MemoryEndpointGate(self.link).take(ask, claims)
        return Claim(epochs[0], answer) if isinstance(answer, EndpointPermit) else answer

    def _claim(self, intent: Intent) -> int | None:
        credential = self.database.tokens.credentials.get(intent.connection_id)
        if credential is None or credential.generation != intent.from_generation or not credential.usable:
            return None
        attempt, now = self.database.tokens.rotations.get(intent.connection_id), self.database.now
        if attempt is not None and not self._gives_way(attempt, intent):
            return None
        last_epoch = max(credential.settled_epoch, attempt.epoch if attempt else 0)
        epoch = self.database.tokens.next_epoch(now, last_epoch)
        self.database.tokens.rotations[intent.connection_id] = RotationRow(
            connection_id=intent.connection_id,
            attempt_id=intent.attempt_id,
            from_generation=intent.from_generation,
            epoch=epoch,
            session_id=intent.session_id,
            lease_until=now + seconds(intent.lease_s),
            started_at=now,
        )
        return epoch

    def _gives_way(self, attempt: RotationRow, intent: Intent) -> bool:
        """Time, or the end of an owner, takes over only what was never sent (R7)."""
        if attempt.from_generation < intent.from_generation:
            return True
        if attempt.phase != "intent":
            return False
        unsent = attempt.sent_at is None
        return attempt.attempt_id == intent.attempt_id or (
            unsent and self._is_free(attempt, intent.session_id)
        )

    def _is_free(self, attempt: RotationRow, session_id: UUID) -> bool:
        """True where its owner has had his time, is gone, or is the one who asks."""
        ran_out = attempt.lease_until < self.database.now
        return ran_out or attempt.session_id == session_id or not self.database.is_open(attempt.session_id)

    @statement
    def claim_replay(self, intent: Intent, replays: int) -> int | None:
        attempt, now = self.database.tokens.rotations.get(intent.connection_id), self.database.now
        if attempt is None or attempt.from_generation != intent.from_generation:
            return None
        if attempt.replays != replays:
            return None
        replaying = attempt.phase == "intent" and attempt.sent_at is not None
        if attempt.phase != "unknown" and not (replaying and self._is_free(attempt, intent.session_id)):
            return None
        attempt.attempt_id, attempt.session_id = intent.attempt_id, intent.session_id
        attempt.epoch, attempt.phase = self.database.tokens.next_epoch(now, attempt.epoch), "intent"
        attempt.lease_until = now + seconds(intent.lease_s)
        return attempt.epoch

    @statement
    def mark_sent(self, connection_id: UUID, attempt_id: UUID) -> SentMark | None:
        attempt = self._held(connection_id, attempt_id)
        credential = self.database.tokens.credentials.get(connection_id)
        if attempt is None or attempt.phase != "intent" or credential is None:
            return None
        if credential.generation != attempt.from_generation or not credential.usable:
            return None
        attempt.replays += attempt.sent_at is not None
        attempt.phase, attempt.started_at = "sent", self.database.now
        attempt.sent_at = attempt.sent_at or attempt.started_at
        return SentMark(attempt.sent_at, attempt.started_at)

    @statement
    def mark_late(self, connection_id: UUID, from_generation: int, left_at: datetime) -> int | None:
        tokens, earlier, last_epoch = self.database.tokens, False, 0
        attempt, row = tokens.rotations.get(connection_id), tokens.credentials.get(connection_id)
        if attempt is not None and attempt.from_generation == from_generation and attempt.phase != "intent":
            earlier, last_epoch = attempt.started_at <= left_at, attempt.epoch
            attempt.started_at = max(attempt.started_at, left_at)
        if (
            row is not None
            and row.generation == from_generation + 1
            and row.refreshed_at
            and row.last_sent_at
        ):
            earlier, last_epoch = row.refreshed_at <= row.last_sent_at <= left_at, row.settled_epoch
            row.last_sent_at = left_at if earlier else row.last_sent_at
        return tokens.next_epoch(self.database.now, last_epoch) if earlier else None

    @statement
    def release(self, connection_id: UUID, attempt_id: UUID) -> bool:
        attempt, now = self._held(connection_id, attempt_id), self.database.now
        if attempt is None:
            return False
        first = attempt.phase in ("sent", "unknown") and attempt.replays == 0
        if attempt.sent_at is None or first:
            del self.database.tokens.rotations[connection_id]
            credential = self.database.tokens.credentials[connection_id]
            same = credential.generation == attempt.from_generation and credential.state == "unknown"
            if attempt.phase == "unknown" and same:
                credential.become("active", None, now)
                credential.due_at = now
            return True
        if attempt.phase == "unknown":
            return False
        attempt.replays -= attempt.phase == "sent"
        attempt.phase, attempt.attempt_id = "unknown", self.database.ids.uuid7()
        return True

    @statement
    def settle(self, settlement: Settlement) -> SettleVerdict:
        row, now = self.database.tokens.credentials.get(settlement.connection_id), self.database.now
        if row is None or row.generation != settlement.from_generation or row.state == "revoked":
            return "superseded"
        if settlement.expected_sealed not in (None, row.sealed) or settlement.epoch <= row.settled_epoch:
            return "superseded"
        attempt = self.database.tokens.rotations.get(settlement.connection_id)
        if attempt is not None and self._goes_before(attempt, settlement):
            return "superseded"
        state_at, was = row.state_at, row.state
        row.become("active", None, state_at if was == "active" else now)
        row.generation, row.settled_epoch = row.generation + 1, settlement.epoch
        row.sealed, row.refreshable = settlement.sealed, settlement.refreshable
        row.live(settlement.lifetime, settlement.sent_at)
        row.refreshed_at, last_at = settlement.sent_at, settlement.sent_at
        if attempt is not None and attempt.from_generation == settlement.from_generation:
            last_at = max(last_at, attempt.started_at)
        row.last_sent_at = max(row.last_sent_at or last_at, last_at)
        if attempt is not None and attempt.from_generation < row.generation:
            del self.database.tokens.rotations[row.connection_id]
        connection = self.database.tokens.connections[row.connection_id]
        if settlement.account_id is not None:
            connection.account_id = settlement.account_id
            connection.change(now)
        if was != "active":
            resume_after_grant(self.database, connection)
        resolution, reason = Resolution.MANUAL_REFRESH, "the token was refreshed"
        heal(self.database, row.connection_id, resolution, by="fairlead", reason=reason)
        details: dict[str, Json] = {"generation": row.generation, "epoch": settlement.epoch}
        audit_id, actor = settlement.audit_id, settlement.actor
        audit(self.database, audit_id, "token.refreshed", actor, row.connection_id, details)
        return "settled"

    def _goes_before(self, attempt: RotationRow, settlement: Settlement) -> bool:
        """Whether the token was sent again since, and may be once more: that answer has the newer one."""
        if attempt.from_generation != settlement.from_generation or settlement.defer_s is None:
            return False
        if attempt.replays == 0 or attempt.epoch <= settlement.epoch or attempt.sent_at is None:
            return False
        return (self.database.now - attempt.sent_at).total_seconds() <= settlement.defer_s

    @statement
    def mark_unknown(self, unknown: UnknownOutcome) -> bool:
        attempt, now = self._held(unknown.connection_id, unknown.attempt_id), self.database.now
        if attempt is None or attempt.phase != "sent":
            return False
        attempt.phase, attempt.reason = "unknown", unknown.reason
        row = self.database.tokens.credentials[unknown.connection_id]
        if row.generation == attempt.from_generation and row.usable:
            row.become("unknown", unknown.reason, now)
            row.due_at = shifted(now, unknown.due_in_s)
        details: dict[str, Json] = {"generation": attempt.from_generation, "reason": unknown.reason}
        audit_id, act = unknown.audit_id, "token.outcome_unknown"
        audit(self.database, audit_id, act, "fairlead", row.connection_id, details)
        return True

    @statement
    def require_reauth(self, reauth_requirement: ReauthRequirement) -> bool:
        connection_id, attempt_id = reauth_requirement.connection_id, reauth_requirement.attempt_id
        if attempt_id is None:
            may = connection_id not in self.database.tokens.rotations
        else:  # it ends the rotation even where the credential has moved on
            may = self._held(connection_id, attempt_id) is not None
            if may:
                del self.database.tokens.rotations[connection_id]
        row = self.database.tokens.credentials.get(connection_id)
        if not may or row is None or row.generation != reauth_requirement.from_generation or not row.usable:
            return False
        row.become("needs_reauth", reauth_requirement.reason, self.database.now)
        row.due_at = None
        connection = self.database.tokens.connections[connection_id]
        bury_refresh(self.database, row, reauth_requirement)
        tell_needs_reauth(self.database, connection, reauth_requirement)
        await_grant(self.database, connection)
        details: dict[str, Json] = {"generation": row.generation, "reason": reauth_requirement.reason}
        audit_id, act = reauth_requirement.audit_id, "connection.needs_reauth"
        audit(self.database, audit_id, act, "fairlead", connection_id, details)
        return True

    def _held(self, connection_id: UUID, attempt_id: UUID) -> RotationRow | None:
        """The refresh in flight, if it is this one."""
        attempt = self.database.tokens.rotations.get(connection_id)
        return attempt if attempt is not None and attempt.attempt_id == attempt_id else None
