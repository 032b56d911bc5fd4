"""The issuer as a process: ready line, control API, clean ends, crashes, speed."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from fairlead.errors import DependencyUnavailableError, InvalidInputError
from fairlead.testing import Issuer, IssuerConfig, IssuerProcess, ProviderConfig, judge, read_ledger
from tests.support.issuer import fetch, refresh_form
from tests.support.standstill import ran_s

CONFIG = IssuerConfig(
    providers={"p": ProviderConfig.model_validate({"policy": "strict", "ttl_s": 3600})},
)
MODULE = ("-m", "fairlead.testing.issuer")
PIPE = asyncio.subprocess.PIPE

pytestmark = pytest.mark.slow


async def _spawn(*arguments: str) -> tuple[asyncio.subprocess.Process, str]:
    """A child started by hand, and its URL from the one line it prints."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, *MODULE, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    assert child.stdout is not None
    async with asyncio.timeout(20):
        ready = json.loads(await child.stdout.readline())
    assert ready["pid"] == child.pid
    return child, ready["url"]


async def test_toml_and_sigterm(tmp_path: Path) -> None:
    config, ledger = tmp_path / "issuer.toml", tmp_path / "ledger.ndjson"
    config.write_text(
        '[providers.mercadolibre]\npolicy = "strict"\ndialect = "mercadolibre"\nttl_s = [6, 12]\n'
        '[[connections]]\nprovider = "mercadolibre"\nconnection = "acme"\nrefresh_token = "rt_mine"\n'
        '[[rules]]\nquirk = "rate_limited"\ntimes = 1\n'
    )
    child, url = await _spawn("--port", "0", "--ledger", str(ledger), "--config", str(config))
    statuses = [(await fetch(f"{url}/mercadolibre/token", refresh_form("rt_mine"))).status for _ in range(2)]
    child.terminate()
    await child.communicate()
    assert (child.returncode, statuses) == (0, [429, 200])
    written = read_ledger(ledger)
    verdict = judge(written)
    assert written.complete
    assert (verdict.provider_posts, verdict.answered_failures, verdict.violations) == (2, 1, ())
    assert "rt_mine" not in ledger.read_text()


async def test_issuer_dies_with_its_parent(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.ndjson"
    child, _ = await _spawn("--ledger", str(ledger), "--die-with-parent")
    assert child.stdin is not None
    child.stdin.close()  # what the kernel does when the parent dies
    async with asyncio.timeout(10):
        await child.wait()
    await child.communicate()
    assert child.returncode == 0
    assert read_ledger(ledger).complete


async def test_dying_with_the_parent_needs_a_pipe() -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *MODULE,
        "--die-with-parent",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    _, err = await child.communicate()
    assert child.returncode == 2
    assert "needs a pipe" in err.decode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"providers": {"p": {"policy": "grace"}}}', "grace_s"),
        ('{"colour": "red"}', "colour"),
        ("{", "cannot read the configuration"),
    ],
)
async def test_settings_that_cannot_be_stop_it_with_a_hint(tmp_path: Path, text: str, words: str) -> None:
    config = tmp_path / "issuer.json"
    config.write_text(text)
    child = await asyncio.create_subprocess_exec(
        sys.executable, *MODULE, "--config", str(config), stdout=PIPE, stderr=PIPE
    )
    out, err = await child.communicate()
    assert (child.returncode, out) == (2, b"")
    assert words in err.decode()
    assert "hint:" in err.decode()
    assert "Traceback" not in err.decode()


async def test_a_taken_port_stops_it_with_a_hint(tmp_path: Path) -> None:
    async with Issuer() as second_issuer:
        config = CONFIG.model_copy(update={"port": int(second_issuer.url.rsplit(":", 1)[1])})
        issuer = IssuerProcess(config, ledger=tmp_path / "ledger.ndjson")
        with pytest.raises(DependencyUnavailableError, match="cannot start") as refused:
            await issuer.start()
        assert "hint:" in str(refused.value)


async def test_a_synchronous_ledger_survives_sigkill(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.ndjson"
    async with IssuerProcess(CONFIG, ledger=ledger, sync=True) as issuer:
        (grant,) = (await issuer.control("register", connections=[{"provider": "p", "connection": "acme"}]))[
            "grants"
        ]
        token = grant["refresh_token"]
        for _ in range(20):
            token = str((await fetch(f"{issuer.url}/p/token", refresh_form(token))).json["refresh_token"])
        await issuer.control("hold", point="processed")
        asking = asyncio.create_task(fetch(f"{issuer.url}/p/token", refresh_form(token)))
        assert await issuer.control("reached", hold=1) == {"reached": True}
        issuer.kill()
        assert (await asking).raw == b""
    written = read_ledger(ledger)
    verdict = judge(written)
    assert not written.complete
    assert (verdict.provider_posts, verdict.generations, verdict.violations) == (21, 21, ())
    assert [(burn.generation, burn.cause) for burn in verdict.burns] == [(21, "lost_answer")]
    last = verdict.rotations[-1]
    assert (last.delivered, last.t_answered) == (False, None)


async def test_a_later_run_appends_to_a_torn_ledger(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.ndjson"
    config = CONFIG.model_copy(update={"ledger": ledger})
    async with Issuer(config) as issuer:
        issuer.register("p", "acme")
    with ledger.open("a") as file:
        file.write('{"t":1.0,"seq":4,"e')
    async with Issuer(config) as issuer:
        issuer.register("p", "acme")
        assert [entry.run for entry in issuer.ledger().of("started")] == [1, 2]


async def test_the_control_api(tmp_path: Path) -> None:
    async with IssuerProcess(CONFIG, ledger=tmp_path / "ledger.ndjson") as issuer:
        which = {"provider": "q", "connection": "acme"}
        await issuer.control("provider", name="q", policy="stable", ttl_s=5)
        (grant,) = (await issuer.control("register", connections=[which]))["grants"]

        async def status() -> int:
            form = refresh_form(grant["refresh_token"])
            return (await fetch(f"{issuer.url}/q/token", form)).status

        rule = (await issuer.control("rule", quirk={"status": 418}, connection="acme"))["rule"]
        assert await status() == 418
        await issuer.control("unrule", rule=rule)
        assert await status() == 200
        await issuer.control("rule", quirk="status_502")
        assert await status() == 502
        await issuer.control("clear")
        await issuer.control("invalid_client", client_id="app")
        assert await status() == 401
        await issuer.control("invalid_client", client_id="app", on=False)
        hold = (await issuer.control("hold", point="arrived", connection="acme"))["hold"]
        assert await issuer.control("reached", hold=hold, timeout_s=0.01) == {"reached": False}
        asking = asyncio.create_task(status())
        assert await issuer.control("reached", hold=hold) == {"reached": True}
        await issuer.control("release", hold=hold)
        assert await asking == 200
        await issuer.control("revoke", **which)
        assert await status() == 400
        assert (await issuer.control("grant", **which))["grant"]["revoked"] == "revoked"
        assert len((await issuer.control("grants"))["grants"]) == 1
        await issuer.control("flush")
        assert judge(issuer.ledger()).provider_posts == 6


@pytest.mark.parametrize(
    ("operation", "data", "words"),
    [
        ("dance", {}, "no control 'dance'"),
        ("rule", {"quirk": "nope"}, "no quirk named"),
        ("rule", {"quirk": "message", "times": 0}, "times"),
        ("revoke", {"provider": "p", "connection": "nobody"}, "not registered"),
        ("register", {"connections": [{"provider": "q", "connection": "x"}]}, "not configured"),
        (
            "register",
            {"connections": [{"provider": "p", "connection": x, "refresh_token": "rt_one"} for x in "ab"]},
            "belongs to another connection",
        ),
        ("provider", {"name": "Not A Name"}, "no provider name"),
        ("release", {"hold": 99}, "no hold 99"),
    ],
)
async def test_the_control_api_refuses_with_a_reason(
    operation: str, data: dict[str, object], words: str
) -> None:
    async with Issuer(CONFIG) as issuer:
        reply = await fetch(f"{issuer.url}/_control/{operation}", json.dumps(data).encode())
        assert reply.status == 400
        assert words in str(reply.json["error"])
        assert "hint:" in str(reply.json["error"])
        assert (await fetch(f"{issuer.url}/_control/clear", b"[")).status == 400


async def test_rules_travel_to_the_process_as_they_are(tmp_path: Path) -> None:
    rules = [{"quirk": "slow_head"}, {"quirk": "expires_in_zero"}, {"quirk": {"slow_head_s": 0.01}}]
    data = {**CONFIG.model_dump(), "rules": rules[1:] + rules[:1]}
    async with IssuerProcess(IssuerConfig.read(data, "the test"), ledger=tmp_path / "l") as issuer:
        which = {"provider": "p", "connection": "acme"}
        (grant,) = (await issuer.control("register", connections=[which]))["grants"]
        began_s = time.monotonic()
        reply = await fetch(f"{issuer.url}/p/token", refresh_form(grant["refresh_token"]))
        assert (reply.json["expires_in"], ran_s(began_s) < 0.9) == (0, True)


async def test_a_process_that_was_not_started_says_so(tmp_path: Path) -> None:
    issuer = IssuerProcess(CONFIG, ledger=tmp_path / "ledger.ndjson")
    with pytest.raises(InvalidInputError, match="not running"):
        await issuer.control("clear")
    await issuer.stop()


# ---- speed: printed, not asserted ------------------------------------------------------------------

_TOKEN = re.compile(rb'"refresh_token":"([^"]+)"')


class _Hammer(asyncio.Protocol):
    """Refreshes one connection as fast as the issuer answers, *times* times."""

    def __init__(self, token: str, times: int) -> None:
        self._token, self._left = token.encode(), times
        self.done = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        assert self._transport is not None
        form = b"grant_type=refresh_token&client_id=app&refresh_token=" + self._token
        head = b"POST /p/token HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(form)
        self._transport.write(head + form)

    def data_received(self, data: bytes) -> None:
        match = _TOKEN.search(data)
        assert match is not None, data
        self._token, self._left = match[1], self._left - 1
        if self._left:
            self._ask()
        else:
            self._transport.close()  # type: ignore[union-attr]
            self.done.set_result(None)


def _same(hammer: _Hammer) -> _Hammer:
    return hammer


async def test_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clients, times = 16, 250
    async with IssuerProcess(CONFIG, ledger=tmp_path / "ledger.ndjson") as issuer:
        expected = [{"provider": "p", "connection": f"c{number}"} for number in range(clients)]
        grants = (await issuer.control("register", connections=expected))["grants"]
        port = int(issuer.url.rsplit(":", 1)[1])
        loop, start_mono = asyncio.get_running_loop(), time.monotonic()
        hammers = [_Hammer(grant["refresh_token"], times) for grant in grants]
        for hammer in hammers:
            await loop.create_connection(partial(_same, hammer), "127.0.0.1", port)
        await asyncio.gather(*(hammer.done for hammer in hammers))
        took_s = time.monotonic() - start_mono
    with capsys.disabled():
        print(json.dumps({"issuer_posts_per_s": round(clients * times / took_s), "posts": clients * times}))
    verdict = judge(issuer.ledger())
    assert verdict.provider_posts == verdict.generations == clients * times
    assert (verdict.violations, verdict.burnt) == ((), 0)


async def test_sigint_is_a_clean_end_too(tmp_path: Path) -> None:
    child, _ = await _spawn("--ledger", str(tmp_path / "ledger.ndjson"), "--seed", "7", "--sync")
    child.send_signal(signal.SIGINT)
    await child.communicate()
    assert child.returncode == 0
    assert read_ledger(tmp_path / "ledger.ndjson").complete
