"""``fairlead connections set``: other settings for a connection, its grant as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.connections.add import SETTING_HELP
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation
from fairlead.cli.kit.names import Account, Provider, Tenant, connection_key, parse_pairs
from fairlead.cli.kit.output import Record
from fairlead.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead.app import Fairlead
    from fairlead.assembly.settings import Settings


def set_settings(
    call: Invocation,
    tenant: Tenant,
    provider: Provider,
    account: Account = "default",
    setting: Annotated[
        list[str] | None, typer.Option("--setting", metavar="NAME=VALUE", help=SETTING_HELP)
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="A setting to take away.")
    ] = None,
    dry_run: DryRun = False,
) -> Exit | None:
    """Change settings of a connection; those that are not named stay, and so does its grant.

    Each process heeds them within 5 s, and goes on with what it has counted.
    """
    from fairlead.policy.providers.connection_calls import describe_settings
    from fairlead.policy.providers.setting_text import settings_of_text

    key = connection_key(tenant, provider, account)
    settings = settings_of_text(parse_pairs(setting, "--setting"))
    if not settings and not unset:
        raise InvalidInputError("no setting is named", hint="give --setting NAME=VALUE, or --unset NAME")

    async def work(fairlead: Fairlead) -> Record:
        connections = fairlead.runtime.tokens.connections
        change = await connections.change(key, settings, unset or ())
        told: Record = {"tenant": tenant, "provider": provider, "account": account}
        if dry_run:
            result = "would be set" if change.has_changes else "as they are"
        else:
            change = await connections.configure(key, settings, unset or (), actor=call.actor)
            result = "set" if change.has_changes else "as they were"
        profile = fairlead.runtime.profiles.profile(provider, change.connection.variant)
        calls = describe_settings(profile, change.new_settings, tenant=tenant)
        note = _note(change.new_settings, fairlead.runtime.settings)
        return {**told, "result": result, "settings": dict(change.new_settings), "calls": calls, "note": note}

    call.out.record(call.with_fairlead(work))
    return None


def _note(after: Mapping[str, object], settings: Settings) -> str | None:
    """What a limit promises that one process cannot hold."""
    slots, most = after.get("concurrency_limit"), settings.http.max_connections_per_host
    if not isinstance(slots, int) or slots <= most:
        return None
    return (
        f"one process has {most} connections to a host, fewer than concurrency_limit: raise "
        "http.max_connections_per_host and http.max_connections, or let more processes work"
    )
