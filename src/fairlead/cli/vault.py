"""``fairlead vault``: the master key, what it seals, and its rotation (T9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.acts import record_act
from fairlead.cli.exits import Exit
from fairlead.cli.invocation import DryRun, Invocation, command, group
from fairlead.cli.output import duration

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.engine.reseal import RotationProgress, RotationReport, VerifyReport

app = group("The master key and what it seals.")

PAGE = 1000


@command(app, "status")
def status(call: Invocation) -> Exit | None:
    """Tell which master key seals, which others are still in use, and whether each is here."""

    async def work(fairlead: Fairlead) -> dict[str, Any]:
        runtime = fairlead.runtime
        current = runtime.vault.master_id
        used = sorted({key.master_id for key in await runtime.key_store.samples()})
        stale = await _keys_to_rotate(fairlead)
        return {"master_key": current, "in_use": used, "data_keys_to_rotate": stale}

    found = call.with_fairlead(work)
    call.out.record(found)
    if found["data_keys_to_rotate"]:
        call.out.say("older master keys are in use: `fairlead vault rotate-key` ends that")
    return None


@command(app, "verify")
def verify(call: Invocation) -> Exit | None:
    """Open every sealed record and count; nothing is changed. Ends with 4 if one does not open."""

    async def work(fairlead: Fairlead) -> VerifyReport:
        from fairlead.ground import resealer

        with call.out.progress("opening sealed records") as tell:
            return await resealer(fairlead.runtime).verify(lambda done: tell(f"{done} records opened"))

    report = call.with_fairlead(work)
    call.out.record(
        {
            "checked": report.checked,
            "readable": report.readable,
            "problems": dict(report.problems),
            "examples": report.examples,
        }
    )
    return Exit.UNHEALTHY if report.problems else Exit.OK


@command(app, "rotate-key")
def rotate_key(
    call: Invocation,
    rewrap_only: Annotated[
        bool,
        typer.Option("--rewrap-only", help="Keep the data keys, only wrap them anew: quick, and weaker."),
    ] = False,
    dry_run: DryRun = False,
) -> Exit | None:
    """Seal everything under the first master key, so that older ones can be thrown away.

    Before: put the new key in front of the old one (`new,old` in FAIRLEAD_MASTER_KEY, or two lines in the key
    file) and restart every process. After: take the old key away and restart again. It goes on where it was
    interrupted, and nothing stops meanwhile. Ends with 3 if records are left that nobody can open.
    """
    if dry_run:
        keys = call.with_fairlead(_keys_to_rotate)
        call.out.record({"data_keys_to_rotate": keys})
        return None
    report = call.with_fairlead(lambda fairlead: _rotate(call, fairlead, rewrap_only))
    call.out.record(_counts(report))
    return Exit.PARTIAL if report.left else Exit.OK


async def _rotate(call: Invocation, fairlead: Fairlead, rewrap_only: bool) -> RotationReport:
    from fairlead.ground import resealer

    runtime = fairlead.runtime
    if not rewrap_only:
        wait = duration(runtime.vault.retired_writes_s)
        call.out.say(f"other processes may seal under a retired key for {wait} more: this waits for them")
    words = {"renew": "data keys made", "reseal": "records sealed anew", "rewrap": "data keys wrapped"}
    with call.out.progress("rotating") as tell:

        def progress(now: RotationProgress) -> None:
            tell(f"{now.done} {words[now.phase]}")

        report = await resealer(runtime).rotate(rewrap_only=rewrap_only, progress=progress)
    await record_act(
        runtime, "vault.rotated", call.actor, {"master_key": runtime.vault.master_id, **_counts(report)}
    )
    return report


def _counts(report: RotationReport) -> dict[str, int]:
    return {
        "renewed": report.renewed,
        "resealed": report.resealed,
        "rewrapped": report.rewrapped,
        "left": report.left,
    }


async def _keys_to_rotate(fairlead: Fairlead) -> int:
    """Data keys that another master than the first wrapped."""
    runtime = fairlead.runtime
    count, after = 0, None
    while page := await runtime.key_store.foreign(
        runtime.vault.master_id, current_only=False, after=after, limit=PAGE
    ):
        count += len(page)
        after = page[-1].key_id
    return count
