"""The control API of the test servers: ``POST /_control/{operation}`` with a JSON object, answered with one.

It serves tests on 127.0.0.1: it reveals tokens and asks for no password.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter

from fairlead.errors import FairleadError, InvalidInputError
from fairlead.testing._kit.model import Model

Operation = tuple[type[Model] | None, Callable[[Any], object]]
"""The model of its data (None: the JSON object itself), and the function that returns its result or an awaitable."""

_OBJECT = TypeAdapter(dict[str, Any])
_ANY = TypeAdapter(object)


class ControlApi:
    """Named operations on a server. An operation that returns None is answered with an empty object."""

    def __init__(self, label: str, operations: Mapping[str, Operation]) -> None:
        self._label = label
        self._operations = operations

    async def handle(self, name: str, body: bytes) -> tuple[int, bytes]:
        """Run one operation and return HTTP status and JSON body; a refusal is a 400 with its reason."""
        try:
            return 200, _ANY.dump_json(await self._run(name, body))
        except (FairleadError, ValueError) as error:
            return 400, _ANY.dump_json({"error": str(error)})

    async def _run(self, name: str, body: bytes) -> object:
        operation = self._operations.get(name)
        if operation is None:
            hint = f"one of {', '.join(self._operations)}"
            raise InvalidInputError(f"{self._label}: no control {name!r}", hint=hint)
        model, act = operation
        data = _OBJECT.validate_json(body or b"{}")
        result = act(data if model is None else model.read(data, name))
        if inspect.isawaitable(result):
            result = await result
        return {} if result is None else result
