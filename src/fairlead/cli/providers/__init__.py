"""``fairlead providers``: profiles as they count here, checks of your own, their token endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.assembly.config import masked
from fairlead.cli.kit.bulk_actions import on_each, record_act
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation, command, group
from fairlead.cli.kit.names import ProviderName, provider_and_variant
from fairlead.cli.kit.output import Record
from fairlead.cli.providers.try_request import try_out
from fairlead.errors import NotFoundError, SetupError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.providers import ProfileRegistry
    from fairlead.policy.limits.limit import BucketLimit
    from fairlead.policy.providers.profile import Profile

app = group("Provider profiles.")
command(app, "try")(try_out)


@command(app, "list")
def list_profiles(call: Invocation) -> Exit | None:
    """List every profile with its variants, your own among them."""
    book = _book(call)
    rows = [
        _line(profile)
        for base in book.all().values()
        for profile in (base, *(base.variant(name) for name in base.variants))
    ]
    call.out.rows(rows, ("provider", "title", "strategy", "ttl_s", "rotates", "replay"))
    return None


@command(app, "show")
def show(call: Invocation, name: ProviderName) -> Exit | None:
    """Show a profile as it counts here, your app, and whether its token endpoint is closed off."""
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
        typer.Argument(metavar="[FILE]...", help="Profile files or folders. Default: all that count here."),
    ] = None,
) -> Exit | None:
    """Check profiles and tell everything wrong at once, with file, place and the way out; then 78."""
    from fairlead.policy.providers.profile_load import inspect_profiles, read_profile

    if files:
        found = [read_profile(file) for file in _profile_files(files)]
        problems = [problem for each in found if isinstance(each, list) for problem in each]
        sound = [each.name for each in found if not isinstance(each, list)]
    else:
        own = call.config().settings.providers_dir
        profiles, problems = inspect_profiles([own] if own else [])
        sound = list(profiles)
    rows = [
        {"file": problem.file, "path": problem.path, "problem": problem.what, "hint": problem.hint}
        for problem in problems
    ]
    call.out.rows(rows, ("file", "path", "problem", "hint"), none=f"{len(sound)} profile(s), nothing wrong")
    return Exit.CONFIG if problems else Exit.OK


@command(app, "resume")
def resume(
    call: Invocation,
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="Whose token endpoint.")],
    client_id: Annotated[str | None, typer.Option("--client-id", help="Only of this app.")] = None,
    dry_run: DryRun = False,
) -> Exit | None:
    """End a pause, a breaker and back-offs once the cause is repaired: refreshes resume at once.

    A pause after invalid_client also ends by itself when the client secret in the settings changes.
    """

    async def work(fairlead: Fairlead) -> Sequence[Record]:
        from fairlead.engine.ports import EndpointKey

        runtime = fairlead.runtime
        found = [
            str(row["client_id"])
            for row in await runtime.endpoints.search()
            if row["provider"] == provider
            and (
                row["state"] != "closed" or " " not in str(row["client_id"])
            )  # the app, for back-offs of its connections
            and (client_id is None or str(row["client_id"]).partition(" ")[0] == client_id)  # with its hosts
        ]
        if not found:
            raise NotFoundError(
                "no refresh has asked for this token endpoint",
                provider=provider,
                hint="see `fairlead status`",
            )

        async def one(closed: str) -> str:
            if dry_run:
                return "would be resumed"
            if not await runtime.endpoints.resume(EndpointKey(provider, closed)):
                return "nothing to lift"
            await record_act(
                runtime, "endpoint.resumed", call.actor, {"client_id": closed}, provider=provider
            )
            return "resumed"

        tally = await on_each(found, lambda closed: {"provider": provider, "client_id": closed}, one)
        return tally.rows

    call.out.rows(call.with_fairlead(work), ("provider", "client_id", "result", "error"))
    return None


# ---- facts ---------------------------------------------------------------------------------------


def _book(call: Invocation) -> ProfileRegistry:
    from fairlead.assembly.providers import ProfileRegistry

    return ProfileRegistry(call.config().settings)


def _profile(call: Invocation, name: str) -> Profile:
    return _book(call).profile(*provider_and_variant(name))


def _line(profile: Profile) -> Record:
    return {
        "provider": profile.label,
        "title": profile.title,
        "strategy": profile.strategy,
        "ttl_s": profile.ttl_default_s,
        "refreshes": profile.refreshes,
        "rotates": profile.rotates,
        "replay": profile.replay.policy if profile.replay else None,
        "replay_at_expiry": profile.replay_at_expiry,
        "unverified": list(profile.unverified),
    }


def _facts(call: Invocation, profile: Profile) -> dict[str, Any]:
    app_of = call.config().settings.providers.get(profile.name)
    tables = profile.model_dump(mode="json", exclude_none=True, exclude={"variants", "name", "title"})
    if not call.manner.as_json and "rate" in tables:  # a column named per_s shows a rate, this is a duration
        tables["rate"]["window_s"] = tables["rate"].pop("per_s")
    return {
        "name": profile.label,
        "title": profile.title,
        **masked(tables),
        "variants": sorted(profile.variants),
        "admitted": {
            name: _admitted(limit.bucket(name, name)) for name, limit in profile.limits.calls.items()
        },
        "windows_of_default_life": _windows(profile),
        "app": {
            "client_id": (app_of.client_id if app_of else "") or None,
            "client_secret_set": bool(app_of and (app_of.client_secret or app_of.client_secret_file)),
            "private_key_set": bool(app_of and app_of.private_key_file),
        },
    }


def _admitted(bucket: BucketLimit) -> str:
    """Describe a limit. Only part of a window's calls pass at once, so that no window exceeds its limit."""
    return f"{bucket.capacity:g} at once, then {bucket.per_s:g}/s"


def _windows(profile: Profile) -> Record | None:
    from fairlead.policy.tokens.window import windows

    if profile.ttl_default_s is None:
        return None
    at = windows(profile, profile.ttl_default_s, 0.0)
    return {
        "expires_in_s": at.expires_in_s,
        "lead_s": at.lead_s,
        "buffer_s": at.buffer_s,
        "critical_s": at.expires_in_s - at.critical_in_s,
    }


def _endpoints(call: Invocation, provider: str) -> list[Record] | None:
    """What the fleet knows of the provider's token endpoints; None where the database cannot be asked."""

    async def work(fairlead: Fairlead) -> list[Record]:
        rows = await fairlead.runtime.endpoints.search()
        return [dict(row) for row in rows if row["provider"] == provider]

    try:
        return call.with_fairlead(work)
    except SetupError as error:
        call.out.warn(f"whether it is closed off is not known: {error.message}")
        return None


def _profile_files(given: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in given:
        found += sorted(path.glob("*.toml")) if path.is_dir() else [path]
    return found
