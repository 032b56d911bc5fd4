"""Checks of this host: provider profiles, the journal's disk, the clock, the master keys."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from fairlead._core.secret import Secret
from fairlead.adapters.postgres.postgres_info import server_facts
from fairlead.assembly.doctor.check import Check, Status
from fairlead.assembly.doctor.database_checks import clock_check
from fairlead.assembly.providers import AppRegistry, ProfileRegistry
from fairlead.assembly.settings import Settings
from fairlead.assembly.stores import database_settings, master_keyring
from fairlead.policy.providers.profile import Profile
from fairlead.policy.text.names import listed

SPACE_WARN_BYTES = 256 << 20
SPACE_FAIL_BYTES = 16 << 20


async def profiles_check(settings: Settings) -> Check:
    """Check that all provider profiles and apps can be read."""
    profiles = ProfileRegistry(settings).all()
    AppRegistry(settings)  # reads the files of client secrets and keys
    bare = [
        name for name, app in settings.providers.items() if not app.client_id and _needs_app(profiles[name])
    ]
    detail = f"{len(profiles)} profiles, {len(settings.providers)} apps"
    if bare:
        return Check(
            "profiles",
            "warn",
            f"{detail}; no client_id for {listed(bare)}",
            "add it, or give each connection its own",
        )
    return Check("profiles", "ok", detail)


def _needs_app(profile: Profile) -> bool:
    return profile.strategy != "static_key"


def journal_check(
    folder: Path, *, warn_bytes: int = SPACE_WARN_BYTES, fail_bytes: int = SPACE_FAIL_BYTES
) -> Check:
    """Check that the journal's folder is private, writable, on a disk, and has room."""
    target = _nearest(folder)
    if folder.exists() and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        return Check("journal", "fail", f"{folder} is open to others", f"chmod 700 {folder}")
    try:
        with tempfile.TemporaryFile(dir=target) as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
        status = os.statvfs(target)
    except OSError as error:
        return Check(
            "journal", "fail", f"{folder} cannot be written: {error.strerror}", "set home to a writable disk"
        )
    free = status.f_bavail * status.f_frsize
    detail = f"{folder}, {free >> 20} MiB free"
    if free < warn_bytes:
        level: Status = "fail" if free < fail_bytes else "warn"
        return Check(
            "journal",
            level,
            detail,
            "make room: a process refuses refreshes while it cannot record the response",
        )
    if _in_memory(target):
        hint = "set home to a disk: responses that are not in the database yet are lost with the machine"
        return Check("journal", "warn", f"{detail}, in memory", hint)
    return Check("journal", "ok", detail)


def _nearest(folder: Path) -> Path:
    """Return *folder*, or its nearest parent that exists: a check creates no folder."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())


def _in_memory(folder: Path) -> bool:
    """Return whether *folder* is on a file system in memory. Only Linux reports it."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    real = folder.resolve()
    mounts_by_point = [line.split()[1:3] for line in mounts if len(line.split()) > 2]
    holding = [(point, kind) for point, kind in mounts_by_point if real.is_relative_to(point)]
    return bool(holding) and max(holding, key=lambda mount: len(mount[0]))[1] in {"tmpfs", "ramfs"}


async def inspect_host(settings: Settings, database_url: Secret) -> list[Check]:
    """Check the journal and the clock of this host, for `fairlead status`."""
    info = await server_facts(database_settings(settings, database_url))
    return [journal_check(settings.home / "journal"), clock_check(info)]


async def master_key_check(settings: Settings) -> Check:
    """Check that the master keys can be read."""
    ring = master_keyring(settings)
    others = [key_id for key_id in ring.ids if key_id != ring.current_id]
    if not others:
        return Check("master key", "ok", f"seals by {ring.current_id}")
    detail = f"seals by {ring.current_id} once every live process holds it; also opens {', '.join(others)}"
    return Check("master key", "ok", detail)
