"""``fairlead providers``: effective profiles, checks of your own, and their token endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.assembly.config import masked
from fairlead.assembly.providers import ProfileRegistry
from fairlead.cli.kit.changes import AuditEntry, Change, ChangeOptions, Plan, Unchanged, change_each
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, group
from fairlead.cli.kit.names import ProviderName, provider_and_variant
from fairlead.cli.kit.output import Record, fields_of
from fairlead.cli.providers.try_request import try_out
from fairlead.engine.ports import EndpointKey
from fairlead.errors import NotFoundError, SetupError
from fairlead.policy.providers.profile_load import inspect_profiles, read_profile
from fairlead.policy.tokens.window import windows

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.policy.limits.limit import BucketLimit
    from fairlead.policy.providers.profile import Profile

app = group("Provider profiles.")
command(app, "try")(try_out)


@command(app, "list")
def list_profiles(call: Invocation) -> Exit | None:
    """List all profiles with their variants, including your own."""
    rows = [
        _row(profile)
        for base in _profiles(call).all().values()
        for profile in (base, *(base.variant(name) for name in base.variants))
    ]
    call.out.rows(rows, ("provider", "title", "strategy", "ttl_s", "rotates", "replay"))
    return None


@command(app, "show")
def show(call: Invocation, name: ProviderName) -> Exit | None:
    """Show the effective profile, your app, and whether a pause or a breaker stops its token requests."""
    profile = _profile(call, name)
    record = _facts(call, profile)
    record["endpoints_state"] = _endpoints(call, profile.name)
    if call.out.as_json:
        call.out.record(record)
        return None
    states = record.pop("endpoints_state")
    call.out.record(record)
    if states:
        call.out.heading("token endpoints")
        call.out.rows(states, ("client_id", "state", "failures", "open_for_s", "changed_at", "reason"))
    return None


@command(app, "validate")
def validate(
    call: Invocation,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...", help="Profile files or folders. Default: all that are in effect."
        ),
    ] = None,
) -> Exit | None:
    """Check profiles and list all problems, with file, place and hint. Ends with 78 if there are any."""
    if files:
        results = [read_profile(file) for file in _profile_files(files)]
        problems = [problem for result in results if isinstance(result, list) for problem in result]
        valid = sum(not isinstance(result, list) for result in results)
    else:
        folder = call.config().settings.providers_dir
        profiles, problems = inspect_profiles([folder] if folder else [])
        valid = len(profiles)
    rows = [
        {"file": problem.file, "path": problem.path, "problem": problem.message, "hint": problem.hint}
        for problem in problems
    ]
    call.out.rows(rows, ("file", "path", "problem", "hint"), none=f"{valid} profile(s), nothing wrong")
    return Exit.CONFIG if problems else Exit.OK


@command(app, "resume")
def resume(
    call: Invocation,
    *,
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="The provider of the token endpoint.")],
    client_id: Annotated[str | None, typer.Option("--client-id", help="Only of this app.")] = None,
    options: ChangeOptions,
) -> Exit | None:
    """End the pause, breaker and back-offs of a token endpoint once you have repaired the cause.

    Refreshes resume at once. A pause after invalid_client also ends when the client secret in the settings
    changes.
    """

    async def choose(runtime: Runtime) -> list[str]:
        names = [
            str(row["client_id"])
            for row in await runtime.endpoints.search()
            if row["provider"] == provider
            # The row of an app also ends the back-offs of its connections, so it is resumed in any state.
            and (row["state"] != "closed" or " " not in str(row["client_id"]))
            # a row for one host of an app is named "CLIENT_ID HOST"
            and (client_id is None or str(row["client_id"]).partition(" ")[0] == client_id)
        ]
        if not names:
            hint = "see `fairlead status`"
            raise NotFoundError("no refresh has used this token endpoint", provider=provider, hint=hint)
        return names

    async def find(runtime: Runtime, name: str) -> Plan:
        async def act() -> object:
            is_resumed = await runtime.endpoints.resume(EndpointKey(provider, name))
            return None if is_resumed else Unchanged("nothing to lift")

        audit = AuditEntry("endpoint.resumed", {"client_id": name}, provider=provider)
        return Change("resumed", act, {"provider": provider}, audit=audit)

    return change_each(call, choose, find, options, noun="client_id", columns=("provider",))


# ---- facts ---------------------------------------------------------------------------------------


def _profiles(call: Invocation) -> ProfileRegistry:
    return ProfileRegistry(call.config().settings)


def _profile(call: Invocation, name: str) -> Profile:
    return _profiles(call).profile(*provider_and_variant(name))


def _row(profile: Profile) -> Record:
    """Return a row of the list. *replay* is what the provider does with a refresh token that was used before."""
    return {
        "provider": profile.label,
        "title": profile.title,
        "strategy": profile.strategy,
        "ttl_s": profile.ttl_default_s,
        "refreshes": profile.is_refreshable,
        "rotates": profile.rotates,
        "replay": profile.replay.policy if profile.replay else None,
        "replay_at_expiry": profile.replay_at_expiry,
        "unverified": list(profile.unverified),
    }


def _facts(call: Invocation, profile: Profile) -> dict[str, Any]:
    """Return a profile as a JSON record, with its limits in words, and which secrets its app has."""
    app_table = call.config().settings.providers.get(profile.name)
    tables = profile.model_dump(mode="json", exclude_none=True, exclude={"variants", "name", "title"})
    return {
        "name": profile.label,
        "title": profile.title,
        **masked(tables),
        "variants": sorted(profile.variants),
        "admitted": {
            name: _admitted(limit.bucket(key=name, name=name)) for name, limit in profile.limits.calls.items()
        },
        "windows_of_default_life": _windows(profile),
        "app": {
            "client_id": (app_table.client_id if app_table else "") or None,
            "client_secret_set": bool(
                app_table and (app_table.client_secret or app_table.client_secret_file)
            ),
            "private_key_set": bool(app_table and app_table.private_key_file),
        },
    }


def _admitted(bucket: BucketLimit) -> str:
    """Describe a limit. Only part of a window's calls pass at once, so that no window exceeds its limit."""
    return f"{bucket.capacity:g} at once, then {bucket.per_s:g}/s"


def _windows(profile: Profile) -> Record | None:
    """Return when a token of the default lifetime is refreshed, in seconds before its expiry."""
    if profile.ttl_default_s is None:
        return None
    times = windows(profile, profile.ttl_default_s, jitter=0.0)
    return {
        **fields_of(times, "expires_in_s lead_s buffer_s"),
        "critical_s": times.expires_in_s - times.critical_in_s,
    }


def _endpoints(call: Invocation, provider: str) -> list[Record] | None:
    """Return the state of the provider's token endpoints, or None without a database."""

    async def work(runtime: Runtime) -> list[Record]:
        rows = await runtime.endpoints.search()
        return [dict(row) for row in rows if row["provider"] == provider]

    try:
        return call.with_runtime(work)
    except SetupError as error:
        call.out.warn(f"the state of the token endpoint is unknown: {error.message}")
        return None


def _profile_files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        files += sorted(path.glob("*.toml")) if path.is_dir() else [path]
    return files
