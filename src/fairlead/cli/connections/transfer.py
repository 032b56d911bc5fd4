"""``fairlead connections import`` and ``export``: many connections from and to files. Spec: T12, T14."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace as changed
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead._checked_file import read_checked
from fairlead.cli.connections.add import Replace, plan_store
from fairlead.cli.connections.files import (
    FORMATS,
    ConnectionEntry,
    Row,
    UnfitRow,
    nango_entry,
    own_entry,
    read_rows,
)
from fairlead.cli.kit.changes import AuditEntry, BulkResult, ConfirmOptions, carry_out, for_each, record_audit
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.names import parse_pairs
from fairlead.cli.kit.output import Record, fields_of, json_text
from fairlead.errors import CredentialUnreadableError, InvalidInputError, ProviderNotFoundError
from fairlead.policy.providers.setting_text import parse_settings
from fairlead.policy.text.redact import redact

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import Credential
    from fairlead.policy.providers.profile import Profile

MAX_FILE_BYTES = 256 << 20
MOST_ROWS = 1_000_000
MOST_EXPORTED = 1_000_000
THEIR_NAMES: Mapping[str, tuple[str, ...]] = {
    "shop": ("subdomain",),
    "domain": ("subdomain",),
    "account": ("accountId", "account_id"),
    "realm": ("realmId",),
    "host": ("hostname",),
}
"""What other programs call the endpoint parameters of our profiles."""


def import_connections(
    call: Invocation,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file (mode 0600), or - for standard input.")],
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "auto",
    map_provider: Annotated[
        list[str] | None,
        typer.Option("--map-provider", metavar="THEIRS=OURS", help="What a foreign provider is called here."),
    ] = None,
    tenant_from: Annotated[
        str | None,
        typer.Option("--tenant-from", metavar="PATH", help="Where a Nango connection names its tenant."),
    ] = None,
    replace: Replace = False,
    options: ConfirmOptions,
) -> Exit | None:
    """Store many connections from JSON, CSV, or the responses of Nango's API.

    A row that cannot be stored is reported, and the others are stored. Ends with 3 if some failed, 1 if all.
    """
    form, rows = read_rows(_text_of(file), form)
    if len(rows) > MOST_ROWS:
        raise InvalidInputError(f"the file holds over {MOST_ROWS} connections", hint="import it in parts")
    our_names = parse_pairs(map_provider, "--map-provider")

    async def work(runtime: Runtime) -> BulkResult:
        stored: set[tuple[str, str, str]] = set()

        async def store(numbered: tuple[int, Row]) -> Record:
            entry = _read_entry(runtime, numbered[1], form, our_names, tenant_from)
            name = (entry.tenant, entry.provider, entry.account)
            if name in stored:
                raise InvalidInputError(
                    "an earlier row names the same connection",
                    tenant=entry.tenant,
                    provider=entry.provider,
                    hint="give each account of a tenant a name of its own in `account`",
                )
            stored.add(name)
            show_progress(f"{numbered[0]} of {len(rows)}")
            change = await plan_store(runtime, entry, call.actor, replace=replace)
            return await carry_out(call, runtime, change, options)

        with call.out.progress("importing") as show_progress:
            return await for_each(list(enumerate(rows, 1)), _name, store)

    bulk = call.with_runtime(work)
    call.out.rows(bulk.rows, ("row", "tenant", "provider", "account", "result", "error"))
    verb = "would be imported" if options.dry_run else "imported"
    call.out.say(f"{len(bulk.rows) - bulk.failures} of {len(bulk.rows)} {verb}")
    return bulk.exit


def _read_entry(
    runtime: Runtime, row: Row, form: str, our_names: Mapping[str, str], tenant_from: str | None
) -> ConnectionEntry:
    """Return the connection of one row, or raise the problem of the row."""
    if isinstance(row, UnfitRow):
        raise row.problem
    now = datetime.now(UTC)
    if form != "nango":
        return own_entry(_read_settings(row) if form == "csv" else row, now)
    entry = nango_entry(row, now, our_names, runtime.profiles.all().__contains__, tenant_from)
    return _translated(entry, runtime)


def _read_settings(row: Row) -> Row:
    """Parse the settings of a CSV row: all cells are text."""
    settings = row.get("settings")
    return row if not isinstance(settings, Mapping) else {**row, "settings": parse_settings(settings)}


def _name(numbered: tuple[int, Row]) -> Record:
    number, row = numbered
    names = {
        "tenant": row.get("tenant") or row.get("connection_id"),
        "provider": row.get("provider"),
        "account": row.get("account", "default"),
    }
    return {"row": number, **{noun: redact(str(name)) if name else name for noun, name in names.items()}}


def _text_of(file: str) -> str:
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            data = read_checked(
                Path(file), most_bytes=MAX_FILE_BYTES, is_secret=True, error=InvalidInputError
            ).data
        if len(data) > MAX_FILE_BYTES:
            raise InvalidInputError(
                f"the file is larger than {MAX_FILE_BYTES} bytes", hint="import it in parts"
            )
        return data.decode("utf-8-sig")
    except PermissionError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{file} cannot be read ({type(error).__name__})", hint="name a UTF-8 file"
        ) from None


def _translated(entry: ConnectionEntry, runtime: Runtime) -> ConnectionEntry:
    """Return a foreign entry with our endpoint parameters, and our variant for a token that never expires."""
    profile = runtime.profiles.profile(entry.provider, None)
    endless = entry.grant.refresh_token is None and entry.grant.expires_in_s is None
    variant = _endless_variant(profile) if endless and profile.ttl_default_s is not None else None
    params = profile.variant(variant).endpoints.params
    values = {name: _first(entry.config, (name, *THEIR_NAMES.get(name, ()))) for name in params}
    endpoint = {name: value for name, value in values.items() if value}
    return changed(entry, grant=changed(entry.grant, endpoint=endpoint, variant=variant))


def _first(config: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((config[name] for name in names if config.get(name)), None)


def _endless_variant(profile: Profile) -> str | None:
    """Return the variant for tokens that never expire, else None."""
    return next((name for name in profile.variants if profile.variant(name).strategy == "static_key"), None)


# ---- export --------------------------------------------------------------------------------------


def export(
    call: Invocation,
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's.")] = None,
    provider: Annotated[str | None, typer.Option("--provider", "-p", help="Only at this provider.")] = None,
    with_secrets: Annotated[
        bool, typer.Option("--with-secrets", help="Tokens and keys too; needs --output.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A new file (mode 0600).")
    ] = None,
) -> Exit | None:
    """Write connections in the format that import reads, one JSON object per line; secrets only on request.

    A rotating refresh token works in one program only: stop this one before another uses an export. A
    connection with possibly outdated secrets is reported and left out: ends with 3 if some are, 1 if all are.
    The state is exported too: a connection that is revoked, unknown or needs consent stays so when imported.
    """
    if with_secrets and output is None:
        raise InvalidInputError(
            "secrets are not printed", hint="add --output FILE: it is created with mode 0600"
        )

    async def work(runtime: Runtime) -> tuple[list[Record], BulkResult]:
        credentials = await runtime.credentials.search(
            tenant=tenant, provider=provider, state=None, limit=MOST_EXPORTED + 1
        )
        if len(credentials) > MOST_EXPORTED:
            hint = "export tenant by tenant: --tenant"
            raise InvalidInputError(f"there are over {MOST_EXPORTED} connections", hint=hint)
        if not with_secrets:
            return [_exported(credential) for credential in credentials], BulkResult()
        records, bulk = await _with_secrets(runtime, credentials)
        entry = AuditEntry("connections.exported", {"count": len(records)}, tenant, provider)
        await record_audit(runtime, call.actor, entry)
        return records, bulk

    if output is None:
        records, _ = call.with_runtime(work)
        for record in records:
            call.out.text(json_text(record))
        return None
    descriptor = new_file(output)
    with os.fdopen(descriptor, "w", encoding="utf-8") as written:
        records, bulk = call.with_runtime(work)
        written.writelines(f"{json_text(record)}\n" for record in records)
        written.flush()
        os.fsync(written.fileno())
    failures = [row for row in bulk.rows if row["result"] == "failed"]
    if failures:
        call.out.rows(failures, ("tenant", "provider", "account", "result", "error"))
    record = {"file": output, "connections": len(records), "with_secrets": with_secrets}
    call.out.record(record | ({"failed": bulk.failures} if failures else {}))
    return bulk.exit


def new_file(path: Path) -> int:
    """Create a file that only its owner can read, and return its descriptor.

    Raises:
        InvalidInputError: The file exists, or its folder does not.
    """
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise InvalidInputError(f"{path} exists already", hint="name a new file") from None
    except FileNotFoundError:
        raise InvalidInputError(f"{path} has no folder", hint="create the folder first") from None


def _exported(credential: Credential) -> dict[str, Any]:
    """Return a connection in the format that import reads, without its secrets."""
    connection = credential.connection
    return {
        **connection.key._asdict(),
        **fields_of(connection, "variant account_id client_id"),
        "endpoint": dict(connection.endpoint),
        "settings": dict(connection.settings),
        **fields_of(credential, "expires_at state state_reason"),
    }


async def _with_secrets(
    runtime: Runtime, credentials: Iterable[Credential]
) -> tuple[list[Record], BulkResult]:
    """Return the connections with all of their secrets, and the result of each."""
    records: list[Record] = []

    async def add(credential: Credential) -> Record:
        records.append({**_exported(credential), **await _secrets(runtime, credential)})
        return {"result": "exported"}

    def name(credential: Credential) -> Record:
        return credential.connection.key._asdict()

    # A missing master key concerns all connections, and ends the command.
    expected = (CredentialUnreadableError, ProviderNotFoundError)
    return records, await for_each(credentials, name, add, expected=expected)


async def _secrets(runtime: Runtime, credential: Credential) -> dict[str, Any]:
    """Return all secrets of one connection, in clear: for the file and nowhere else."""
    from fairlead.engine.tokens.deps import payload_context
    from fairlead.engine.tokens.sealed_endpoints import check_endpoints
    from fairlead.engine.tokens.sealed_records import decode_secrets

    context = payload_context(credential, credential.generation)
    stored = decode_secrets(await runtime.vault.open(context, credential.sealed))
    check_endpoints(credential, stored)  # an import would seal changed addresses
    tokens = stored.tokens
    profile = runtime.profiles.profile(credential.connection.key.provider, credential.connection.variant)
    access = "api_key" if profile.strategy == "static_key" else "access_token"
    secrets = {
        access: tokens.access_token,
        "refresh_token": tokens.refresh_token,
        "client_secret": stored.client_secret,
        "private_key": stored.private_key,
    }
    return {
        **{name: secret.reveal() for name, secret in secrets.items() if secret},
        "key_id": stored.key_id,
        "scope": tokens.scope,
        "token_type": tokens.token_type,
    }
