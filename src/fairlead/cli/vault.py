"""``fairlead vault``: the master key, the data it seals, and its rotation. Spec: T9.

`rotate-key` does not use `cli.kit.changes`, except for the audit record: a rotation resumes where it stopped, needs
no confirmation because no data is lost, and its exit code depends on the records that remain. `add-key` changes
a file of this host and needs no runtime.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead._checked_file import read_checked
from fairlead.cli.kit.changes import AuditEntry, DryRun, record_audit
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, group
from fairlead.cli.kit.output import Record, fields_of, format_duration
from fairlead.errors import InvalidConfigError, InvalidInputError

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.assembly.settings import Settings
    from fairlead.engine.ports import KeyHolder
    from fairlead.engine.tokens.reencrypt import RotationProgress, RotationReport, VerifyReport

app = group("The master key and what it seals.")

PAGE = 1000
MOST_BYTES = 1 << 16
"""The largest key file that is read, in bytes."""


@command(app, "status")
def status(call: Invocation) -> Exit | None:
    """Show the newest master key, the one that seals now, the keys in use, and processes that lack one.

    New data is sealed under the newest key that every live process holds.
    """

    async def work(runtime: Runtime) -> Record:
        newest = runtime.vault.master_id
        used = sorted({key.master_id for key in await runtime.key_store.samples()})
        holders = await runtime.sessions.key_holders()
        return {
            "master_key": newest,
            "seals": await runtime.vault.sealing_master_id(),
            "in_use": used,
            "data_keys_to_rotate": await _keys_to_rotate(runtime),
            "processes_without_a_key": [
                lack for holder in holders if (lack := _missing_keys({newest, *used}, holder))
            ],
        }

    record = call.with_runtime(work)
    call.out.record(record)
    if record["processes_without_a_key"]:
        call.out.say("restart those processes with all keys, the newest first, before you rotate")
    elif record["data_keys_to_rotate"]:
        call.out.say("older master keys are in use: run `fairlead vault rotate-key`")
    return None


def _missing_keys(needed: set[str], holder: KeyHolder) -> str | None:
    """Name the process and the *needed* keys that it lacks; return None if it has all of them."""
    missing = [] if holder.master_ids is None else sorted(needed - set(holder.master_ids))
    return f"pid {holder.pid} on {holder.host} lacks {', '.join(missing)}" if missing else None


@command(app, "add-key")
def add_key(
    call: Invocation,
    print_it: Annotated[
        bool,
        typer.Option("--print", help="Print the new key instead, for FAIRLEAD_MASTER_KEY or a secret store."),
    ] = False,
    dry_run: DryRun = False,
) -> Exit | None:
    """Make a new master key and put it in front of the others in the key file. Nothing is resealed.

    Then restart every process, one by one if you like: the old key seals until all of them hold the new one.
    After that run `fairlead vault rotate-key`. Keep a copy of the file in a safe place.
    """
    from fairlead.assembly.stores import new_master_key

    key = new_master_key().reveal()
    if print_it:
        call.out.record({"master_key": key})
        return None
    file = _key_file(call.config().settings)
    old = read_checked(file, most_bytes=MOST_BYTES, is_secret=True)
    if not dry_run:
        _replace(file, f"{key}\n".encode() + old.data, old.about)
    call.out.record({"master_key": key.partition(":")[0], "file": file, "added": not dry_run})
    call.out.say("next: restart every process, then `fairlead vault rotate-key`; keep a copy of the file")
    return None


def _key_file(settings: Settings) -> Path:
    """Return the file of the master keys.

    Raises:
        InvalidInputError: The keys do not come from a file.
    """
    vault = settings.vault
    file = vault.master_key_file or settings.home / "master.key"
    elsewhere = vault.kms or vault.master_key
    if elsewhere or not file.exists():
        problem = "the master key comes from the settings" if elsewhere else f"there is no key file {file}"
        hint = "use --print and put the key in front of the others" if elsewhere else "run `fairlead init`"
        raise InvalidInputError(problem, hint=hint)
    return file.resolve()  # so that a symbolic link is not replaced


def _replace(file: Path, data: bytes, about: os.stat_result) -> None:
    """Replace *file* atomically, with its owner, group and mode as *about* has them.

    Where this user may not set the owner, only this user can read the file.
    """
    beside = file.with_name(f"{file.name}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as written:
            with suppress(PermissionError):
                os.fchown(descriptor, about.st_uid, about.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(about.st_mode))
            written.write(data)
            written.flush()
            os.fsync(written.fileno())
        beside.replace(file)
    except FileExistsError:
        hint = f"remove {beside} if no other command is writing it"
        raise InvalidConfigError(f"{beside} already exists", hint=hint) from None
    except OSError as error:
        beside.unlink(missing_ok=True)
        hint = "use --print, and put the key in front of the others yourself"
        raise InvalidConfigError(f"{file} cannot be written: {error.strerror}", hint=hint) from None


@command(app, "verify")
def verify(call: Invocation) -> Exit | None:
    """Open every sealed record and count; nothing is changed. Ends with 4 if one does not open."""

    async def work(runtime: Runtime) -> VerifyReport:
        from fairlead.assembly.stores import reencryptor

        with call.out.progress("opening sealed records") as show_progress:
            return await reencryptor(runtime).verify(lambda done: show_progress(f"{done} records opened"))

    report = call.with_runtime(work)
    call.out.record({**fields_of(report, "checked readable examples"), "problems": dict(report.problems)})
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
    """Reseal everything under the first master key, so that you can delete the older ones.

    First run `fairlead vault add-key`, or put the new key in front of the old one (`new,old` in
    FAIRLEAD_MASTER_KEY), and restart every process. The rotation is refused while a live process lacks the
    new key. Afterwards remove the old key and restart again. Work goes on during a rotation, and an
    interrupted one resumes where it stopped. Ends with 3 if records are left that cannot be opened.
    """
    if dry_run:
        keys = call.with_runtime(_keys_to_rotate)
        call.out.record({"data_keys_to_rotate": keys})
        return None
    report = call.with_runtime(lambda runtime: _rotate(call, runtime, rewrap_only))
    call.out.record(_counts(report))
    return Exit.PARTIAL if report.remaining else Exit.OK


async def _rotate(call: Invocation, runtime: Runtime, rewrap_only: bool) -> RotationReport:
    from fairlead.assembly.stores import reencryptor

    if not rewrap_only:
        longest = format_duration(runtime.vault.retired_writes_s)
        call.out.say(f"this takes seconds; at most {longest} beside processes of an older version")
    words = {"renew": "data keys made", "reseal": "records sealed anew", "rewrap": "data keys wrapped"}
    with call.out.progress("rotating") as show_progress:

        def progress(state: RotationProgress) -> None:
            show_progress(f"{state.done} {words[state.phase]}")

        report = await reencryptor(runtime).rotate(rewrap_only=rewrap_only, progress=progress)
    details = {"master_key": runtime.vault.master_id, **_counts(report)}
    await record_audit(runtime, call.actor, AuditEntry("vault.rotated", details))
    return report


def _counts(report: RotationReport) -> Record:
    return fields_of(report, "renewed resealed rewrapped left=remaining")


async def _keys_to_rotate(runtime: Runtime) -> int:
    """Count the data keys that an older master key wraps."""
    count, last = 0, None
    while page := await runtime.key_store.foreign(
        runtime.vault.master_id, current_only=False, cursor=last, limit=PAGE
    ):
        count += len(page)
        last = page[-1].key_id
    return count
