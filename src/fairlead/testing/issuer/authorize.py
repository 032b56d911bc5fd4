"""Authorization codes; consent is always given.

``GET /{provider}/authorize`` (or ``GET /authorize?provider=...``) redirects the browser back with a code, the
caller's ``state`` and ``iss``. The account is the ``login_hint`` or a new one. Codes are valid once and bound to
redirect URI, client id and, if there was a challenge, PKCE S256.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from urllib.parse import urlencode

from fairlead.testing.issuer.config import ConnectionConfig

_OPEN_CODES = 10_000


class InvalidCodeError(Exception):
    """The code cannot be redeemed; the text is the reason."""


@dataclass(frozen=True, slots=True)
class _Code:
    connection: ConnectionConfig
    redirect_uri: str
    client_id: str
    challenge: str


class AuthorizationCodes:
    """The codes that are not redeemed yet; above 10,000 the oldest is dropped."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._open: dict[str, _Code] = {}
        self._numbers = itertools.count(1)

    def consent(self, provider: str, query: Mapping[str, str], issuer_url: str) -> str:
        """Return the URL for the browser to go to; raise InvalidCodeError if the request is invalid."""
        redirect_uri = query.get("redirect_uri", "")
        if not redirect_uri or query.get("response_type") != "code":
            raise InvalidCodeError("response_type=code and redirect_uri are required")
        if query.get("code_challenge_method", "S256") != "S256":
            raise InvalidCodeError("only the PKCE method S256 is spoken here")
        account = query.get("login_hint") or f"authorized-{next(self._numbers)}"
        connection = ConnectionConfig(provider=provider, connection=account, scope=query.get("scope", ""))
        code = f"code_test_{self._draw.getrandbits(128):032x}"
        self._open[code] = _Code(
            connection, redirect_uri, query.get("client_id", ""), query.get("code_challenge", "")
        )
        if len(self._open) > _OPEN_CODES:
            del self._open[next(iter(self._open))]
        back = {"code": code, "state": query.get("state", ""), "iss": issuer_url}
        return f"{redirect_uri}{'&' if '?' in redirect_uri else '?'}{urlencode(back)}"

    def redeem(self, provider: str, form: Mapping[str, str], client_id: str | None) -> ConnectionConfig:
        """Return the connection of this code, once; raise InvalidCodeError for a second try."""
        code = self._open.pop(form.get("code", ""), None)
        if code is None or code.connection.provider != provider:
            raise InvalidCodeError("the code is unknown, was used before, or belongs to another provider")
        if form.get("redirect_uri", "") != code.redirect_uri or (client_id or "") != code.client_id:
            raise InvalidCodeError("redirect_uri and client_id must be those of the authorization request")
        if code.challenge and _s256(form.get("code_verifier", "")) != code.challenge:
            raise InvalidCodeError("the code_verifier does not fit the code_challenge")
        return code.connection


def _s256(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
