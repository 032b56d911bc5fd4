"""How a command line names things: a connection, a provider with its variant, pairs of ``name=value``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.errors import InvalidInputError

if TYPE_CHECKING:
    from fairlead.engine.ports import ConnectionKey

Tenant = Annotated[str, typer.Option("--tenant", "-t", help="Whose connection.")]
Provider = Annotated[str, typer.Option("--provider", "-p", help="At which provider.")]
Account = Annotated[str, typer.Option("--account", "-a", help="Which of the tenant's accounts there.")]
Variant = Annotated[str | None, typer.Option("--variant", help="Variant of the provider's profile.")]
ProviderName = Annotated[
    str, typer.Argument(metavar="NAME", help="A provider, or one of its variants: shopify, shopify:online.")
]
Endpoint = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoint", "-e", metavar="NAME=VALUE", help="Part of the provider's addresses (shop=my-shop)."
    ),
]


def connection_key(tenant: str, provider: str, account: str = "default") -> ConnectionKey:
    """The connection's name, checked before anything is opened."""
    from fairlead.engine.ports import ConnectionKey
    from fairlead.policy.text.names import check_name, check_tenant

    return ConnectionKey(
        check_tenant(tenant),
        check_name("provider", provider, tenant=tenant),
        check_name("account", account, tenant=tenant),
    )


def parse_pairs(given: Iterable[str] | None, option: str) -> dict[str, str]:
    """``NAME=VALUE`` options as a mapping. An error never repeats a value: it may be a secret by mistake."""
    found: dict[str, str] = {}
    for item in given or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InvalidInputError(
                f"a value of {option} is not NAME=VALUE", hint=f"write {option} name=value"
            )
        if name in found:
            raise InvalidInputError(f"{option} names {name!r} twice", hint="give it once")
        found[name] = value
    return found


def provider_and_variant(text: str) -> tuple[str, str | None]:
    """``shopify:online`` is the variant ``online`` of ``shopify``."""
    name, _, variant = text.partition(":")
    return name, variant or None
