"""``fairlead connections import`` and ``export``: many at once, from and to elsewhere (T12, T14)."""

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
from fairlead.cli.connections.add import Replace, store
from fairlead.cli.connections.files import FORMATS, Entry, Row, UnfitRow, nango_entry, own_entry, read_rows
from fairlead.cli.kit.bulk_actions import Tally, on_each, record_act
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation
from fairlead.cli.kit.names import parse_pairs
from fairlead.cli.kit.output import Record, json_text
from fairlead.errors import CredentialUnreadableError, InvalidInputError, ProviderNotFoundError
from fairlead.policy.text.redact import redact

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import Credential
    from fairlead.policy.providers.profile import Profile

MAX_FILE_BYTES = 256 << 20
MOST_ROWS = 1_000_000
MOST_EXPORTED = 1_000_000
THEIR_WORDS: Mapping[str, tuple[str, ...]] = {
    "shop": ("subdomain",),
    "domain": ("subdomain",),
    "account": ("accountId", "account_id"),
    "realm": ("realmId",),
    "host": ("hostname",),
}
"""What other programs call the endpoint parameters of our profiles."""


def import_connections(
    call: Invocation,
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
    dry_run: DryRun = False,
) -> Exit | None:
    """Store many connections from JSON, CSV, or what Nango's API gives out.

    Each row stands by itself: a bad one is told and the others go on. Ends with 3 if some failed, 1 if all.
    """
    form, rows = read_rows(_text_of(file), form)
    if len(rows) > MOST_ROWS:
        raise InvalidInputError(f"the file holds over {MOST_ROWS} connections", hint="import it in parts")
    names = parse_pairs(map_provider, "--map-provider")

    async def work(fairlead: Fairlead) -> Tally:
        runtime = fairlead.runtime
        seen: set[tuple[str, str, str]] = set()

        def read(row: Row) -> Entry:
            if isinstance(row, UnfitRow):
                raise row.problem
            now = datetime.now(UTC)
            if form != "nango":
                return own_entry(_read_settings(row) if form == "csv" else row, now)
            entry = nango_entry(row, now, names, runtime.profiles.all().__contains__, tenant_from)
            return _fitted(entry, runtime)

        async def one(numbered: tuple[int, Row]) -> str:
            entry = read(numbered[1])
            name = (entry.tenant, entry.provider, entry.account)
            if name in seen:
                raise InvalidInputError(
                    "an earlier row names the same connection",
                    tenant=entry.tenant,
                    provider=entry.provider,
                    hint="give each account of a tenant a name of its own in `account`",
                )
            seen.add(name)
            tell(f"{numbered[0]} of {len(rows)}")
            return await store(runtime, entry, call.actor, replace=replace, dry_run=dry_run)

        with call.out.progress("importing") as tell:
            return await on_each(list(enumerate(rows, 1)), _name, one)

    tally = call.with_fairlead(work)
    call.out.rows(tally.rows, ("row", "tenant", "provider", "account", "result", "error"))
    call.out.say(
        f"{len(tally.rows) - tally.failed} of {len(tally.rows)} {'would be ' if dry_run else ''}imported"
    )
    return tally.exit


def _read_settings(row: Row) -> Row:
    """Cells are text; settings are more."""
    from fairlead.policy.providers.setting_text import settings_of_text

    settings = row.get("settings")
    return row if not isinstance(settings, Mapping) else {**row, "settings": settings_of_text(settings)}


def _name(numbered: tuple[int, Row]) -> Record:
    number, row = numbered
    names = {"tenant": row.get("tenant") or row.get("connection_id"), "provider": row.get("provider")}
    names["account"] = row.get("account", "default")
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


def _fitted(entry: Entry, runtime: Runtime) -> Entry:
    """A foreign entry in our words: its addresses, and the variant of a token that never ends."""
    profile = runtime.profiles.profile(entry.provider, None)
    endless = entry.grant.refresh_token is None and entry.grant.expires_in_s is None
    variant = _endless_variant(profile) if endless and profile.ttl_default_s is not None else None
    wanted = {name: (name, *THEIR_WORDS.get(name, ())) for name in profile.variant(variant).endpoints.params}
    found = {name: _first(entry.config, words) for name, words in wanted.items()}
    endpoint = {name: value for name, value in found.items() if value}
    return changed(entry, grant=changed(entry.grant, endpoint=endpoint, variant=variant))


def _first(config: Mapping[str, str], words: Iterable[str]) -> str | None:
    return next((config[word] for word in words if config.get(word)), None)


def _endless_variant(profile: Profile) -> str | None:
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
    connection whose secrets may be outdated is reported and left out: ends with 3 if some are, 1 if all are.
    The state is exported too: a connection that is revoked, unknown or needs consent stays so when imported.
    """
    if with_secrets and output is None:
        raise InvalidInputError(
            "secrets are not printed", hint="add --output FILE: it is made with mode 0600"
        )

    async def work(fairlead: Fairlead) -> tuple[list[Record], Tally]:
        runtime = fairlead.runtime
        found = await runtime.credentials.search(
            tenant=tenant, provider=provider, state=None, limit=MOST_EXPORTED + 1
        )
        if len(found) > MOST_EXPORTED:
            hint = "export tenant by tenant: --tenant"
            raise InvalidInputError(f"there are over {MOST_EXPORTED} connections", hint=hint)
        if not with_secrets:
            return [_exported(one) for one in found], Tally()
        records, tally = await _with_secrets(runtime, found)
        details = {"count": len(records)}
        await record_act(
            runtime, "connections.exported", call.actor, details, tenant=tenant, provider=provider
        )
        return records, tally

    if output is None:
        records, _ = call.with_fairlead(work)
        for record in records:
            call.out.text(_line(record))
        return None
    descriptor = new_file(output)
    with os.fdopen(descriptor, "w", encoding="utf-8") as written:
        records, tally = call.with_fairlead(work)
        written.writelines(f"{_line(record)}\n" for record in records)
        written.flush()
        os.fsync(written.fileno())
    failed = [row for row in tally.rows if row["result"] == "failed"]
    if failed:
        call.out.rows(failed, ("tenant", "provider", "account", "result", "error"))
    told = {"file": output, "connections": len(records), "with_secrets": with_secrets}
    call.out.record(told | ({"failed": tally.failed} if failed else {}))
    return tally.exit


def new_file(path: Path) -> int:
    """A descriptor of a file that was not there, for its owner alone; InvalidInputError if it was."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise InvalidInputError(f"{path} is there already", hint="name a new file") from None
    except FileNotFoundError:
        raise InvalidInputError(f"{path} is in no folder", hint="make the folder first") from None


def _exported(credential: Credential) -> dict[str, Any]:
    connection = credential.connection
    return {
        "tenant": connection.key.tenant,
        "provider": connection.key.provider,
        "account": connection.key.account,
        "variant": connection.variant,
        "account_id": connection.account_id,
        "client_id": connection.client_id,
        "endpoint": dict(connection.endpoint),
        "settings": dict(connection.settings),
        "expires_at": credential.expires_at,
        "state": credential.state,
        "state_reason": credential.state_reason,
    }


def _line(record: Record) -> str:
    return json_text(record)


async def _with_secrets(runtime: Runtime, found: Iterable[Credential]) -> tuple[list[Record], Tally]:
    """The connections with all that is secret of them, and what became of each."""
    records: list[Record] = []

    async def one(credential: Credential) -> str:
        records.append({**_exported(credential), **await _secrets(runtime, credential)})
        return "exported"

    def name(credential: Credential) -> Record:
        return credential.connection.key._asdict()

    its_own = (
        CredentialUnreadableError,
        ProviderNotFoundError,
    )  # a master key that is missing is everybody's
    return records, await on_each(found, name, one, but=its_own)


async def _secrets(runtime: Runtime, credential: Credential) -> dict[str, Any]:
    """Everything secret of one connection, in clear: for the file and nowhere else."""
    from fairlead.engine.tokens.deps import payload_context
    from fairlead.engine.tokens.sealed_endpoints import check_endpoints
    from fairlead.engine.tokens.sealed_records import decode_secrets

    context = payload_context(credential, credential.generation)
    stored = decode_secrets(await runtime.vault.open(context, credential.sealed))
    check_endpoints(credential, stored)  # whoever imports it would seal what somebody wrote here
    tokens = stored.tokens
    profile = runtime.profiles.profile(credential.connection.key.provider, credential.connection.variant)
    access = "api_key" if profile.strategy == "static_key" else "access_token"
    found = {
        access: tokens.access_token,
        "refresh_token": tokens.refresh_token,
        "client_secret": stored.client_secret,
        "private_key": stored.private_key,
    }
    return {
        **{name: secret.reveal() for name, secret in found.items() if secret},
        "key_id": stored.key_id,
        "scope": tokens.scope,
        "token_type": tokens.token_type,
    }
