"""``fairlead connections add``: store a grant that somebody has in hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.connections.files import Entry
from fairlead.cli.connections.rows import as_record
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation
from fairlead.cli.kit.names import Account, Endpoint, Provider, Tenant, Variant, connection_key, parse_pairs
from fairlead.cli.kit.secret_input import SecretSources, read_secrets
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import ConnectionKey

SETTING_HELP = "A setting of the connection: concurrency_limit=5, observe=true, calls='{...}' (JSON)."
Replace = Annotated[
    bool, typer.Option("--replace", help="Give a connection that is there a new grant; its id stays.")
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
    dry_run: DryRun = False,
) -> Exit | None:
    """Connect an account with secrets that you have: tokens, an API key, a private key.

    Secrets are never words of the command line: see --secret. Without it you are asked, or a script hands in
    on standard input the one that the provider needs, or a JSON object of several.
    """
    from fairlead.policy.providers.setting_text import settings_of_text

    key = connection_key(tenant, provider, account)
    secrets: dict[str, Any] = read_secrets(secret, _needed(call, provider, variant))
    grant = Grant(
        variant=variant,
        account_id=account_id,
        client_id=client_id,
        key_id=key_id,
        scope=scope,
        endpoint=parse_pairs(endpoint, "--endpoint"),
        settings=settings_of_text(parse_pairs(setting, "--setting")) or None,
        expires_in_s=expires_in,
        **secrets,
    )
    entry = Entry(tenant, provider, account, grant)

    async def work(fairlead: Fairlead) -> dict[str, Any]:
        result = await store(fairlead.runtime, entry, call.actor, replace=replace, dry_run=dry_run)
        if dry_run:
            return {"tenant": tenant, "provider": provider, "account": account, "result": result}
        return {**as_record(await fairlead.runtime.tokens.connections.get(key)), "result": result}

    call.out.record(call.with_fairlead(work))
    return None


async def store(runtime: Runtime, entry: Entry, actor: str, *, replace: bool, dry_run: bool) -> str:
    """Check and store *entry*; what was done, in a word. A connection that is there needs *replace*."""
    key, grant = connection_key(entry.tenant, entry.provider, entry.account), entry.grant
    runtime.tokens.connections.check(key, grant)
    known = await _is_known(runtime, key)
    if known and not replace:
        raise InvalidInputError(
            "this connection is there already",
            tenant=key.tenant,
            provider=key.provider,
            hint="--replace gives it a new grant",
        )
    if dry_run:
        return "would be replaced" if known else "would be created"
    await runtime.tokens.connections.upsert(key, grant, actor=actor)
    runtime.reader.forget(key)
    done = "replaced" if known else "created"
    return done if grant.state == "active" else f"{done}, {grant.state}"


async def _is_known(runtime: Runtime, key: ConnectionKey) -> bool:
    try:
        await runtime.tokens.connections.get(key)
    except NotFoundError:
        return False
    return True


def _needed(call: Invocation, provider: str, variant: str | None) -> str | None:
    """The one secret that a connection of this provider cannot do without."""
    from fairlead.assembly.providers import AppRegistry, ProfileRegistry

    settings = call.config().settings
    profile = ProfileRegistry(settings).profile(provider, variant)
    if profile.strategy == "assertion":
        return None if AppRegistry(settings).app(provider, "").private_key else "private_key"
    if profile.strategy == "static_key":
        return "api_key"
    return "refresh_token" if profile.refreshes else "access_token"
