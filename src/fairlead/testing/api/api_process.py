"""A rude API as a child process, for tests and benches over processes.

    async with ApiProcess("shopify") as api:
        await api.control("switch", capacity=0.1)
        ...
        assert (await api.control("ledger", account="acme"))["refused"] == 0

The operations stand in ``fairlead.testing.api.api_control``.
"""

from __future__ import annotations

import json

from fairlead.testing._kit.child import ChildServer


class ApiProcess(ChildServer):
    """One child that dies with us. *name*: of the API, one of `APIS` or ``liar``; *options*: what its class
    takes, as JSON has it (``limits={"calls": 4}``)."""

    def __init__(self, name: str, *, port: int = 0, **options: object) -> None:
        super().__init__(
            "fairlead.testing.api", name, "--port", str(port), "--options", json.dumps(options),
            what=f"test API {name}",
        )  # fmt: skip
