"""``fairlead connections add``: store a grant that you already have."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.connections.files import ConnectionEntry
from fairlead.cli.kit.changes import Change, ConfirmOptions, Done, Plan, change_one
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.names import Account, Endpoint, Provider, Tenant, Variant, connection_key, parse_pairs
from fairlead.cli.kit.output import Record, record_of
from fairlead.cli.kit.secret_input import SecretSources, read_secrets
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.errors import InvalidInputError
from fairlead.policy.providers.setting_text import parse_settings

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime

SETTING_HELP = "A setting of the connection: concurrency_limit=5, observe=true, calls='{...}' (JSON)."
Replace = Annotated[
    bool, typer.Option("--replace", help="Give an existing connection a new grant; its id stays.")
]


def add(  # noqa: PLR0913 - one parameter an option
    call: Invocation,
    *,
    tenant: Tenant,
    provider: Provider,
    account: Account = "default",
    variant: Variant = None,
    endpoint: Endpoint = None,
    secret: SecretSources = None,
    account_id: Annotated[
        str | None, typer.Option("--account-id", help="The provider's id of the account.")
    ] = None,
    client_id: Annotated[
        str, typer.Option("--client-id", help="An app of its own. Default: the settings'.")
    ] = "",
    key_id: Annotated[str | None, typer.Option("--key-id", help="Id (kid) of its private key.")] = None,
    expires_in: Annotated[
        float | None, typer.Option("--expires-in", metavar="S", help="Life of the access token in seconds.")
    ] = None,
    scope: Annotated[str | None, typer.Option("--scope", help="Scopes of the grant.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--setting", metavar="NAME=VALUE", help=SETTING_HELP)
    ] = None,
    replace: Replace = False,
    options: ConfirmOptions,
) -> Exit | None:
    """Connect an account with secrets that you have: tokens, an API key, a private key.

    Secrets are never words of the command line: see --secret. Without it you are asked for the secret that
    the provider needs; a script passes it on standard input, or a JSON object of several.
    """
    key = connection_key(tenant, provider, account)
    secrets: dict[str, Any] = read_secrets(secret, _required_secret(call, provider, variant))
    grant = Grant(
        variant=variant,
        account_id=account_id,
        client_id=client_id,
        key_id=key_id,
        scope=scope,
        endpoint=parse_pairs(endpoint, "--endpoint"),
        settings=parse_settings(parse_pairs(setting, "--setting")) or None,
        expires_in_s=expires_in,
        **secrets,
    )
    entry = ConnectionEntry(tenant, provider, account, grant)

    async def find(runtime: Runtime) -> Plan:
        change = await plan_store(runtime, entry, call.actor, replace=replace)

        async def view() -> Record:
            return record_of(await runtime.tokens.connections.get(key))

        return dataclasses.replace(change, fields=key._asdict(), afterwards=view)

    return change_one(call, find, options)


async def plan_store(runtime: Runtime, entry: ConnectionEntry, actor: str, *, replace: bool) -> Change:
    """Check *entry*, and return the change that stores it. An existing connection needs *replace*."""
    key, grant = connection_key(entry.tenant, entry.provider, entry.account), entry.grant
    runtime.tokens.connections.check(key, grant)
    exists = await runtime.credentials.read(key) is not None
    if exists and not replace:
        raise InvalidInputError(
            "this connection already exists",
            tenant=key.tenant,
            provider=key.provider,
            hint="give it a new grant with --replace",
        )
    result = "replaced" if exists else "created"

    async def act() -> Done:
        await runtime.tokens.connections.upsert(key, grant, actor=actor)
        runtime.reader.forget(key)
        return Done(result if grant.state == "active" else f"{result}, {grant.state}")

    return Change(result, act)


def _required_secret(call: Invocation, provider: str, variant: str | None) -> str | None:
    """Return the name of the one secret that a connection of this provider needs."""
    from fairlead.assembly.providers import AppRegistry, ProfileRegistry

    settings = call.config().settings
    profile = ProfileRegistry(settings).profile(provider, variant)
    if profile.strategy == "assertion":
        return None if AppRegistry(settings).app(provider, "").private_key else "private_key"
    if profile.strategy == "static_key":
        return "api_key"
    return "refresh_token" if profile.is_refreshable else "access_token"
