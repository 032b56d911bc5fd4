"""What the steps of one exchange hand on."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from fairlead.engine.ports import Credential, EndpointKey, EndpointLimits, EndpointPermit
from fairlead.engine.token.parts import AppCredential, Replay
from fairlead.engine.token.stored import Stored
from fairlead.policy.profile import Profile


@dataclass(frozen=True, slots=True)
class Attempt:
    """One send of one refresh."""

    credential: Credential
    profile: Profile
    stored: Stored
    app: AppCredential
    endpoint: EndpointKey
    limits: EndpointLimits
    permit: EndpointPermit
    rotation_id: UUID
    epoch: int
    replay: Replay | None
    asked_s: float
    actor: str
