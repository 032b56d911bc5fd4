"""``fairlead connections set``: change the settings of a connection, and keep its grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.connections.add import SETTING_HELP
from fairlead.cli.kit.changes import Change, ConfirmOptions, Done, Plan, Unchanged, change_one
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.names import Account, Provider, Tenant, connection_key, parse_pairs
from fairlead.cli.kit.output import Record
from fairlead.errors import InvalidInputError
from fairlead.policy.providers.connection_calls import describe_settings
from fairlead.policy.providers.setting_text import parse_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead.assembly.runtime import Runtime
    from fairlead.assembly.settings import Settings
    from fairlead.engine.ports import SettingsChange


def set_settings(
    call: Invocation,
    *,
    tenant: Tenant,
    provider: Provider,
    account: Account = "default",
    setting: Annotated[
        list[str] | None, typer.Option("--setting", metavar="NAME=VALUE", help=SETTING_HELP)
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="A setting to take away.")
    ] = None,
    options: ConfirmOptions,
) -> Exit | None:
    """Change settings of a connection; settings that you do not name stay, and so does its grant.

    Each process applies them within 5 s, and keeps its counts.
    """
    key = connection_key(tenant, provider, account)
    settings = parse_settings(parse_pairs(setting, "--setting"))
    if not settings and not unset:
        raise InvalidInputError("no setting is named", hint="give --setting NAME=VALUE, or --unset NAME")

    async def find(runtime: Runtime) -> Plan:
        def fields(change: SettingsChange) -> Record:
            profile = runtime.profiles.profile(provider, change.connection.variant)
            return {
                **key._asdict(),
                "settings": dict(change.new_settings),
                "calls": describe_settings(profile, change.new_settings, tenant=tenant),
                "note": _note(change.new_settings, runtime.settings),
            }

        async def act() -> Done | Unchanged:
            applied = await runtime.tokens.connections.configure(key, settings, unset or (), actor=call.actor)
            return (
                Done(fields=fields(applied))
                if applied.has_changes
                else Unchanged("as they were", fields(applied))
            )

        change = await runtime.tokens.connections.change(key, settings, unset or ())
        if not change.has_changes:
            return Unchanged("as they were", fields(change))
        return Change("set", act, fields(change))

    return change_one(call, find, options)


def _note(new_settings: Mapping[str, object], settings: Settings) -> str | None:
    """Return a note if one process has too few connections for the limit of slots."""
    slots, most = new_settings.get("concurrency_limit"), settings.http.max_connections_per_host
    if not isinstance(slots, int) or slots <= most:
        return None
    return (
        f"one process has {most} connections to a host, fewer than concurrency_limit: raise "
        "http.max_connections_per_host and http.max_connections, or let more processes work"
    )
