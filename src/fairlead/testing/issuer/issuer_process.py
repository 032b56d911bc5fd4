"""The issuer as a child process, for tests with several processes.

    async with IssuerProcess(config, ledger=path) as issuer:
        await issuer.control("rule", quirk="cut_after", times=1)
        ...
    verdict = judge(read_ledger(path))

``fairlead.testing.issuer.issuer_control`` lists the operations.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fairlead.testing._kit.child import ChildServer
from fairlead.testing.issuer.config import IssuerConfig
from fairlead.testing.ledger import Ledger, read_ledger


class IssuerProcess(ChildServer):
    """A child process that serves an issuer and ends with its parent.

    Args:
        config: Passed to the child as a file.
        ledger: Required, since it is all that remains when the child is killed.
    """

    def __init__(self, config: IssuerConfig, *, ledger: Path, sync: bool = False) -> None:
        super().__init__("fairlead.testing.issuer", label="test issuer")
        self._config = config.model_copy(update={"ledger": ledger, "sync": sync or config.sync})
        self.ledger_path = ledger

    async def start(self) -> None:
        """Start the child and wait until it listens; raise DependencyUnavailableError with its stderr."""
        with tempfile.NamedTemporaryFile(
            "w", prefix="fairlead-issuer-", suffix=".json", delete=False
        ) as file:
            file.write(self._config.model_dump_json())
        self._arguments = ("--config", file.name)
        try:
            await super().start()
        finally:
            os.unlink(file.name)  # the child has read it, and this process may be killed before `stop`

    def ledger(self) -> Ledger:
        """Read the ledger file as it is now; call ``control("flush")`` first while the child lives."""
        return read_ledger(self.ledger_path)
