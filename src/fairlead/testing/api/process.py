"""A rude API as a child process, for tests and benches over processes.

    async with ApiProcess("shopify") as api:
        await api.control("switch", capacity=0.1)
        ...
        assert (await api.control("ledger", account="acme"))["refused"] == 0

The operations stand in ``fairlead.testing.api.control``.
"""

from __future__ import annotations

from fairlead.testing.child import ChildServer


class ApiProcess(ChildServer):
    """One child that dies with us. *name*: of the API, one of `APIS`; *takes_s*, *port*: as in `Api`."""

    def __init__(self, name: str, *, takes_s: float = 0.0, port: int = 0) -> None:
        super().__init__(
            "fairlead.testing.api", name, "--port", str(port), "--takes-s", str(takes_s),
            what=f"test API {name}",
        )  # fmt: skip
