"""One attempt to refresh a credential, and what its sender must know to interpret the response."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from fairlead.engine.ports import Claim, Credential, PermitRequest
from fairlead.engine.tokens.deps import Replay
from fairlead.engine.tokens.sealed_records import CredentialSecrets
from fairlead.engine.tokens.settle import Send
from fairlead.engine.tokens.unknown_outcomes import SendHistory
from fairlead.policy.providers.profile import Profile


@dataclass(slots=True)
class RefreshAttempt:
    """One send of one refresh.

    Attributes:
        asked_mono: When the caller asked. The lease is counted from then.
        recorded: Whether its permit was used, or returned to the gate.
        issuer_s: The issuer's Unix time that this request was signed with, if not the database's.
    """

    credential: Credential
    profile: Profile
    secrets: CredentialSecrets
    permit_request: PermitRequest
    claim: Claim
    attempt_id: UUID
    replay: Replay | None
    asked_mono: float
    actor: str
    recorded: bool = False
    issuer_s: int | None = None

    @property
    def is_repeatable(self) -> bool:
        """Whether the provider repeats its response, so that a lost one needs no record."""
        replay = self.profile.replay
        return replay is not None and replay.policy in ("stable", "assertion")

    def history(self, send: Send, now_mono: float) -> SendHistory:
        """Return when the token was sent first and last, counting *send*."""
        rotation, last_s = self.credential.rotation, now_mono - send.marked_mono
        if self.replay is None or rotation is None or rotation.age_sent_s is None:
            return SendHistory(last_s, last_s, replays=0)
        first_s = rotation.age_sent_s + now_mono - self.asked_mono
        return SendHistory(first_s, last_s, self.replay.replays + 1)
