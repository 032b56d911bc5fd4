"""Wires calls: the HTTP clients of a process, the pipeline, and the configuration of each connection's calls."""

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
from fairlead.engine.ports import CallTransport, Connection
from fairlead.events import Emit
from fairlead.policy.calls.classify.rules import Rules, rules_of
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.connection_calls import call_settings_of, resolve_allowed_origins
from fairlead.policy.providers.profile import Profile

_MAX_ENTRIES = 50_000
_SETTING_NAMES = sorted(CallSettings.model_fields)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class HttpClients:
    """The HTTP clients of one process. Open them first and close them last, because late responses need them."""

    def __init__(
        self, settings: Settings, heartbeat: Heartbeat | None, *, clock: Clock, draw: Draw, emit: Emit
    ) -> None:
        policy, trust_env = settings_mapping.address_policy(settings), settings.http.trust_env
        self.watch = watch = ProcessWatch(
            self._reaches, has_spare_descriptors, clock=clock, draw=draw, emit=emit
        )
        if heartbeat is not None:
            heartbeat.report_trouble(watch.trouble)
        self.tokens = AiohttpTokenTransport(
            settings_mapping.token_transport(settings), policy=policy, trust_env=trust_env, dials=watch
        )
        self.calls = AiohttpTransport(
            settings_mapping.call_transport(settings), policy=policy, trust_env=trust_env, dials=watch
        )
        self.webhook: AiohttpWebhookSender | None = None
        if (receiver := settings_mapping.webhook(settings)) is not None:
            self.webhook = AiohttpWebhookSender(
                *receiver,
                settings_mapping.webhook_transport(settings),
                policy=policy,
                trust_env=trust_env,
                dials=watch,
            )

    async def _reaches(self, destination: str) -> bool:
        return await self.calls.reaches(destination)

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        async with AsyncExitStack() as stack:
            for client in (self.tokens, self.calls, self.webhook):
                if client is not None:
                    stack.push_async_callback(client.close)
            stack.push_async_callback(self.watch.close)


class CallComponents:
    """The pipeline of the calls of one process, and its bulk operations."""

    def __init__(
        self,
        tokens: TokenSource,
        gate: GateComponents,
        profile: Callable[[str, str | None], Profile],
        *,
        transport: CallTransport,
        clock: Clock,
        epoch_s: Callable[[], float],
        draw: Draw,
        emit: Emit,
    ) -> None:
        self._profile = profile
        self._configs: dict[UUID, tuple[int, CallConfig]] = {}  # with the version of the connection
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
        """Return the configuration with which calls of *connection* are made and classified.

        Raises:
            InvalidConfigError: The connection's settings are not valid.
        """
        cached = self._configs.get(connection.connection_id)
        if cached is not None and cached[0] == connection.version:
            return cached[1]
        profile = self._profile(connection.key.provider, connection.variant)
        rules, settings = self._rules(connection, profile)
        origins = resolve_allowed_origins(profile, connection.endpoint, settings.hosts)
        config = CallConfig(rules, profile, settings, origins)
        _cache(self._configs, connection.connection_id, (connection.version, config))
        return config

    def _rules(self, connection: Connection, profile: Profile) -> tuple[Rules, CallSettings]:
        """Return the rules of *connection*. Connections with equal settings, as most have, share them."""
        changed = {name: connection.settings[name] for name in _SETTING_NAMES if name in connection.settings}
        key = (connection.key.provider, connection.variant, json.dumps(changed, sort_keys=True))
        shared = self._shared.get(key)
        if shared is None:
            tenant = connection.key.tenant
            shared = (
                rules_of(profile, changed, tenant=tenant),
                call_settings_of(profile, changed, tenant=tenant),
            )
            _cache(self._shared, key, shared)
        return shared


def _cache(entries: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Store an entry; clear a full cache first."""
    if len(entries) >= _MAX_ENTRIES:
        entries.clear()
    entries[key] = value
