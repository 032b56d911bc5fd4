"""Where a connection's secrets may go is sealed with them (S11).

Requests are built from plain columns: variant, client id, endpoint, and the hosts that the settings allow
calls to. Whoever can write those and has no key would be sent the secrets. So a digest of them is inside the
sealed record, and what does not fit it is not used. A record from before there was one has none, until a
refresh gives it one, or a new grant: a static key is never refreshed.
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
    """The digest for *connection* as it stands."""
    return endpoint_digest(connection.variant, connection.client_id, connection.endpoint, connection.settings)


def endpoint_digest(
    variant: str | None, client_id: str, endpoint: Mapping[str, str], settings: Mapping[str, Json]
) -> str:
    """A digest of all that says where secrets go; of *settings* that is the hosts alone."""
    hosts = settings.get(HOSTS)
    if not endpoint and hosts is None:
        return _shared_endpoint_digest(variant, client_id)
    return _digest([variant, client_id, dict(endpoint), hosts])


@lru_cache(maxsize=1024)
def _shared_endpoint_digest(variant: str | None, client_id: str) -> str:
    """Return the digest for connections without an endpoint or hosts of their own, as most are."""
    return _digest([variant, client_id, {}, None])


def _digest(said: list[Json]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def check_endpoints(credential: Credential, stored: CredentialSecrets) -> None:
    """CredentialUnreadableError where the row would send *stored* elsewhere than it was sealed for."""
    connection = credential.connection
    if stored.endpoint_digest in (None, endpoint_digest_of(connection)):
        return
    raise CredentialUnreadableError(
        f"the endpoint, variant, client id or hosts of connection {connection.connection_id} are not those "
        "that its secrets were sealed for",
        tenant=connection.key.tenant,
        provider=connection.key.provider,
        hint="see who wrote to the database, then `fairlead connections reauthorize`, or import it again;"
        " hosts can be set back, too",
    )
