"""Master keys as they are written: base64 or hex, one or several, from a setting, a file or a hook."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead._core.secret import Secret
from fairlead.adapters.vault import MasterKey, MasterKeyring, generate, load_keyring
from fairlead.adapters.vault.master import fingerprint, parse_keys
from fairlead.errors import InvalidConfigError, MasterKeyMissingError

KEY = bytes(range(32))
OTHER = bytes(range(100, 132))
BASE64, HEX = base64.b64encode(KEY).decode(), KEY.hex()


class Hook:
    """A KMS for the tests below, found by its dotted path."""

    master_id = "hook-1"

    async def wrap(self, plain: bytes, context: bytes) -> bytes:
        return plain + context

    async def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        return wrapped.removesuffix(context)


class Nameless(Hook):
    master_id = "not a name"


hook = Hook()
not_a_hook = object


@pytest.mark.parametrize(
    "written",
    [BASE64, BASE64.rstrip("="), HEX, HEX.upper(), base64.urlsafe_b64encode(KEY).decode(), f"  {BASE64}\n"],
)
def test_a_key_is_read_however_it_is_written(written: str) -> None:
    [key] = parse_keys(written, "here")
    assert key.master_id == fingerprint(KEY)


def test_several_keys_the_first_one_wraps() -> None:
    ring = load_keyring(Secret(f"new:{base64.b64encode(OTHER).decode()},\n {BASE64}"))
    assert ring.current_id == "new"
    assert ring.ids == ("new", fingerprint(KEY))


@given(st.binary(min_size=32, max_size=32).filter(lambda key: len(set(key)) >= 8))
def test_every_random_key_comes_back(key: bytes) -> None:
    for written in (base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode(), key.hex()):
        assert parse_keys(f"id:{written}", "here")[0].master_id == "id"
        assert parse_keys(written, "here")[0].master_id == fingerprint(key)


def test_a_generated_key_is_usable_and_named_by_its_fingerprint() -> None:
    first, other = generate(), generate()
    assert first != other
    [key] = parse_keys(first, "here")
    assert first.startswith(f"{key.master_id}:")
    assert repr(key) == f"MasterKey('{key.master_id}')"


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (base64.b64encode(bytes(31)).decode(), "32 bytes"),
        (HEX[:-1], "32 bytes"),
        ("not base64!", "32 bytes"),
        (base64.b64encode(bytes(32)).decode(), "not random"),
        (f"white space:{BASE64}", "unusable id"),
        (f":{BASE64}", "unusable id"),
        (f"{'x' * 65}:{BASE64}", "unusable id"),
        (f"a:{BASE64},a:{base64.b64encode(OTHER).decode()}", "same id"),
    ],
)
def test_invalid_master_key_is_refused_and_not_repeated(written: str, why: str) -> None:
    with pytest.raises(InvalidConfigError, match=why) as refused:
        load_keyring(Secret(written))
    assert BASE64[:8] not in str(refused.value)
    assert "hint:" in str(refused.value)


@pytest.mark.parametrize("written", ["", " \n,, "])
def test_an_empty_setting_is_no_key(written: str) -> None:
    with pytest.raises(MasterKeyMissingError):
        load_keyring(Secret(written))


def test_no_key_at_all() -> None:
    with pytest.raises(MasterKeyMissingError, match="FAIRLEAD_MASTER_KEY"):
        load_keyring()
    with pytest.raises(MasterKeyMissingError):
        MasterKeyring([])


def file_of(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "master.key"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    for mode in (0o600, 0o400):
        ring = load_keyring(file=file_of(tmp_path, f"{BASE64}\n", mode))
        assert ring.ids == (fingerprint(KEY),)
        (tmp_path / "master.key").unlink()


@pytest.mark.parametrize("mode", [0o660, 0o604, 0o644, 0o601])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = file_of(tmp_path, BASE64, mode)
    with pytest.raises(InvalidConfigError, match="chmod 600"):
        load_keyring(file=path)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(MasterKeyMissingError, match="not there"):
        load_keyring(file=tmp_path / "absent")
    with pytest.raises(InvalidConfigError):
        load_keyring(file=tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InvalidConfigError, match="not a regular file"):
        load_keyring(file=tmp_path / "pipe")
    with pytest.raises(InvalidConfigError):
        load_keyring(file=file_of(tmp_path, "\udcff\u20ac".encode("utf-8", "replace").decode()))


def test_setting_before_file_so_that_a_move_is_a_rotation(tmp_path: Path) -> None:
    ring = load_keyring(Secret(base64.b64encode(OTHER).decode()), file_of(tmp_path, BASE64))
    assert ring.ids == (fingerprint(OTHER), fingerprint(KEY))


@pytest.mark.parametrize("name", ["Hook", "hook"])
async def test_a_hook_stands_first(name: str) -> None:
    ring = load_keyring(Secret(BASE64), kms=f"{__name__}:{name}")
    assert ring.ids == ("hook-1", fingerprint(KEY))
    wrapped = await ring.wrap(KEY, "acme", b"key id", "hook-1")
    assert await ring.unwrap(wrapped, "acme", b"key id", "hook-1") == KEY


@pytest.mark.parametrize(
    "path",
    ["no.such.module:x", f"{__name__}:absent", f"{__name__}:not_a_hook", f"{__name__}:Nameless", "a b:c"],
)
def test_invalid_kms_hook_is_refused(path: str) -> None:
    with pytest.raises(InvalidConfigError, match="KMS hook"):
        load_keyring(kms=path)


async def test_wrapping_is_bound_to_tenant_key_and_master() -> None:
    ring = MasterKeyring([MasterKey(KEY)])
    wrapped = await ring.wrap(OTHER, "acme", b"1" * 16, ring.current_id)
    assert await ring.unwrap(wrapped, "acme", b"1" * 16, ring.current_id) == OTHER
    for tenant, key_id in (("acm", b"1" * 16), ("acme", b"2" * 16)):
        with pytest.raises(Exception, match="altered"):
            await ring.unwrap(wrapped, tenant, key_id, ring.current_id)
