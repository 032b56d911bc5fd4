"""``fairlead connections``: connect accounts and maintain them. Spec: T14."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.connections.add import add
from fairlead.cli.connections.authorize import authorize, reauthorize
from fairlead.cli.connections.set_settings import set_settings
from fairlead.cli.connections.transfer import export, import_connections
from fairlead.cli.kit.changes import Change, ConfirmOptions, Done, Plan, Unchanged, change_one
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, Limit, command, group
from fairlead.cli.kit.names import Account, Provider, Tenant, connection_key
from fairlead.cli.kit.output import Record, fields_of, record_of
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.states import CredentialState
from fairlead.policy.providers.connection_calls import describe_settings

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime

app = group("Connect accounts and maintain them.")

COLUMNS = ("tenant", "provider", "account", "state", "state_reason", "expires_in_s", "due_in_s", "generation")

AnyTenant = Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's.")]
AnyProvider = Annotated[str | None, typer.Option("--provider", "-p", help="Only at this provider.")]

command(app, "add")(add)
command(app, "authorize")(authorize)


@command(app, "list")
def list_connections(
    call: Invocation,
    tenant: AnyTenant = None,
    provider: AnyProvider = None,
    state: Annotated[
        str | None, typer.Option("--state", help="active, unknown, needs_reauth or revoked.")
    ] = None,
    limit: Limit = 1000,
) -> Exit | None:
    """List connections in the order of their names."""
    if state is not None and state not in set(CredentialState):
        raise InvalidInputError(f"{state!r} is no state", hint=f"one of: {', '.join(CredentialState)}")

    views = call.with_runtime(
        lambda runtime: runtime.tokens.connections.search(
            tenant=tenant, provider=provider, state=state, limit=limit
        )
    )
    call.out.rows(map(record_of, views), COLUMNS, none="no such connections")
    return None


@command(app, "show")
def show(call: Invocation, tenant: Tenant, provider: Provider, account: Account = "default") -> Exit | None:
    """Show one connection: state, times, endpoint, settings, and the page where its customer reconnects. No secret."""
    key = connection_key(tenant, provider, account)

    async def work(runtime: Runtime) -> Record:
        view = await runtime.tokens.connections.get(key)
        credential = await runtime.credentials.read(key)
        assert credential is not None  # `get` found it
        profile = runtime.profiles.profile(provider, view.variant)
        backoff = await runtime.endpoints.backoff(view.connection_id, view.generation)
        return {
            **record_of(view),
            **backoff,
            "expires_at": view.expires_at,
            "refreshed_age_s": credential.refreshed_age_s,
            "endpoint": dict(credential.connection.endpoint),
            "settings": dict(credential.connection.settings),
            "calls": describe_settings(profile, credential.connection.settings, tenant=tenant),
            "reauth_link": runtime.reauth_link(key, view.connection_id),
        }

    call.out.record(call.with_runtime(work))
    return None


command(app, "set")(set_settings)


@command(app, "test")
def probe(call: Invocation, tenant: Tenant, provider: Provider, account: Account = "default") -> Exit | None:
    """Call the provider's test endpoint with a valid token. Ends with 1 if refused, 75 without a response."""
    key = connection_key(tenant, provider, account)

    response = call.with_runtime(lambda runtime: runtime.tokens.accounts.test(key))
    call.out.record({**key._asdict(), **fields_of(response, "works status why took_s")})
    if response.works:
        return None
    status = response.status
    return Exit.LATER if status is None or status >= 500 or status == 429 else Exit.FAILED


@command(app, "refresh")
def refresh(
    call: Invocation, tenant: Tenant, provider: Provider, account: Account = "default"
) -> Exit | None:
    """Get a newer token now, as a refresh job would. Concurrent refreshes of the connection are merged."""
    key = connection_key(tenant, provider, account)

    async def work(runtime: Runtime) -> Record:
        generation = (await runtime.tokens.connections.get(key)).generation
        await runtime.reader.refreshed_after(key, generation, actor=call.actor)
        return {**record_of(await runtime.tokens.connections.get(key)), "generation_before": generation}

    call.out.record(call.with_runtime(work))
    return None


command(app, "reauthorize")(reauthorize)


@command(app, "revoke")
def revoke(
    call: Invocation,
    *,
    tenant: Tenant,
    provider: Provider,
    account: Account = "default",
    reason: Annotated[
        str, typer.Option("--reason", help="Your reason; kept in the audit trail.")
    ] = "revoked by hand",
    options: ConfirmOptions,
) -> Exit | None:
    """End the grant, here and at the provider if it offers that. The connection stays, as revoked."""
    key = connection_key(tenant, provider, account)

    async def find(runtime: Runtime) -> Plan:
        view = await runtime.tokens.connections.get(key)

        async def act() -> Done | Unchanged:
            is_new, at_provider = await runtime.tokens.accounts.revoke(key, actor=call.actor, reason=reason)
            fields = {"state": "revoked", "at_provider": at_provider}
            return Done(fields=fields) if is_new else Unchanged("was revoked before", fields)

        fields = {**key._asdict(), "state": view.state, "at_provider": None}
        return Change("revoked", act, fields, question=f"Revoke the grant of {tenant!r} at {provider}?")

    return change_one(call, find, options)


@command(app, "remove")
def remove(
    call: Invocation,
    *,
    tenant: Tenant,
    provider: Provider,
    account: Account = "default",
    options: ConfirmOptions,
) -> Exit | None:
    """Delete a connection and its secrets here. The grant at the provider stays: revoke it first."""
    key = connection_key(tenant, provider, account)
    question = f"Delete the connection of {tenant!r} at {provider} with its secrets?"

    async def find(runtime: Runtime) -> Plan:
        fields = key._asdict()
        if await runtime.credentials.read(key) is None:
            return Unchanged("gone already", fields)

        async def act() -> object:
            removed = await runtime.tokens.connections.remove(key, actor=call.actor)
            runtime.reader.forget(key)
            return None if removed else Unchanged("gone already")

        return Change("removed", act, fields, question)

    return change_one(call, find, options)


command(app, "import")(import_connections)
command(app, "export")(export)
