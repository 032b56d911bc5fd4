"""``fairlead providers try``: the token request that a refresh would send, with masked secrets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead._core.secret import Secret
from fairlead.assembly.providers import ProfileRegistry
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.names import (
    Account,
    Endpoint,
    ProviderName,
    connection_key,
    parse_pairs,
    provider_and_variant,
)
from fairlead.cli.kit.output import fields_of
from fairlead.errors import InvalidInputError
from fairlead.policy.tokens.request import OAuthClient, assertion_claims, token_request

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import ConnectionKey
    from fairlead.policy.providers.profile import Profile

MASK = "***"
OPEN_FIELDS = frozenset(
    {"accept", "content-type", "grant_type", "client_id", "client_assertion_type", "scope", "redirect_uri"}
)
"""Fields of a token request that hold no secret; all others are masked."""


def try_out(
    call: Invocation,
    name: ProviderName,
    endpoint: Endpoint = None,
    client_id: Annotated[
        str | None, typer.Option("--client-id", help="Default: that of the settings.")
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="Scopes to ask for (assertions).")
    ] = None,
    connection: Annotated[
        str | None,
        typer.Option(
            "--connection", metavar="TENANT", help="With what is stored for this tenant's connection."
        ),
    ] = None,
    account: Account = "default",
    send: Annotated[
        bool, typer.Option("--send", help="Really refresh that connection, as a refresh job would.")
    ] = False,
) -> Exit | None:
    """Show the token request that would be made. Nothing is sent without --send."""
    provider, variant = provider_and_variant(name)
    if connection is None:
        if send:
            raise InvalidInputError("--send needs a connection to refresh", hint="add --connection TENANT")
        source = _of_settings(call, provider, variant, parse_pairs(endpoint, "--endpoint"), client_id)
        call.out.record(_request_record(*source, scope or ()))
        return None
    if endpoint or client_id or scope or variant:
        raise InvalidInputError(
            "a connection has its own endpoint, client id and variant", hint="leave them out"
        )
    key = connection_key(connection, provider, account)

    async def work(runtime: Runtime) -> dict[str, Any]:
        request = await _of_connection(runtime, key)
        return {**request, **(await _send(runtime, key, call.actor) if send else {})}

    call.out.record(call.with_runtime(work))
    return None


def _of_settings(
    call: Invocation, provider: str, variant: str | None, endpoint: Mapping[str, str], client_id: str | None
) -> tuple[Profile, Mapping[str, str], str]:
    settings = call.config().settings
    profile = ProfileRegistry(settings).profile(provider, variant)
    app_table = settings.providers.get(provider)
    shown_id = client_id or (app_table.client_id if app_table else "") or "CLIENT_ID"
    return profile, profile.endpoint_values(endpoint), shown_id


async def _of_connection(runtime: Runtime, key: ConnectionKey) -> dict[str, Any]:
    """Return the request that a refresh of this connection would send."""
    await runtime.tokens.connections.get(key)  # NotFoundError, with its hint
    credential = await runtime.credentials.read(key)
    assert credential is not None  # `get` found it
    connection = credential.connection
    profile = runtime.profiles.profile(key.provider, connection.variant)
    app = runtime.apps.app(key.provider, connection.client_id)
    scopes = tuple(connection.settings.get("scopes", ()))
    return _request_record(profile, connection.endpoint, app.client_id or connection.client_id, scopes)


async def _send(runtime: Runtime, key: ConnectionKey, actor: str) -> dict[str, Any]:
    """Refresh the connection, and return the result without the token."""
    generation = (await runtime.tokens.connections.get(key)).generation
    await runtime.reader.refreshed_after(key, generation, actor=actor)
    view = await runtime.tokens.connections.get(key)
    return {"sent": {**fields_of(view, "state generation expires_in_s"), "generation_before": generation}}


def _request_record(
    profile: Profile, endpoint: Mapping[str, str], client_id: str, scopes: Sequence[str]
) -> dict[str, Any]:
    """Build the request of a refresh from placeholders, with the code that builds the real one."""
    placeholder = Secret("placeholder", remember=False)
    request = token_request(
        profile,
        endpoint,
        OAuthClient(client_id, placeholder),
        refresh_token=placeholder,
        assertion=placeholder,
        scopes=scopes,
    )
    open_fields = OPEN_FIELDS | set(profile.extra_fields.refresh)
    claims = None
    if profile.assertion is not None:
        claims = assertion_claims(
            profile,
            endpoint,
            client_id=client_id,
            unix_time=int(time.time()),
            jti="(fresh each time)",
            scopes=scopes,
        )
    return {
        "provider": profile.label,
        "method": request.method,
        "url": request.url,
        "headers": _masked(request.headers, open_fields),
        "form": _masked(request.form, open_fields),
        **({"assertion_claims": claims} if claims else {}),
    }


def _masked(fields: Mapping[str, Secret], open_fields: frozenset[str]) -> dict[str, str]:
    return {name: value.reveal() if name in open_fields else MASK for name, value in fields.items()}
