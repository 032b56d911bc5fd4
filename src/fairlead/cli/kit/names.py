"""Names on the command line: connections, providers with variants, pairs of ``name=value``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from fairlead.engine.ports import ConnectionKey
from fairlead.errors import InvalidInputError
from fairlead.policy.text.names import check_name, check_tenant

Tenant = Annotated[str, typer.Option("--tenant", "-t", help="The tenant of the connection.")]
Provider = Annotated[str, typer.Option("--provider", "-p", help="The provider of the connection.")]
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
    """Return a connection's key, after checking its parts."""
    return ConnectionKey(
        check_tenant(tenant),
        check_name("provider", provider, tenant=tenant),
        check_name("account", account, tenant=tenant),
    )


def parse_pairs(items: Iterable[str] | None, option: str) -> dict[str, str]:
    """Return ``NAME=VALUE`` options as a mapping. Errors repeat no value, which may be a secret by mistake."""
    pairs: dict[str, str] = {}
    for item in items or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InvalidInputError(
                f"a value of {option} is not NAME=VALUE", hint=f"write {option} name=value"
            )
        if name in pairs:
            raise InvalidInputError(f"{option} names {name!r} twice", hint="give it once")
        pairs[name] = value
    return pairs


def provider_and_variant(text: str) -> tuple[str, str | None]:
    """Split ``shopify:online`` into the provider ``shopify`` and its variant ``online``."""
    name, _, variant = text.partition(":")
    return name, variant or None
