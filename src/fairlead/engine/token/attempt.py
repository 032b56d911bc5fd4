"""What the steps of one exchange hand on."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from fairlead.engine.ports import Credential, EndpointAsk, EndpointPermit
from fairlead.engine.token.parts import AppCredential, Replay
from fairlead.engine.token.stored import Stored
from fairlead.policy.profile import Profile


@dataclass(slots=True)
class Attempt:
    """One send of one refresh. *recorded*: its permit is used, or the gate knows that it was not."""

    credential: Credential
    profile: Profile
    stored: Stored
    app: AppCredential
    ask: EndpointAsk
    permit: EndpointPermit
    rotation_id: UUID
    replay: Replay | None
    asked_s: float
    actor: str
    epoch: int = 0
    recorded: bool = False
