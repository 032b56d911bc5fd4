"""The control API: ``POST /_control/{operation}`` with a JSON object, answered with a JSON object.

    register        {"connections": [...]}                  new or renewed grants, with their tokens
    provider        {"name": ..., "policy": ...}            play one more provider, or change one
    rule            a Rule; answers its number              be rude from now on
    unrule, clear   {"rule": number} · {}                   be less rude, be polite
    revoke          {"provider", "connection", "reason"}    the customer withdraws the grant
    invalid_client  {"client_id", "on"}                     refuse (or stop refusing) this client
    hold            {"point", "provider", "connection", "times"}; answers its number
    reached         {"hold", "count", "timeout_s"}          wait until requests are parked there
    release         {"hold"}                                let them go on
    grant, grants   {"provider", "connection"} · {}         how connections stand
    flush           {}                                      the ledger file is complete up to here

It is for tests on 127.0.0.1: it hands out tokens and asks for no password.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from pydantic import Field

from fairlead.errors import FairleadError, InvalidInputError
from fairlead.testing._kit.model import Model
from fairlead.testing._kit.request_barrier import Hold, Hook
from fairlead.testing.issuer.config import ConnectionConfig, ConnectionName, ProviderConfig, ProviderName
from fairlead.testing.issuer.quirks import Rule
from fairlead.testing.issuer.state import IssuerState
from fairlead.testing.issuer.wire import WireResponse

Result = dict[str, object]


class _Register(Model):
    connections: tuple[ConnectionConfig, ...]


class _Which(Model):
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


class IssuerControl:
    """Carries out control requests on *world*; *hooks* is the list that requests pass."""

    def __init__(self, world: IssuerState, hooks: list[Hook], flush: Callable[[], None]) -> None:
        self._world, self._hooks, self._flush = world, hooks, flush
        self._holds: dict[int, Hold] = {}
        self._operations: dict[str, Callable[[object], Awaitable[Result]]] = {
            "register": self._register,
            "provider": self._provider,
            "rule": self._rule,
            "unrule": self._unrule,
            "clear": self._clear,
            "revoke": self._revoke,
            "invalid_client": self._invalid_client,
            "hold": self._hold,
            "reached": self._reached,
            "release": self._release,
            "grant": self._grant,
            "grants": self._grants,
            "flush": self._flush_ledger,
        }

    async def answer(self, operation: str, body: bytes) -> WireResponse:
        """The answer to one control request; a refusal is a 400 with the reason."""
        try:
            run = self._operations.get(operation)
            if run is None:
                known = ", ".join(self._operations)
                raise InvalidInputError(f"test issuer: no control {operation!r}", hint=f"one of {known}")
            try:
                data = json.loads(body or b"{}")
            except ValueError:
                raise InvalidInputError(
                    "test issuer: the control body is no JSON", hint="send an object"
                ) from None
            return WireResponse(200, json.dumps(await run(data)).encode())
        except FairleadError as error:
            return WireResponse(400, json.dumps({"error": str(error)}).encode())

    # ---- called in process too -------------------------------------------------------------------

    def hold(self, point: str, provider: str | None, connection: str | None, times: int) -> tuple[int, Hold]:
        """A new hold in force, and its number."""
        hold = Hold(self._hooks, point, provider, connection, times)
        number = len(self._holds) + 1
        self._holds[number] = hold
        return number, hold

    def release_all(self) -> None:
        """Let every parked request go on; the issuer stops."""
        for hold in self._holds.values():
            hold.release()

    # ---- operations ------------------------------------------------------------------------------

    async def _register(self, data: object) -> Result:
        wanted = _Register.read(data, "register")
        return {"grants": [asdict(self._world.register(one)) for one in wanted.connections]}

    async def _provider(self, data: object) -> Result:
        fields = dict(data) if isinstance(data, dict) else {}
        name = str(fields.pop("name", ""))
        self._world.play(name, ProviderConfig.read(fields, f"provider {name!r}"))
        return {}

    async def _rule(self, data: object) -> Result:
        rule = Rule.read(data, "rule")
        return {"rule": self._world.rules.add(rule, self._world.clock.monotonic())}

    async def _unrule(self, data: object) -> Result:
        self._world.rules.remove(_RuleNumber.read(data, "unrule").rule)
        return {}

    async def _clear(self, _: object) -> Result:
        self._world.rules.clear()
        return {}

    async def _revoke(self, data: object) -> Result:
        which = _Which.read(data, "revoke")
        self._world.revoke(which.provider, which.connection, which.reason)
        return {}

    async def _invalid_client(self, data: object) -> Result:
        client = _Client.read(data, "invalid_client")
        self._world.refuse_client(client.client_id, client.on)
        return {}

    async def _hold(self, data: object) -> Result:
        wanted = _Hold.read(data, "hold")
        number, _ = self.hold(wanted.point, wanted.provider, wanted.connection, wanted.times)
        return {"hold": number}

    async def _reached(self, data: object) -> Result:
        wanted = _HoldNumber.read(data, "reached")
        try:
            async with asyncio.timeout(wanted.timeout_s):
                await self._held(wanted.hold).reached(wanted.count)
        except TimeoutError:
            return {"reached": False}
        return {"reached": True}

    async def _release(self, data: object) -> Result:
        self._held(_HoldNumber.read(data, "release").hold).release()
        return {}

    async def _grant(self, data: object) -> Result:
        which = _Which.read(data, "grant")
        return {"grant": asdict(self._world.grant(which.provider, which.connection))}

    async def _grants(self, _: object) -> Result:
        return {"grants": [asdict(grant) for grant in self._world.grants()]}

    async def _flush_ledger(self, _: object) -> Result:
        self._flush()
        return {}

    def _held(self, number: int) -> Hold:
        hold = self._holds.get(number)
        if hold is None:
            raise InvalidInputError(
                f"test issuer: there is no hold {number}", hint="make one with hold first"
            )
        return hold
