"""One request to the token or revoke endpoint."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.testing.issuer.assertion import ClientIdentity
from fairlead.testing.issuer.families import Generation


@dataclass(slots=True)
class TokenRequestInfo:
    """What the client sent, and the connection of the token it presents (None: unknown)."""

    number: int
    endpoint: str
    provider: str
    form: dict[str, str]
    client_id: str | None
    client_secret: str | None
    connection: str | None = None
    generation: Generation | None = None
    client: ClientIdentity | None = None

    @property
    def grant_type(self) -> str:
        """The grant type, "" if there is none."""
        return self.form.get("grant_type", "")

    @property
    def assertion(self) -> str:
        """The signed assertion, "" if there is none."""
        return self.form.get("client_assertion") or self.form.get("assertion") or ""

    @property
    def presented(self) -> int | None:
        """The number of the presented generation."""
        return None if self.generation is None else self.generation.number
