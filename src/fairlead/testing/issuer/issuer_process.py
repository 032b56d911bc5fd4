"""The issuer as a child process, and a small client of its control API, for tests over processes.

    async with IssuerProcess(config, ledger=path) as issuer:
        await issuer.control("rule", quirk="cut_after", times=1)
        ...
    verdict = judge(read_ledger(path))

The operations stand in ``fairlead.testing.issuer.issuer_control``.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fairlead.testing._kit.child import ChildServer
from fairlead.testing.issuer.config import IssuerConfig
from fairlead.testing.ledger import Ledger, read_ledger


class IssuerProcess(ChildServer):
    """One child that dies with us. *config* is handed over as a file; *ledger* is required, because it
    is what is left when the child is killed."""

    def __init__(self, config: IssuerConfig, *, ledger: Path, sync: bool = False) -> None:
        super().__init__("fairlead.testing.issuer", what="test issuer")
        self._config = config.model_copy(update={"ledger": ledger, "sync": sync or config.sync})
        self.ledger_path = ledger

    async def start(self) -> None:
        """Start the child and wait until it listens; raises DependencyUnavailableError with its words."""
        with tempfile.NamedTemporaryFile(
            "w", prefix="fairlead-issuer-", suffix=".json", delete=False
        ) as file:
            file.write(self._config.model_dump_json())
        self._arguments = ("--config", file.name)
        try:
            await super().start()
        finally:
            os.unlink(file.name)  # it has been read; we may be killed before the stop

    def ledger(self) -> Ledger:
        """What stands in the ledger file now; `control("flush")` first while the child lives."""
        return read_ledger(self.ledger_path)
