"""S21: no name of a stranger reaches the path of a file; what fairlead writes lies in its own folders."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.journal import FileJournal
from fairlead.engine.ports import ConnectionKey
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.errors import FairleadError, InvalidConfigError, InvalidInputError
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.text.names import check_name
from fairlead.testing.issuer import Issuer
from tests.security.conftest import PROVIDERS
from tests.security.figures import tell
from tests.security.vectors import ATTACKED_NAMES, V8
from tests.support.cli import Shell
from tests.support.refresher import Refresher

MINIMAL = 'title = "X"\nstrategy = "static_key"\nname = {name}\n'


def all_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


async def test_S21_tenants_leave_no_mark_on_the_disk(fl: Refresher, honest: Issuer, tmp_path: Path) -> None:
    """Refreshes of tenants with such names are journaled, under names of ours."""
    paths_before = all_below(tmp_path.parent) - all_below(tmp_path)
    served = 0
    for number, tenant in enumerate(ATTACKED_NAMES):
        try:
            grant = honest.register(PROVIDERS[0], f"c{number}", account_id=f"account-{number}")
            connection_id = await connect(fl, tenant, grant.access_token, grant.refresh_token)
        except InvalidInputError:
            continue
        await fl.coordinator.refresh(connection_id, 1)
        served += 1
    new_paths = all_below(tmp_path.parent) - paths_before
    assert any(path.stat().st_size for path in new_paths)
    assert served > 20
    assert all(path.is_relative_to(tmp_path / "journal") for path in new_paths)
    assert all(re.fullmatch(r"[0-9a-f.-]+(\.[a-z]+)?|[a-z_.]+", path.name) for path in new_paths), new_paths
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in new_paths)
    tell("S21", n=served, outside=0)


async def connect(fl: Refresher, tenant: str, access: str, refresh: str) -> UUID:
    grant = Grant(Secret(access), Secret(refresh), expires_in_s=3600.0)
    view = await fl.connections.upsert(ConnectionKey(tenant, PROVIDERS[0]), grant, actor="test")
    return view.connection_id


def test_S21_profiles_are_called_as_their_files(tmp_path: Path) -> None:
    """A profile cannot claim the name of another file, nor lie under a name that is no plain word."""
    folder = tmp_path / "own"
    folder.mkdir()
    for name in ("..", "../shopify", "shopify/../x", "Shopify", "x\n", ".hidden", "a" * 65):
        (folder / "mine.toml").write_text(MINIMAL.format(name=repr(name)), encoding="utf-8")
        with pytest.raises(InvalidConfigError):
            load_profiles([folder])


@pytest.mark.parametrize("name", V8)
def test_S21_a_plain_name_is_no_path(name: str) -> None:
    """Those names that stand in files, metrics and commands."""
    try:
        checked = check_name("provider", name)
    except InvalidInputError:
        return
    assert Path(checked).name == checked
    assert not checked.startswith(".")
    assert (Path("/base") / checked).resolve().parent == Path("/base")


async def test_S21_a_journal_takes_no_folder_of_others(tmp_path: Path) -> None:
    """Neither one that others may look into, nor through a link to one."""
    loose = tmp_path / "loose"
    loose.mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(loose)
    for folder in (loose, tmp_path / "link"):
        with pytest.raises(FairleadError, match="others can look in"):
            async with FileJournal(folder, uuid4()):
                pass
    assert list(loose.iterdir()) == []


async def test_S21_an_export_is_written_where_it_was_told_and_never_over_a_file(shell: Shell) -> None:
    there = shell.folder / "there.json"
    there.write_text("kept")
    done = await shell("dlq", "export", "--output", str(there))
    assert done.code != 0
    assert there.read_text() == "kept"
    link = shell.folder / "link.json"
    link.symlink_to(shell.folder / "elsewhere.json")
    assert (await shell("dlq", "export", "--output", str(link))).code != 0
    assert not (shell.folder / "elsewhere.json").exists()
