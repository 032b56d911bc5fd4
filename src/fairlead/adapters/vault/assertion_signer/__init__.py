"""Signs assertions with joserfc."""

from __future__ import annotations

from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from fairlead._core.secret import Secret
from fairlead.errors import InvalidConfigError


class JoseSigner:
    """A signer of compact JWTs (RFC 7515) with RSA and EC keys in PEM. It caches parsed keys: parsing is slow."""

    def __init__(self) -> None:
        self._keys: dict[Secret, RSAKey | ECKey] = {}

    def sign(self, claims: dict[str, object], alg: str, private_key: Secret, key_id: str | None) -> Secret:
        """Return the signed JWT.

        Raises:
            InvalidConfigError: *private_key* does not fit *alg*. The message does not hold the key.
        """
        header: dict[str, Any] = {"alg": alg, "typ": "JWT"}
        if key_id is not None:
            header["kid"] = key_id
        try:
            return Secret(jwt.encode(header, dict(claims), self._key(alg, private_key), algorithms=[alg]))
        except (JoseError, ValueError, TypeError) as error:
            raise InvalidConfigError(
                f"the private key does not sign with {alg} ({type(error).__name__})",
                hint="give the PEM key whose certificate the provider knows",
            ) from None

    def _key(self, alg: str, private_key: Secret) -> RSAKey | ECKey:
        key = self._keys.get(private_key)
        if key is None:
            kind = ECKey if alg.startswith("ES") else RSAKey
            key = kind.import_key(private_key.reveal())
            if len(self._keys) >= 1000:
                self._keys.clear()
            self._keys[private_key] = key
        return key
