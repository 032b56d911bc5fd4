"""``fairlead connections``: connect accounts and look after them (T14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.connections.add import add
from fairlead.cli.connections.authorize import authorize, reauthorize
from fairlead.cli.connections.rows import as_record
from fairlead.cli.connections.set_settings import set_settings
from fairlead.cli.connections.transfer import export, import_connections
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation, Limit, Yes, command, group
from fairlead.cli.kit.names import Account, Provider, Tenant, connection_key
from fairlead.cli.kit.output import Record
from fairlead.errors import InvalidInputError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.engine.ports import ConnectionKey
    from fairlead.engine.tokens.account import Probed
    from fairlead.engine.tokens.connection_view import ConnectionView

app = group("Connect accounts and look after them.")

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
    from fairlead.policy.jobs.states import CredentialState

    if state is not None and state not in set(CredentialState):
        raise InvalidInputError(f"{state!r} is no state", hint=f"one of: {', '.join(CredentialState)}")

    async def work(fairlead: Fairlead) -> list[ConnectionView]:
        return await fairlead.connections.search(tenant=tenant, provider=provider, state=state, limit=limit)

    call.out.rows(map(as_record, call.with_fairlead(work)), COLUMNS, none="no such connections")
    return None


@command(app, "show")
def show(call: Invocation, tenant: Tenant, provider: Provider, account: Account = "default") -> Exit | None:
    """Show one connection: state, times, endpoint, settings, and where its customer reconnects. No secret."""
    from fairlead.policy.providers.connection_calls import describe_settings

    key = connection_key(tenant, provider, account)

    async def work(fairlead: Fairlead) -> dict[str, Any]:
        runtime = fairlead.runtime
        view = await runtime.tokens.connections.get(key)
        credential = await runtime.credentials.read(key)
        assert credential is not None  # it was there a moment ago
        profile = runtime.profiles.profile(provider, view.variant)
        held = await runtime.endpoints.backoff(view.connection_id, view.generation)
        return {
            **as_record(view),
            **held,
            "expires_at": view.expires_at,
            "refreshed_age_s": credential.refreshed_age_s,
            "endpoint": dict(credential.connection.endpoint),
            "settings": dict(credential.connection.settings),
            "calls": describe_settings(profile, credential.connection.settings, tenant=tenant),
            "reauth_link": runtime.reauth_link(key, view.connection_id),
        }

    call.out.record(call.with_fairlead(work))
    return None


command(app, "set")(set_settings)


@command(app, "test")
def probe(call: Invocation, tenant: Tenant, provider: Provider, account: Account = "default") -> Exit | None:
    """Call the provider's test endpoint with a valid token. Ends with 1 if refused, 75 without an answer."""
    key = connection_key(tenant, provider, account)

    async def work(fairlead: Fairlead) -> Probed:
        return await fairlead.runtime.tokens.accounts.test(key)

    found = call.with_fairlead(work)
    call.out.record(
        {
            **_name(key),
            "works": found.works,
            "status": found.status,
            "why": found.why,
            "took_s": found.took_s,
        }
    )
    if found.works:
        return None
    return Exit.LATER if found.status is None or found.status >= 500 or found.status == 429 else Exit.FAILED


@command(app, "refresh")
def refresh(
    call: Invocation, tenant: Tenant, provider: Provider, account: Account = "default"
) -> Exit | None:
    """Get a newer token now, as a refresh job would: once, whoever else asks."""
    key = connection_key(tenant, provider, account)

    async def work(fairlead: Fairlead) -> dict[str, Any]:
        before = await fairlead.runtime.tokens.connections.get(key)
        await fairlead.runtime.reader.refreshed_after(key, before.generation, actor=call.actor)
        after = await fairlead.runtime.tokens.connections.get(key)
        return {**as_record(after), "generation_before": before.generation}

    call.out.record(call.with_fairlead(work))
    return None


command(app, "reauthorize")(reauthorize)


@command(app, "revoke")
def revoke(
    call: Invocation,
    tenant: Tenant,
    provider: Provider,
    account: Account = "default",
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the audit.")] = "revoked by hand",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """End the grant, here and at the provider where it offers that. The connection stays, as revoked."""
    key = connection_key(tenant, provider, account)
    if not dry_run:
        call.confirm(f"Revoke the grant of {tenant!r} at {provider}?", yes=yes)

    async def work(fairlead: Fairlead) -> Record:
        if dry_run:
            view = await fairlead.runtime.tokens.connections.get(key)
            return {"state": view.state, "result": "would be revoked", "at_provider": None}
        news, told = await fairlead.runtime.tokens.accounts.revoke(key, actor=call.actor, reason=reason)
        return {
            "state": "revoked",
            "result": "revoked" if news else "was revoked before",
            "at_provider": told,
        }

    call.out.record({**_name(key), **call.with_fairlead(work)})
    return None


@command(app, "remove")
def remove(
    call: Invocation,
    tenant: Tenant,
    provider: Provider,
    account: Account = "default",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Delete a connection and its secrets here. The grant at the provider stays: revoke it first."""
    key = connection_key(tenant, provider, account)
    if not dry_run:
        call.confirm(f"Delete the connection of {tenant!r} at {provider} with its secrets?", yes=yes)

    async def work(fairlead: Fairlead) -> str:
        if dry_run:
            await fairlead.runtime.tokens.connections.get(key)
            return "would be removed"
        removed = await fairlead.connections.remove(tenant, provider, account, actor=call.actor)
        return "removed" if removed else "gone already"

    call.out.record({**_name(key), "result": call.with_fairlead(work)})
    return None


command(app, "import")(import_connections)
command(app, "export")(export)


def _name(key: ConnectionKey) -> Record:
    return {"tenant": key.tenant, "provider": key.provider, "account": key.account}
