"""The token of a slot for a bulk operation: its bearer may renew and release the slot. Spec: G5.

    000f3c...9a . 1795334 . 0199...-process . 0199...-job . gid://shopify/BulkOperation/1

It names one lease, not the operation or the job: a place that was lost and given on is another lease, so an
old token reaches nothing. It is no secret, and is worth nothing without the connection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fairlead.policy.limits.pool import Holder

UNTIED = "bulk:"
"""What the process of a holder begins with where the process may end before the lease."""
_FORM = re.compile(
    r"([0-9a-f]{16})\.([0-9]{1,17})\.([!-\-/-~]{1,64})\.([!-\-/-~]{0,64})\.([!-~]{0,200})", re.ASCII
)
_RUNNING = re.compile(r"[!-~]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class BulkToken:
    """*running_id*: the vendor's name of the operation that runs in this place; empty where none does."""

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
    """Parse *text*; None if it is no token."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    lease_id, fence, process, job, running_id = match.groups()
    return BulkToken(int(lease_id, 16), int(fence), process, job, running_id)


def is_running_id(text: str) -> bool:
    """Return whether *text* can be a provider's id of an operation: 1 to 200 visible characters."""
    return _RUNNING.fullmatch(text) is not None
