"""The control API of the issuer.

register        {"connections": [...]}                  new or renewed grants, with their tokens
provider        {"name": ..., "policy": ...}            add a provider, or change one
rule            a Rule; returns its number              put a quirk in force
unrule, clear   {"rule": number} · {}                   remove one rule, or all
revoke          {"provider", "connection", "reason"}    withdraw the customer's grant
invalid_client  {"client_id", "on"}                     refuse (or accept again) this client
hold            {"point", "provider", "connection", "times"}; returns its number
reached         {"hold", "count", "timeout_s"}          wait until requests are parked there
release         {"hold"}                                let them continue
grant, grants   {"provider", "connection"} · {}         the state of connections
flush           {}                                      write all waiting lines of the ledger
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import Field

from fairlead.testing._kit.control import ControlApi
from fairlead.testing._kit.model import Model
from fairlead.testing._kit.request_barrier import Barriers
from fairlead.testing.issuer.config import ConnectionConfig, ConnectionName, ProviderConfig, ProviderName
from fairlead.testing.issuer.quirks import Rule
from fairlead.testing.issuer.state import IssuerState


class _Connections(Model):
    connections: tuple[ConnectionConfig, ...]


class _Connection(Model):
    provider: ProviderName
    connection: ConnectionName
    reason: str = "revoked"


class _RuleNumber(Model):
    rule: int


class _Client(Model):
    client_id: str
    on: bool = True


class _Hold(Model):
    point: str
    provider: str | None = None
    connection: str | None = None
    times: int = Field(1, ge=1)


class _HoldNumber(Model):
    hold: int
    count: int = Field(1, ge=1)
    timeout_s: float = Field(30.0, gt=0, le=600)


def issuer_control(state: IssuerState, barriers: Barriers, flush: Callable[[], None]) -> ControlApi:
    """Return the operations on *state*, *barriers* and the ledger, which *flush* writes."""

    def register(data: _Connections) -> object:
        return {"grants": [asdict(state.register(connection)) for connection in data.connections]}

    def hold(data: _Hold) -> object:
        number, _ = barriers.hold(data.point, data.provider, data.connection, data.times)
        return {"hold": number}

    return ControlApi(
        "test issuer",
        {
            "register": (_Connections, register),
            "provider": (None, lambda data: _add_provider(state, data)),
            "rule": (Rule, lambda rule: {"rule": state.rules.add(rule, state.clock.monotonic())}),
            "unrule": (_RuleNumber, lambda data: state.rules.remove(data.rule)),
            "clear": (None, lambda _: state.rules.clear()),
            "revoke": (_Connection, lambda data: state.revoke(data.provider, data.connection, data.reason)),
            "invalid_client": (_Client, lambda data: state.refuse_client(data.client_id, data.on)),
            "hold": (_Hold, hold),
            "reached": (_HoldNumber, lambda data: _wait_reached(barriers, data)),
            "release": (_HoldNumber, lambda data: barriers.get(data.hold).release()),
            "grant": (
                _Connection,
                lambda data: {"grant": asdict(state.grant(data.provider, data.connection))},
            ),
            "grants": (None, lambda _: {"grants": [asdict(grant) for grant in state.grants()]}),
            "flush": (None, lambda _: flush()),
        },
    )


def _add_provider(state: IssuerState, data: Mapping[str, Any]) -> None:
    fields = dict(data)
    name = str(fields.pop("name", ""))
    state.play(name, ProviderConfig.read(fields, f"provider {name!r}"))


async def _wait_reached(barriers: Barriers, data: _HoldNumber) -> object:
    try:
        async with asyncio.timeout(data.timeout_s):
            await barriers.get(data.hold).reached(data.count)
    except TimeoutError:
        return {"reached": False}
    return {"reached": True}
