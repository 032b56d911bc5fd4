"""Webhooks that report what needs attention."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Webhook:
    """One event to deliver. *event_id* is the same for every attempt, so that receivers can drop repeats."""

    event_id: str
    tenant: str
    provider: str | None
    body: bytes = field(repr=False)


class WebhookSender(Protocol):
    """The sender of signed events to the receiver in the settings."""

    async def send(self, webhook: Webhook) -> None:
        """Send *webhook*, and return once the receiver has accepted it (2xx).

        Raises:
            NotSentError, TransientFailureError: A retry may succeed.
            RequestRejectedError: The receiver refused the event.
            InvalidConfigError: Its address may not be called.
        """
        ...
