"""The base of all errors."""

from __future__ import annotations

from typing import ClassVar

from fairlead._core.known_secrets import KNOWN_SECRETS


class FairleadError(Exception):
    """Base of all errors that fairlead raises.

    ``str(error)`` reads ``what happened (tenant=..., provider=...) hint: what to do``. It never holds a secret.

    Attributes:
        code: The stable code of the error.
        sent: Whether a request may have reached the provider.
        retryable: Whether the same request may succeed later by itself. Never with a permanent category.
        retry_after_s: Seconds until a retry makes sense; None if waiting does not help.
        http_status: The status that a web service returns to its own client.
        category: The category of the failure; None if no retry policy applies.
        reason: A stable code for handlers to decide by, if there is one.
    """

    code: ClassVar[str] = "internal_error"
    sent: ClassVar[bool] = False
    retryable: bool = False
    http_status: ClassVar[int] = 500
    default_hint: ClassVar[str] = "report this with the lines of the log around it"
    category: str | None = None

    def __init__(
        self,
        message: str,
        *,
        tenant: str | None = None,
        provider: str | None = None,
        hint: str | None = None,
        retry_after_s: float | None = None,
        category: str | None = None,
        reason: str | None = None,
    ) -> None:
        self.message = KNOWN_SECRETS.masked(message)  # it may repeat text of a provider
        super().__init__(self.message)
        self.tenant = tenant
        self.provider = provider
        self.hint = hint or type(self).default_hint
        self.retry_after_s = retry_after_s
        self.reason = reason  # a code that handlers decide by
        if category is not None:
            self.category = category
            self.retryable = self.retryable and category.startswith("transient")

    @property
    def subject(self) -> str:
        """The message with tenant and provider, without the hint."""
        fields = {"tenant": self.tenant, "provider": self.provider}
        subject = ", ".join(f"{name}={value!r}" for name, value in fields.items() if value)
        return f"{self.message} ({subject})" if subject else self.message

    def __str__(self) -> str:
        return f"{self.subject} hint: {self.hint}"
