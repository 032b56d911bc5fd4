"""``fairlead connections authorize`` and ``reauthorize``: the customer's consent, from a terminal. Spec: T12."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from fairlead.cli.connections.callback import Callback, callback_fields
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.names import Account, Endpoint, Provider, Tenant, Variant, connection_key, parse_pairs
from fairlead.cli.kit.output import Record, record_of
from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.tokens.consent import is_loopback

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import ConnectionKey
    from fairlead.engine.tokens.consent import Consent

USUAL_REDIRECT = "http://127.0.0.1:8931/callback"

Redirect = Annotated[
    str,
    typer.Option(
        "--redirect-uri",
        help="Exactly as registered at the provider. If it is not on this host, you paste the address that the "
        "browser ends on. Port 0 takes a free one.",
    ),
]
Wait = Annotated[
    float, typer.Option("--timeout", metavar="S", min=1, max=3600, help="How long to wait for the consent.")
]
Scope = Annotated[
    list[str] | None, typer.Option("--scope", help="Scopes to ask for. Default: the profile's.")
]


def authorize(
    call: Invocation,
    tenant: Tenant,
    provider: Provider,
    account: Account = "default",
    variant: Variant = None,
    endpoint: Endpoint = None,
    scope: Scope = None,
    redirect_uri: Redirect = USUAL_REDIRECT,
    timeout: Wait = 300.0,
) -> Exit | None:
    """Connect an account by its owner's consent: prints the page to open, and waits for the response.

    Uses the authorization code flow with PKCE and a one-time state. Needs client_id (and client_secret) of
    your app in the settings.
    """
    key = connection_key(tenant, provider, account)
    values = parse_pairs(endpoint, "--endpoint")

    async def work(runtime: Runtime) -> Record:
        if await runtime.credentials.read(key) is not None:
            raise InvalidInputError(
                "this connection already exists",
                tenant=tenant,
                provider=provider,
                hint="`fairlead connections reauthorize` gives it a new grant and keeps its id",
            )
        return await _consented(call, runtime, key, redirect_uri, timeout, variant, values, scope or ())

    call.out.record(call.with_runtime(work))
    return None


def reauthorize(
    call: Invocation,
    tenant: Tenant,
    provider: Provider,
    account: Account = "default",
    scope: Scope = None,
    redirect_uri: Redirect = USUAL_REDIRECT,
    timeout: Wait = 300.0,
    link: Annotated[
        bool, typer.Option("--link", help="Only print the page of yours where the customer reconnects.")
    ] = False,
) -> Exit | None:
    """Give a connection a new grant through its owner's consent; its id, variant, endpoint and app stay."""
    key = connection_key(tenant, provider, account)

    async def work(runtime: Runtime) -> Record:
        from fairlead.engine.ports import connection_not_found

        credential = await runtime.credentials.read(key)
        if credential is None:
            raise connection_not_found(key)
        connection = credential.connection
        if link:
            return {"link": _link(runtime, key, connection.connection_id)}
        return await _consented(
            call,
            runtime,
            key,
            redirect_uri,
            timeout,
            connection.variant,
            connection.endpoint,
            scope or (),
            connection.client_id,
        )

    record = call.with_runtime(work)
    if link and not call.out.as_json:
        call.out.text(record["link"])
    else:
        call.out.record(record)
    return None


async def _consented(
    call: Invocation,
    runtime: Runtime,
    key: ConnectionKey,
    redirect_uri: str,
    timeout_s: float,
    variant: str | None,
    endpoint: Mapping[str, str],
    scopes: Sequence[str],
    client_id: str = "",
) -> Record:
    def begin(exact: str) -> tuple[str, Consent]:
        return runtime.tokens.consents.begin(
            key,
            redirect_uri=exact,
            variant=variant,
            endpoint=endpoint,
            scopes=scopes,
            client_id=client_id,
        )

    if is_loopback(redirect_uri):
        async with Callback(redirect_uri) as callback:
            url, consent = begin(callback.redirect_uri)
            _ask(call, url, f"waiting up to {timeout_s:g} s for the browser at {callback.redirect_uri}")
            answer = await callback.wait(consent.state, timeout_s)
    else:
        url, consent = begin(redirect_uri)
        _ask(call, url, "then paste the address that the browser ended on")
        answer = callback_fields(_read_pasted_url())
    view = await runtime.tokens.consents.finish(consent, answer, actor=call.actor)
    runtime.reader.forget(key)
    return record_of(view)


def _ask(call: Invocation, url: str, then: str) -> None:
    """Print the address of the page on a line of its own, so that a program can read it."""
    if call.out.as_json:
        call.out.record({"authorize_url": url})
    else:
        call.out.say("have the owner of the account open this page and consent:")
        call.out.text(url)
    call.out.say(then)


def _read_pasted_url() -> str:
    """Read the address that the browser ended on."""
    if sys.stdin.isatty():
        return str(typer.prompt("address", hide_input=True, err=True))  # it holds the code
    return sys.stdin.readline().strip()


def _link(runtime: Runtime, key: ConnectionKey, connection_id: UUID) -> str:
    link = runtime.reauth_link(key, connection_id)
    if link is None:
        raise InvalidConfigError(
            "no page where customers reconnect is set",
            hint="set [notifications] reauth_link, or run this without --link",
        )
    return link
