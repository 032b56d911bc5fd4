"""The token of a slot for a bulk operation: its bearer may renew and release the slot. Spec: G5.

    000f3c...9a . 1795334 . 0199...-process . 0199...-job . gid://shopify/BulkOperation/1

It names one lease, not the operation or the job. A slot that was lost and granted again has another lease, so an
old token has no effect. It is no secret, because it is of no use without the connection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fairlead.policy.limits.pool import Holder

UNTIED = "bulk:"
"""The prefix of a holder's process if its lease may outlive the process."""
_FORM = re.compile(
    r"([0-9a-f]{16})\.([0-9]{1,17})\.([!-\-/-~]{1,64})\.([!-\-/-~]{0,64})\.([!-~]{0,200})", re.ASCII
)
_RUNNING = re.compile(r"[!-~]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class BulkToken:
    """The parts of a token. *running_id*: the provider's id of the operation in this slot; empty if none runs."""

    lease_id: int
    fence: int
    process: str
    job: str
    running_id: str = ""

    def __str__(self) -> str:
        return f"{self.lease_id:016x}.{self.fence}.{self.process}.{self.job}.{self.running_id}"

    def holder(self, tenant: str) -> Holder:
        """Return the holder of the lease."""
        return Holder(self.lease_id, self.process, tenant, self.job)


def parse_token(text: str) -> BulkToken | None:
    """Return the token that *text* spells, or None if it spells none."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    lease_id, fence, process, job, running_id = match.groups()
    return BulkToken(int(lease_id, 16), int(fence), process, job, running_id)


def is_running_id(text: str) -> bool:
    """Return whether *text* can be a provider's id of an operation: 1 to 200 visible characters."""
    return _RUNNING.fullmatch(text) is not None
