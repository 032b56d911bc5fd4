"""A digest of the hosts that a connection's secrets may be sent to is sealed with the secrets. Spec: S11.

Requests are built from plain columns: variant, client id, endpoint, and the hosts that the settings allow. An
attacker with write access to the database, but without a key, could otherwise direct the secrets to a host of
their own. If the columns do not match the sealed digest, the secrets are not used. Records of earlier
versions have no digest until the next refresh or grant.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache

from fairlead.engine.ports import Connection, Credential, Json
from fairlead.engine.tokens.sealed_records import CredentialSecrets
from fairlead.errors import CredentialUnreadableError

HOSTS = "hosts"
"""The setting that allows calls to hosts besides the profile's."""


def endpoint_digest_of(connection: Connection) -> str:
    """Return the digest for the present columns of *connection*."""
    return endpoint_digest(connection.variant, connection.client_id, connection.endpoint, connection.settings)


def endpoint_digest(
    variant: str | None, client_id: str, endpoint: Mapping[str, str], settings: Mapping[str, Json]
) -> str:
    """Return a digest of all columns that decide where secrets are sent; of *settings* only the hosts."""
    hosts = settings.get(HOSTS)
    if not endpoint and hosts is None:
        return _shared_endpoint_digest(variant, client_id)
    return _digest([variant, client_id, dict(endpoint), hosts])


@lru_cache(maxsize=1024)
def _shared_endpoint_digest(variant: str | None, client_id: str) -> str:
    """Return the digest for connections without an endpoint or hosts of their own, as most are."""
    return _digest([variant, client_id, {}, None])


def _digest(columns: list[Json]) -> str:
    return hashlib.sha256(json.dumps(columns, sort_keys=True).encode()).hexdigest()


def check_endpoints(credential: Credential, secrets: CredentialSecrets) -> None:
    """Raise CredentialUnreadableError if the row would send *secrets* elsewhere than they were sealed for."""
    connection = credential.connection
    if secrets.endpoint_digest in (None, endpoint_digest_of(connection)):
        return
    raise CredentialUnreadableError(
        f"the endpoint, variant, client id or hosts of connection {connection.connection_id} are not those "
        "that its secrets were sealed for",
        tenant=connection.key.tenant,
        provider=connection.key.provider,
        hint="see who wrote to the database, then `fairlead connections reauthorize`, or import it again;"
        " hosts can be set back, too",
    )
