"""Checks signed assertions (RFC 7523): signature, issuer, audience and expiry, with joserfc."""

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
    """Who may speak for a connection: a client id, and its key unless any signature will do."""

    connection: str
    client_id: str
    key: Key | None = None


class InvalidAssertionError(Exception):
    """The assertion does not hold; the text says which check failed."""


def read_key(public_key: str | dict[str, str | list[str]]) -> Key:
    """A public key from PEM (RSA, EC or Ed25519) or JWK; raises InvalidConfigError when it is neither."""
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
    """The claims of *assertion*, nothing checked yet."""
    try:
        claims = json.loads(jws.extract_compact(assertion.encode()).payload or b"")
    except (JoseError, ValueError) as error:
        raise InvalidAssertionError(f"not a JWT ({type(error).__name__})") from None
    if not isinstance(claims, dict):
        raise InvalidAssertionError("the claims are no JSON object")
    return claims


def check(assertion: str, speaker: ClientIdentity, *, audiences: list[str], wall_s: float) -> None:
    """Hold *assertion* against *speaker* at wall-clock time *wall_s*; raises AssertionRefused.

    ``iss`` must be the speaker's client id, ``aud`` one of *audiences*, ``exp`` in the future.
    """
    try:
        if speaker.key is not None:
            jws.deserialize_compact(assertion.encode(), speaker.key, algorithms=_ALGORITHMS)
        JWTClaimsRegistry(
            now=int(wall_s),
            iss={"essential": True, "value": speaker.client_id},
            aud={"essential": True, "values": audiences},
            exp={"essential": True},
        ).validate(claims_of(assertion))
    except (JoseError, ValueError) as error:
        raise InvalidAssertionError(str(error)) from None
