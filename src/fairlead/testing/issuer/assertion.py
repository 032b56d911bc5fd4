"""Check signed assertions (RFC 7523) with joserfc: signature, issuer, audience and expiry."""

from __future__ import annotations

import json
from dataclasses import dataclass

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.jwt import JWTClaimsRegistry

from fairlead.errors import InvalidConfigError

BEARER_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
BEARER_CLIENT = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

_ALGORITHMS = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
]


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The client of a connection: its id, and its key unless any signature is accepted."""

    connection: str
    client_id: str
    key: Key | None = None


class InvalidAssertionError(Exception):
    """The assertion is invalid; the text names the check that failed."""


def read_key(public_key: str | dict[str, str | list[str]]) -> Key:
    """Return a public key from PEM (RSA, EC or Ed25519) or JWK; raise InvalidConfigError if it is neither."""
    for kind in (RSAKey, ECKey, OKPKey):
        try:
            return kind.import_key(public_key)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    raise InvalidConfigError(
        "test issuer: public_key is no usable public key",
        hint="give a JWK, or a PEM with an RSA, EC or Ed25519 public key",
    )


def claims_of(assertion: str) -> dict[str, object]:
    """Return the claims of *assertion*, unchecked."""
    try:
        claims = json.loads(jws.extract_compact(assertion.encode()).payload or b"")
    except (JoseError, ValueError) as error:
        raise InvalidAssertionError(f"not a JWT ({type(error).__name__})") from None
    if not isinstance(claims, dict):
        raise InvalidAssertionError("the claims are no JSON object")
    return claims


def check(assertion: str, client: ClientIdentity, *, audiences: list[str], now_at: float) -> None:
    """Check *assertion* of *client* at the Unix time *now_at*; raise InvalidAssertionError.

    ``iss`` must be the client id, ``aud`` one of *audiences*, ``exp`` in the future.
    """
    try:
        if client.key is not None:
            jws.deserialize_compact(assertion.encode(), client.key, algorithms=_ALGORITHMS)
        JWTClaimsRegistry(
            now=int(now_at),
            iss={"essential": True, "value": client.client_id},
            aud={"essential": True, "values": audiences},
            exp={"essential": True},
        ).validate(claims_of(assertion))
    except (JoseError, ValueError) as error:
        raise InvalidAssertionError(str(error)) from None
