"""What happens in a canary run: all that a user does, from the first command to a crash."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fairlead.testing.issuer import ProviderConfig
from tests.security.canary import places
from tests.security.canary.ground import Ground
from tests.support.cli import Shell
from tests.support.issuer import fetch
from tests.support.standstill import patience

Last = Callable[[Ground, Shell], Awaitable[None]]
WITHIN_S = 300.0
LOOK_S = 0.1
AT_ONCE = 4
BROKEN = """
SECRET = open({path!r}).read()
def connect(password):
    raise ConnectionError(f"cannot log in with {{password}} at https://me:{{password}}@vendor.example")
fl = connect(SECRET)
"""
DUE = """
SELECT count(*) FROM job
WHERE tenant_id = 'acme' AND (state = 'running' OR state = 'available' AND run_at <= now())
"""
ENQUEUE = """
import asyncio
from shop import fl

async def enqueue():
    async with fl:
        await fl.enqueue("dies", tenant="acme")

asyncio.run(enqueue())
"""
MOODS = {"dying": ("refuse",) * 9, "stuttering": ("garbage", "fail") * 9}
"""How the token endpoint answers these tenants."""
LIFE_S = {"dying": "1", "stuttering": "1"}
"""Their access tokens are at their end, so the worker refreshes them at once."""
SHOWN = (
    ("status",),
    ("config", "show", "--origin"),
    ("providers", "list"),
    ("providers", "show", "hubspot"),
    ("providers", "validate"),
    ("connections", "list"),
    ("connections", "show", "--tenant", "acme", "--provider", "hubspot"),
    ("connections", "show", "--tenant", "dying", "--provider", "hubspot"),
    ("connections", "test", "--tenant", "acme", "--provider", "mercadolibre"),
    ("connections", "refresh", "--tenant", "acme", "--provider", "hubspot"),
    ("connections", "refresh", "--tenant", "dying", "--provider", "hubspot"),
    ("connections", "refresh", "--tenant", "robot", "--provider", "google"),
    ("connections", "export"),
    ("connections", "reauthorize", "--tenant", "dying", "--provider", "hubspot", "--link"),
    ("providers", "try", "hubspot", "--connection", "acme"),
    ("providers", "try", "hubspot", "--connection", "acme", "--send"),
    ("jobs", "list", "--limit", "1000"),
    ("jobs", "pauses"),
    ("dlq", "list", "--status", "any"),
    ("dlq", "stats", "--by", "code"),
    ("dlq", "export", "--status", "any"),
    ("dlq", "export", "--status", "any", "--format", "csv"),
    ("schedules", "list"),
    ("gate", "status", "--tenant", "acme"),
    ("gate", "doctor"),
    ("gate", "overrides"),
    ("gate", "orphans"),
    ("tenants", "show", "acme"),
    ("tenants", "fairness"),
    ("vault", "status"),
    ("vault", "verify"),
    ("doctor",),
)


async def live(ground: Ground, shell: Shell, last: Last) -> None:
    """All that works, and *last*; what came out is in the places of *ground*."""
    shell.environ = dict(ground.environ) | {"PYTHONASYNCIODEBUG": "1"}
    async with places.overheard(ground.endpoints.redis_url.removeprefix("unix://")) as overheard:
        await say(ground, shell, "migrate")
        await connect(ground, shell)
        await work(ground)
        await look(ground, shell)
        await rotate(ground, shell)
        await crash(ground)
        await last(ground, shell)
    ground.add("commands that Redis was sent", bytes(overheard))


async def live_without_filter(ground: Ground, shell: Shell) -> None:
    """The ablation: accounts are connected, and a worker does its work, with nothing taken out of text."""
    shell.environ = dict(ground.environ)
    await say(ground, shell, "migrate")
    await connect(ground, shell)
    await work(ground, "--bare")


async def say(
    ground: Ground,
    shell: Shell,
    *arguments: str,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = ("--json", "--verbose"),
) -> str:
    """Run one command, for programs and for talkative people; what it told the first."""
    output = ""
    for option in options:
        done = await shell.start(*arguments, option, env=env).end(stdin)
        if "this should not happen" in done.err:
            ground.unforeseen.append(f"{arguments} {sorted(env or ())}: {done.err[-300:]}")
        ground.add(f"command {' '.join(arguments[:2])}", f"{done.out}\n{done.err}")
        output = output or done.out
    return output


async def together(commands: Iterable[Coroutine[Any, Any, str]]) -> None:
    """Run *commands*, a few at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def run_one(command: Coroutine[Any, Any, str]) -> None:
        async with room:
            await command

    await asyncio.gather(*map(run_one, commands))


# ---- accounts ------------------------------------------------------------------------------------


async def connect(ground: Ground, shell: Shell) -> None:
    """Accounts of each kind; one by consent."""
    canaries, moods = ground.canaries, ground.tattler.moods
    for tenant in ("acme", "dying", "stuttering"):
        refresh_token = canaries.shapeless(f"refresh token of {tenant}")
        access_token = canaries.shapeless(f"access token of {tenant}")
        tokens = {"refresh_token": refresh_token, "access_token": access_token}
        moods[refresh_token] = list(MOODS.get(tenant, ()))
        account = ("--tenant", tenant, "--provider", "hubspot", "--expires-in", LIFE_S.get(tenant, "3600"))
        await say(ground, shell, "connections", "add", *account, stdin=json.dumps(tokens))
    key = canaries.of("sk_live_", "API key")
    account = ("--tenant", "acme", "--provider", "stripe")
    await say(ground, shell, "connections", "add", *account, stdin=key)
    await _robot(ground, shell)
    await _consent(ground, shell)


async def _robot(ground: Ground, shell: Shell) -> None:
    """An account that signs with a private key."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    for number, line in enumerate(pem.splitlines()[2:6]):
        ground.canaries.keep(f"line {number} of a private key", line)
    file = ground.secret_file("robot.pem", pem)
    account = ("--tenant", "robot", "--provider", "google", "--variant", "service_account")
    app = ("--client-id", "robot", "--key-id", "1", "--secret", f"private_key=file:{file}")
    await say(ground, shell, "connections", "add", *account, *app)


async def _consent(ground: Ground, shell: Shell) -> None:
    ground.issuer.play("mercadolibre", ProviderConfig(policy="strict", dialect="mercadolibre"))
    account = ("--tenant", "acme", "--provider", "mercadolibre")
    back_to = ("--redirect-uri", "http://127.0.0.1:0/callback", "--timeout", "20", "--json")
    child = shell.start("connections", "authorize", *account, *back_to)
    page = json.loads(await child.line())["authorize_url"]  # shows the state: a person has to open it
    answer = (await fetch(f"{page}&login_hint=acme")).headers["location"]
    query = {name: values[0] for name, values in parse_qs(urlsplit(answer).query).items()}
    ground.canaries.keep("state of a consent", query["state"])
    ground.canaries.keep("code of a consent", query["code"])
    forged = await fetch(answer.replace(query["state"], ground.canaries.random("forged state")))
    assert forged.status == 400
    ground.add("answers of the callback", forged.raw + (await fetch(answer)).raw)
    done = await shell.end(child)
    ground.add("command connections authorize", done.out + done.err)
    assert done.code == 0, done.err


# ---- work ----------------------------------------------------------------------------------------


async def work(ground: Ground, *options: str) -> None:
    """A worker and a program of the user's do what there is to do."""
    worker = await ground.start(
        "worker", *PRODUCT, *options, "run", "--app", "shop:fl", "--verbose", "--json"
    )
    program = await ground.start("program", "-m", "tests.security.canary.program")
    async with patience(WITHIN_S):
        ground.add("command lines", places.command_lines())
        assert await program.wait() == 0, (ground.folder / "program.err").read_text()[-3000:]
        await until_done(ground)
        ground.add("command lines", places.command_lines())
        worker.send_signal(signal.SIGUSR1)
        worker.terminate()
        assert await worker.wait() == 0, (ground.folder / "worker.err").read_text()[-3000:]


PRODUCT = ("-m", "tests.security.canary.product")


async def until_done(ground: Ground) -> None:
    """No job runs or is due, and the webhook has come twice: it was refused once."""
    there = {"search_path": "fairlead"}
    connection = await asyncpg.connect(ground.endpoints.database_url, server_settings=there)
    try:
        while await connection.fetchval(DUE) or len(ground.tattler.heard) < 2:
            await asyncio.sleep(LOOK_S)
    finally:
        await connection.close()


async def look(ground: Ground, shell: Shell) -> None:
    """Every command that shows something, and what people do with dead letters."""
    await together(say(ground, shell, *arguments) for arguments in SHOWN)
    letters = (await shell("dlq", "list", "--json", "--limit", "100")).rows
    assert len(letters) > 10, letters
    about = [("dlq", "show", letter["dead_letter_id"]) for letter in letters[:3]]
    about += [("jobs", act, letter["job_id"]) for letter in letters[:3] for act in ("show", "explain")]
    await together(say(ground, shell, *arguments) for arguments in about)
    await say(ground, shell, "dlq", "redrive", letters[0]["dead_letter_id"])
    await say(ground, shell, "dlq", "resolve", letters[1]["dead_letter_id"], "--reason", "mended")


async def rotate(ground: Ground, shell: Shell) -> None:
    """Another master key."""
    new = ground.canaries.keep("new master key", base64.b64encode(secrets.token_bytes(32)).decode())
    old = (ground.inputs / "master_key").read_text()
    ground.secret_file("master_key", f"k2:{new}\n{old}")
    await say(ground, shell, "vault", "rotate-key", "--rewrap-only")
    await say(ground, shell, "vault", "status")


async def crash(ground: Ground) -> None:
    """A worker dies by a signal in the middle of a handler that holds a secret."""
    enqueued = await ground.start("enqueue", "-c", ENQUEUE)
    assert await enqueued.wait() == 0, (ground.folder / "enqueue.err").read_text()[-3000:]
    worker = await ground.start("crash", *PRODUCT, "run", "--app", "shop:fl", "--verbose")
    async with patience(WITHIN_S):
        assert await worker.wait() == -signal.SIGABRT


# ---- what goes wrong before anything works ---------------------------------------------------------


async def wrong_starts(ground: Ground, shell: Shell) -> None:
    """Settings that cannot be used, with secrets in them, and an account that cannot be reached by them."""
    shell.environ = dict(ground.environ)
    await say(ground, shell, "migrate")
    await _consent(ground, shell)
    canaries = ground.canaries
    word, shape = canaries.word, canaries.random
    wrong = {
        "DATABASE_URL": [
            f"postgresql://shop:{word('password of a database that is away')}@127.0.0.1:1/x",
            f"postgresql://shop:{word('password beside a wrong port')}@127.0.0.1:port/x",
            f"postgresql://shop:{word('password with a slash')}/{word('what follows it')}@127.0.0.1/x",
            f"{shape('secret where a DSN belongs')}",
        ],
        "REDIS_URL": [
            f"redis://shop:{word('password of a Redis that is away')}@127.0.0.1:1/0",
            f"redis://:{word('password beside a wrong port of Redis')}@127.0.0.1:port/0",
            f"redis://:{word('password of Redis with a slash')}/{word('what follows in it')}@127.0.0.1/0",
            f"{shape('secret where the URL of Redis belongs')}",
        ],
        "FAIRLEAD_MASTER_KEY": [f"k1:{shape('master key of a wrong length')}", shape("bare master key")],
        "FAIRLEAD_WORKER__CONCURRENCY": [shape("secret where a number belongs")],
        "FAIRLEAD_LOG__LEVEL": [shape("secret where a level belongs")],
        "FAIRLEAD_WORKER__NONSENSE": [shape("secret in an unknown setting")],
        "FAIRLEAD_NOTIFICATIONS__WEBHOOK_SECRET": [f"whsec_!{shape('webhook secret that is not base64')}"],
        "FAIRLEAD_NOTIFICATIONS__WEBHOOK_URL": [f"ftp://h/{shape('secret in a wrong address')}"],
        "FAIRLEAD_PROVIDERS": [shape("secret where a table belongs")],
    }
    starts: list[Coroutine[Any, Any, str]] = []
    for name, values in wrong.items():
        for value in values:
            unset = {"FAIRLEAD_MASTER_KEY_FILE": ""} if name == "FAIRLEAD_MASTER_KEY" else {}
            env = {name: value, **unset}
            starts.append(say(ground, shell, "doctor", env=env, options=("--verbose",)))
            if name not in RUNS_ANYWAY:
                starts.append(say(ground, shell, "run", env=env, options=("--json",)))
    await together(starts)
    await _wrong_files(ground, shell)


RUNS_ANYWAY = frozenset({"REDIS_URL", "FAIRLEAD_NOTIFICATIONS__WEBHOOK_URL"})
"""With these a worker starts and works, without Redis or without notices."""


async def _wrong_files(ground: Ground, shell: Shell) -> None:
    canaries = ground.canaries
    torn = ground.secret_file(
        "torn.toml", f'[database]\nurl = "{canaries.word("secret in a torn file")}\nx = '
    )
    await say(ground, shell, "doctor", "--config", str(torn))
    path = str(ground.secret_file("broken_secret", canaries.random("secret in the app's own error")))
    (ground.folder / "broken.py").write_text(BROKEN.format(path=path))
    await say(ground, shell, "run", "--app", "broken:fl")
    listed = [
        {
            "tenant": "a",
            "provider": "hubspot",
            "secrets": {"refresh_token": 5},
            "x": canaries.random("import"),
        }
    ]
    entries = ground.secret_file("import.jsonl", "\n".join(map(json.dumps, listed)))
    await say(ground, shell, "connections", "import", str(entries))
    proxy = {"HTTPS_PROXY": f"http://me:{canaries.word('password of a proxy')}@127.0.0.1:1"}
    proxy |= {"HTTP_PROXY": proxy["HTTPS_PROXY"], "FAIRLEAD_HTTP__TRUST_ENV": "true"}
    account = ("--tenant", "acme", "--provider", "mercadolibre")
    await say(ground, shell, "connections", "refresh", *account, env=proxy)
    await say(ground, shell, "doctor", env=proxy)
