"""A vendor API as a child process, for tests and benchmarks with several processes.

    async with ApiProcess("shopify") as api:
        await api.control("switch", capacity=0.1)
        ...
        assert (await api.control("ledger", account="acme"))["refused"] == 0

``fairlead.testing.api.api_control`` lists the operations.
"""

from __future__ import annotations

import json

from fairlead.testing._kit.child import ChildServer


class ApiProcess(ChildServer):
    """A child process that serves one API and ends with its parent.

    Args:
        name: One of `APIS`, or ``liar`` for `MalformedApi`.
        options: Arguments of its class, as JSON has them (``limits={"calls": 4}``).
    """

    def __init__(self, name: str, *, port: int = 0, **options: object) -> None:
        super().__init__(
            "fairlead.testing.api", name, "--port", str(port), "--options", json.dumps(options),
            label=f"test API {name}",
        )  # fmt: skip
