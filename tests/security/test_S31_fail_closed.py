"""S31: a check that breaks says no: each check raises in turn, and what it guards does not happen."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.journal import FileJournal
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.vault import load_keyring
from fairlead.cli.connections.callback import Callback
from fairlead.engine.ports import ConnectionKey
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.engine.tokens.consent import Consents
from fairlead.errors import FairleadError
from fairlead.policy.notifications.webhook import ID, SIGNATURE, TIMESTAMP, sign, signing_key
from fairlead.testing.issuer import Issuer
from fairlead.testing.webhook import verify
from tests.security.conftest import PROVIDERS
from tests.security.test_S28_consent import begin, consented, request_count
from tests.security.ways_out import METHODS, resolving, way_out
from tests.support.altered import alter
from tests.support.issuer import fetch
from tests.support.refresher import Refresher
from tests.support.rows import rows
from tests.unit.engine.test_pipeline import GET, World, answer


class Broken(Exception):
    """What no check was written for."""


def broken(*_args: object, **_fields: object) -> NoReturn:
    raise Broken


GRANT = Grant(Secret("at"), Secret("rt"), expires_in_s=3600.0)

# ---- where requests may go


JUDGES = ("AddressPolicy.check", "AddressPolicy.check_literal", "AddressPolicy.scheme_refusal", "kind_of")


@pytest.mark.parametrize(
    ("method", "check"),
    [*((method, check) for method in METHODS for check in JUDGES), ("call", "AddressPolicy.origin_refusal")],
)
async def test_S31_an_address_that_cannot_be_judged_is_not_dialled(
    method: str, check: str, dialled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, ["8.8.8.8"])
    monkeypatch.setattr(f"fairlead.adapters.http.resolver.{check}", broken)
    async with way_out(method) as ask:
        for url in ("https://api.example.com/x", "https://8.8.4.4/x"):
            with pytest.raises(Broken):
                await ask(url)
    assert dialled == []


# ---- whose answer, whose name


@pytest.mark.parametrize("check", ["is_other_issuer", "hmac.compare_digest"])
async def test_S31_an_answer_that_cannot_be_judged_is_not_taken(
    check: str, fl: Refresher, honest: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consents = Consents(fl.deps, fl.connections)
    page, consent = begin(consents)
    brought = await consented(page)
    monkeypatch.setattr(f"fairlead.engine.tokens.consent.{check}", broken)
    with pytest.raises(Broken):
        await consents.finish(consent, brought, actor="test")
    monkeypatch.undo()
    assert request_count(honest) == 0
    assert await fl.deps.store.read(consent.key) is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_S31_a_callback_that_cannot_judge_ends_no_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    results: list[object] = []
    loop.set_exception_handler(lambda _loop, context: results.append(context.get("exception")))
    async with Callback("http://127.0.0.1:0/callback") as callback:
        waiting = asyncio.create_task(callback.wait(Secret("state"), 20.0))
        await asyncio.sleep(0)
        monkeypatch.setattr("fairlead.cli.connections.callback.hmac.compare_digest", broken)
        assert (await fetch(f"{callback.redirect_uri}?state=state&code=c")).raw == b""
        assert not waiting.done()
        waiting.cancel()
    assert [type(result) for result in results] == [Broken]


@pytest.mark.parametrize("check", ["check_customer", "check_name", "Connections.check"])
async def test_S31_a_name_that_cannot_be_judged_is_not_stored(
    check: str, fl: Refresher, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"fairlead.engine.tokens.connections.{check}", broken)
    with pytest.raises(Broken):
        await fl.connections.upsert(ConnectionKey("acme", PROVIDERS[0]), GRANT, actor="test")
    assert await rows(database, "SELECT 1 FROM connection") == []


# ---- what is sealed, and its keys


@pytest.mark.parametrize("check", ["vault.unseal", "vault.key_of"])
async def test_S31_a_record_that_cannot_be_checked_is_not_opened(
    check: str, fl: Refresher, honest: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fl.connect(honest, PROVIDERS[0])
    monkeypatch.setattr(f"fairlead.adapters.vault.{check}", broken)
    with pytest.raises(Broken):
        await fl.reader.token(ConnectionKey("acme", PROVIDERS[0]))


def test_S31_a_key_file_whose_mode_cannot_be_judged_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "master.key"
    file.touch(mode=0o600)
    file.write_bytes(base64.b64encode(bytes(range(32))))
    assert load_keyring(None, file, None).current_id
    monkeypatch.setattr("fairlead._checked_file.check_private", broken)
    with pytest.raises(Broken):
        load_keyring(None, file, None)


async def test_S31_a_journal_folder_that_cannot_be_judged_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.adapters.journal.owners._checked_folder", broken)
    with pytest.raises(Broken):
        async with FileJournal(tmp_path / "journal", uuid4()):
            pass
    assert not (tmp_path / "journal").exists()


# ---- leave to send, and what is let in


@pytest.mark.parametrize(
    "check",
    ["policy.providers.origin.AllowedOrigins.host_of", "engine.calls.open_breakers.OpenBreakerCache.check"],
)
async def test_S31_a_call_that_cannot_be_judged_is_not_sent(
    check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World([answer(200)])
    monkeypatch.setattr(f"fairlead.{check}", broken)
    with pytest.raises(Broken):
        await world.call(GET)
    assert world.sent == []


async def test_S31_without_admission_no_call_is_sent() -> None:
    world = World([Broken()])  # it is raised where the gate is entered
    with pytest.raises(Broken):
        await world.call(GET)
    assert world.sent == []


async def test_S31_without_leave_no_token_is_sent(fl: Refresher, honest: Issuer) -> None:
    connection_id = await fl.connect(honest, PROVIDERS[0])
    alter(fl.deps.store, claim=broken)  # which takes the permit of the endpoint, too
    with pytest.raises(Broken):
        await fl.coordinator.refresh(connection_id, 1)
    assert request_count(honest) == 0


async def test_S31_a_mark_that_cannot_be_set_sends_nothing(fl: Refresher, honest: Issuer) -> None:
    connection_id = await fl.connect(honest, PROVIDERS[0])
    alter(fl.deps.store, mark_sent=broken)
    with pytest.raises((Broken, FairleadError)):
        await fl.coordinator.refresh(connection_id, 1)
    assert request_count(honest) == 0


def test_S31_a_signature_that_cannot_be_checked_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    secret, body = "s" * 32, b"{}"
    headers = {ID: "1", TIMESTAMP: "1000", SIGNATURE: sign(signing_key(Secret(secret)), "1", 1000, body)}
    assert verify(secret, headers, body, now=lambda: 1000.0) == {}
    for check in ("matches", "signing_key"):
        with monkeypatch.context() as patch:
            patch.setattr(f"fairlead.testing.webhook.{check}", broken)
            with pytest.raises(Broken):
                verify(secret, headers, body, now=lambda: 1000.0)
