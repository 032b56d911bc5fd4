"""Puts the way of a call together: transport, pipeline, and the rules of each connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from fairlead.adapters.http.resolver import AddressPolicy
from fairlead.adapters.http.transport import AiohttpTransport
from fairlead.clock import Clock, Draw
from fairlead.engine.call.pipeline import Pipeline, Tokens
from fairlead.engine.call.progress import Manners
from fairlead.engine.gate.entrance import Entrance
from fairlead.engine.ports import Connection
from fairlead.events import Emit
from fairlead.policy.classify.rules import rules_of
from fairlead.policy.profile import Profile

_MOST = 50_000


class CallRooms:
    """Calls of one process."""

    def __init__(
        self,
        tokens: Tokens,
        entrance: Entrance,
        profile: Callable[[str, str | None], Profile],
        *,
        policy: AddressPolicy,
        clock: Clock,
        draw: Draw,
        emit: Emit,
    ) -> None:
        self._profile = profile
        self._known: dict[UUID, tuple[int, Manners]] = {}
        self.transport = AiohttpTransport(policy=policy)
        self.pipeline = Pipeline(
            tokens,
            entrance,
            self.transport,
            self.manners,
            clock=clock,
            epoch_s=time.time,
            draw=draw,
            emit=emit,
        )

    def manners(self, connection: Connection) -> Manners:
        """How calls of *connection* are made and judged; ConfigInvalid for settings that cannot be."""
        known = self._known.get(connection.connection_id)
        if known is not None and known[0] == connection.version:
            return known[1]
        profile = self._profile(connection.key.provider, connection.variant)
        made = Manners(rules_of(profile, connection.settings, tenant=connection.key.tenant), profile)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[connection.connection_id] = (connection.version, made)
        return made

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()
