"""Files with secrets or settings are read only if nobody else could have written or read them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fairlead._checked_file import read_checked
from fairlead.assembly.config import load
from fairlead.assembly.providers import AppRegistry
from fairlead.assembly.settings import Settings
from fairlead.cli.connections.transfer import _text_of
from fairlead.cli.kit.secret_input import read_secrets
from fairlead.errors import FairleadError, InvalidConfigError, InvalidInputError
from fairlead.policy.providers.profile_load import read_profile


def _file(folder: Path, text: str = "x", mode: int = 0o600) -> Path:
    file = folder / "file.toml"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_file_of_its_owner_is_read(tmp_path: Path) -> None:
    assert read_checked(_file(tmp_path, "text"), is_secret=True).data == b"text"
    assert read_checked(_file(tmp_path, "text", 0o644)).data == b"text"


def test_a_secret_may_be_read_by_a_group_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _file(tmp_path, "text", 0o440)
    group = file.stat().st_gid
    monkeypatch.setattr(os, "getegid", lambda: group + 1)
    monkeypatch.setattr(os, "getgroups", lambda: [group + 2, group])
    assert read_checked(file, is_secret=True).data == b"text"
    monkeypatch.setattr(os, "getgroups", lambda: [group + 2])
    with pytest.raises(InvalidConfigError, match="others can read it"):
        read_checked(file, is_secret=True)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InvalidConfigError, match="others can write it hint: chmod go-w"):
        read_checked(_file(tmp_path, mode=mode))


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o610, 0o660])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InvalidInputError, match="others can read it hint: chmod 600"):
        read_checked(_file(tmp_path, mode=mode), is_secret=True, error=InvalidInputError)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    file = _file(tmp_path)
    os.chown(file, 65534, -1)
    with pytest.raises(InvalidConfigError, match="belongs to another user hint: chown 0"):
        read_checked(file)


def test_irregular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        with pytest.raises(InvalidConfigError, match="not a regular file"):
            read_checked(name)


def test_a_link_is_followed_and_the_file_behind_it_is_checked(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(_file(tmp_path, mode=0o666))
    with pytest.raises(InvalidConfigError, match="others can write"):
        read_checked(link)


def test_a_file_over_the_bound_is_refused_and_not_cut(tmp_path: Path) -> None:
    assert len(read_checked(_file(tmp_path, "x" * 100), most_bytes=100).data) == 100
    with pytest.raises(InvalidConfigError, match="larger than 99 bytes"):
        read_checked(_file(tmp_path, "x" * 100), most_bytes=99)


def _app(file: Path, name: str) -> AppRegistry:
    return AppRegistry(
        Settings.model_validate({"providers": {"hubspot": {"client_id": "a", name: str(file)}}})
    )


READERS: dict[str, Callable[[Path], object]] = {
    "a client secret": lambda file: _app(file, "client_secret_file"),
    "a private key": lambda file: _app(file, "private_key_file"),
    "a URL from the environment": lambda file: load({"FAIRLEAD_REDIS__URL_FILE": str(file)}),
    "a secret of the command line": lambda file: read_secrets([f"api_key=file:{file}"], None),
    "an import": lambda file: _text_of(str(file)),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_each_reader_of_secrets_refuses_what_others_can_read(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    read(_file(tmp_path, "redis://localhost"))
    with pytest.raises(FairleadError, match="others can read it"):
        read(_file(tmp_path, "redis://localhost", 0o644))


def test_settings_may_be_read_by_others_as_long_as_they_hold_no_secret(tmp_path: Path) -> None:
    plain = 'log.level = "debug"\n'
    assert load({}, _file(tmp_path, plain, 0o644)).settings.log.level == "debug"
    secret = f'{plain}providers.hubspot.client_secret = "a-secret"\n'
    assert load({}, str(_file(tmp_path, secret))).settings.providers["hubspot"].client_secret
    overlay = "providers.hubspot.overlay"
    address = f'{overlay}.endpoints.token = "https://other.example/token"\n'
    hidden = f'{address}{overlay}.extra_fields.refresh = {{ client_secret = "a-secret", resource = "r" }}\n'
    shown = dict(row[:2] for row in load({}, _file(tmp_path, hidden)).rows())[overlay]
    assert "a-secret" not in shown
    assert "https://other.example/token" in shown
    tmp_path.chmod(0o700)
    assert load({}, _file(tmp_path, secret, 0o644)), "the folder keeps others out"
    with pytest.raises(InvalidConfigError, match="others can write it"):
        load({}, _file(tmp_path, plain, 0o666))
    with TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        assert load({}, _file(Path(folder), address, 0o644))
        for secret_text in (secret, hidden):
            with pytest.raises(InvalidConfigError, match="others can read it"):
                load({}, _file(Path(folder), secret_text, 0o644))


def test_a_profile_that_others_may_write_or_replace_is_a_problem_of_its_own(tmp_path: Path) -> None:
    for file_mode, folder_mode, expected in (
        (0o666, 0o755, "others can write it"),
        (0o644, 0o777, "others can replace its files"),
        (0o644, 0o1777, "Field required"),
    ):
        tmp_path.chmod(folder_mode)
        profile = read_profile(_file(tmp_path, "", file_mode))
        assert isinstance(profile, list)
        assert expected in str(profile)
