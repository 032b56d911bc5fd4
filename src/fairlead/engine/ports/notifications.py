"""Telling the outside that something needs its attention."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Webhook:
    """One event on its way out. *event_id* stays the same however often it is sent: receivers go by it."""

    event_id: str
    tenant: str
    provider: str | None
    body: bytes = field(repr=False)


class WebhookSender(Protocol):
    """Posts signed events to the one receiver of the settings."""

    async def send(self, webhook: Webhook) -> None:
        """Return once the receiver took it (2xx).

        Raises NotSentError or TransientFailureError where trying again may help, RequestRejectedError where
        the receiver
        refused it, InvalidConfigError where its address may not be called.
        """
        ...
