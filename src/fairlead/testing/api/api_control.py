"""The control API of a rude API: ``POST /_control/{operation}`` with a JSON object, answered with one.

    switch   the `Switches` to change; answers all of them     calm    {}: take them back
    lock     {"ids": [...]}                                    unlock  {"ids": [...]}
    ledger   {"account": name}, or {}: how many requests arrived, were admitted and refused, and the most in
             flight; with "arrivals": true each of them
    limits   {"account": name}: where its limits stand

It is for tests on 127.0.0.1: it tells the tokens that came and asks for no password.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from aiohttp import web
from pydantic import TypeAdapter

from fairlead.errors import FairleadError, InvalidConfigError
from fairlead.testing._kit.model import Model

if TYPE_CHECKING:
    from fairlead.testing.api.vendor_api import VendorApi

CONTROL = "/_control/{operation}"
_OBJECT = TypeAdapter(dict[str, object])
_JSON = TypeAdapter(object)


class _Ids(Model):
    ids: tuple[str, ...]


class _Account(Model):
    account: str


class _Which(Model):
    account: str | None = None
    arrivals: bool = False


class ApiControl:
    """Carries out control requests on *api*."""

    def __init__(self, api: VendorApi) -> None:
        self._api = api
        self._operations: Mapping[str, Callable[[dict[str, object]], object]] = {
            "switch": self._switch,
            "calm": self._calm,
            "lock": self._lock,
            "unlock": self._unlock,
            "ledger": self._ledger,
            "limits": self._limits,
        }

    async def answer(self, request: web.Request) -> web.Response:
        """One operation; a refusal is a 400 with the reason."""
        name = request.match_info["operation"]
        try:
            act = self._operations.get(name)
            if act is None:
                hint = f"one of {', '.join(self._operations)}"
                raise InvalidConfigError(f"test API: there is no operation {name!r}", hint=hint)
            told = act(_OBJECT.validate_json(await request.read() or b"{}"))
        except (FairleadError, ValueError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.Response(body=_JSON.dump_json(told), content_type="application/json")

    def _switch(self, told: dict[str, object]) -> object:
        return self._api.switch(**told).model_dump()

    def _calm(self, told: dict[str, object]) -> object:
        self._api.calm()
        return {}

    def _lock(self, told: dict[str, object]) -> object:
        self._api.lock(*_Ids.read(told, "lock").ids)
        return {}

    def _unlock(self, told: dict[str, object]) -> object:
        self._api.unlock(*_Ids.read(told, "unlock").ids)
        return {}

    def _ledger(self, told: dict[str, object]) -> object:
        which, ledger = _Which.read(told, "ledger"), self._api.ledger
        account = which.account
        counts: dict[str, object] = {
            "arrived": ledger.arrived(account),
            "admitted": ledger.admitted(account),
            "refused": ledger.refused(account),
            "in_flight": ledger.in_flight(account),
            "most_in_flight": ledger.most_in_flight(account),
        }
        if which.arrivals:
            counts["arrivals"] = [asdict(one) for one in ledger.of(account)]
        return counts

    def _limits(self, told: dict[str, object]) -> object:
        return self._api.limits(_Account.read(told, "limits").account)
