"""Builds the order of a bulk operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.engine.calls.bulk_order import BulkOrder
from fairlead.engine.ports import Connection
from fairlead.errors import InvalidInputError
from fairlead.policy.calls.bulk import BULK_PROTOCOLS
from fairlead.policy.providers.connection_calls import call_settings_of
from fairlead.policy.providers.profile import Profile


def bulk_order(
    connection: Connection,
    profile: Profile,
    text: str,
    variables: Mapping[str, Any],
    token: str | None,
    wait_s: float,
    deadline_s: float,
) -> BulkOrder:
    """Return the order for *text*, in the version of the provider's API that this connection calls.

    Raises:
        InvalidInputError: fairlead does not know bulk operations of this provider.
    """
    bulk = profile.limits.bulk
    if bulk is None or bulk.protocol is None:
        raise InvalidInputError(
            "the provider's profile does not say how bulk operations are started",
            tenant=connection.key.tenant,
            provider=connection.key.provider,
            hint="start them yourself inside `fl.bulk`" if bulk else "page through the list instead",
        )
    protocol = BULK_PROTOCOLS[bulk.protocol]
    endpoint_version = profile.endpoint_values(connection.endpoint).get("api_version", bulk.api_version)
    version = endpoint_version if bulk.for_version(endpoint_version) else bulk.api_version
    kind = protocol.kind_of(text)
    settings = call_settings_of(profile, connection.settings, tenant=connection.key.tenant)
    return BulkOrder(
        connection.key,
        protocol,
        kind,
        version,
        bulk.retry_after_s,
        text,
        variables,
        token,
        wait_s,
        deadline_s,
        settings.inline_wait_s,
    )
