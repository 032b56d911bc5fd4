"""One request to the token or revoke endpoint, as it was recognised at its arrival."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.testing.issuer.assertion import ClientIdentity
from fairlead.testing.issuer.families import Generation


@dataclass(slots=True)
class TokenRequestInfo:
    """What the client sent, and whose token it presents (None: nobody's the issuer knows)."""

    number: int
    endpoint: str
    provider: str
    form: dict[str, str]
    client_id: str | None
    client_secret: str | None
    connection: str | None = None
    generation: Generation | None = None
    speaker: ClientIdentity | None = None

    @property
    def grant_type(self) -> str:
        """What the client asks for, "" when it did not say."""
        return self.form.get("grant_type", "")

    @property
    def assertion(self) -> str:
        """The signed assertion, "" when there is none."""
        return self.form.get("client_assertion") or self.form.get("assertion") or ""

    @property
    def presented(self) -> int | None:
        """The number of the generation presented."""
        return None if self.generation is None else self.generation.number
