"""Puts the way of a call together: what goes out by HTTP, the pipeline, and the rules of each connection."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TypeVar
from uuid import UUID

from fairlead._core.clock import Clock, Draw
from fairlead.adapters.http import AiohttpTokenTransport, AiohttpTransport
from fairlead.adapters.http.webhook import AiohttpWebhookSender
from fairlead.adapters.local.process_identity import has_spare_descriptors
from fairlead.assembly import settings_mapping
from fairlead.assembly.gate import GateComponents
from fairlead.assembly.settings import Settings
from fairlead.engine.base.process_watch import ProcessWatch
from fairlead.engine.calls.bulk_operation import BulkRuns
from fairlead.engine.calls.call_state import CallConfig
from fairlead.engine.calls.pipeline import Pipeline
from fairlead.engine.calls.request import TokenSource
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.ports import Connection, Transport
from fairlead.events import Emit
from fairlead.policy.calls.classify.rules import Rules, rules_of
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.connection_calls import call_settings_of, origins_for
from fairlead.policy.providers.profile import Profile

_MOST = 50_000
_TOLD = sorted(CallSettings.model_fields)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class HttpClients:
    """All that leaves this process by HTTP. Opened first and closed last: what lands late needs them."""

    def __init__(
        self, settings: Settings, heartbeat: Heartbeat | None, *, clock: Clock, draw: Draw, emit: Emit
    ) -> None:
        policy, proxied = settings_mapping.address_policy(settings), settings.http.trust_env
        self.watch = watch = ProcessWatch(
            self._reaches, has_spare_descriptors, clock=clock, draw=draw, emit=emit
        )
        if heartbeat is not None:
            heartbeat.report(watch.trouble)
        self.tokens = AiohttpTokenTransport(
            settings_mapping.token_transport(settings), policy=policy, trust_env=proxied, dials=watch
        )
        bounds = settings_mapping.call_transport(settings)
        self.calls = AiohttpTransport(bounds, policy=policy, trust_env=proxied, dials=watch)
        self.notices: AiohttpWebhookSender | None = None
        if (receiver := settings_mapping.webhook(settings)) is not None:
            self.notices = AiohttpWebhookSender(
                *receiver,
                settings_mapping.webhook_transport(settings),
                policy=policy,
                trust_env=proxied,
                dials=watch,
            )

    async def _reaches(self, place: str) -> bool:
        return await self.calls.reaches(place)

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        async with AsyncExitStack() as stack:
            for wire in (self.tokens, self.calls, self.notices):
                if wire is not None:
                    stack.push_async_callback(wire.close)
            stack.push_async_callback(self.watch.close)


class CallComponents:
    """Calls of one process."""

    def __init__(
        self,
        tokens: TokenSource,
        gate: GateComponents,
        profile: Callable[[str, str | None], Profile],
        *,
        transport: Transport,
        clock: Clock,
        epoch_s: Callable[[], float],
        draw: Draw,
        emit: Emit,
    ) -> None:
        self._profile = profile
        self._known: dict[UUID, tuple[int, CallConfig]] = {}
        self._shared: dict[tuple[str, str | None, str], tuple[Rules, CallSettings]] = {}
        self.pipeline = Pipeline(
            tokens,
            gate.call_admitter,
            transport,
            self.config_for,
            clock=clock,
            epoch_s=epoch_s,
            draw=draw,
            emit=emit,
        )
        self.bulks = BulkRuns(gate.bulks, transport, clock=clock, draw=draw)

    def config_for(self, connection: Connection) -> CallConfig:
        """How calls of *connection* are made and judged; InvalidConfigError for settings that cannot be."""
        known = self._known.get(connection.connection_id)
        if known is not None and known[0] == connection.version:
            return known[1]
        profile = self._profile(connection.key.provider, connection.variant)
        rules, settings = self._rules(connection, profile)
        origins = origins_for(profile, connection.endpoint, settings.hosts)
        made = CallConfig(rules, profile, settings, origins)
        _keep(self._known, connection.connection_id, (connection.version, made))
        return made

    def _rules(self, connection: Connection, profile: Profile) -> tuple[Rules, CallSettings]:
        """The same for all connections that say the same: most say nothing of their calls."""
        told = {name: connection.settings[name] for name in _TOLD if name in connection.settings}
        place = (connection.key.provider, connection.variant, json.dumps(told, sort_keys=True))
        known = self._shared.get(place)
        if known is None:
            tenant = connection.key.tenant
            known = rules_of(profile, told, tenant=tenant), call_settings_of(profile, told, tenant=tenant)
            _keep(self._shared, place, known)
        return known


def _keep(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Beside what is known; where there is too much of it, in its stead."""
    if len(known) >= _MOST:
        known.clear()
    known[key] = value
