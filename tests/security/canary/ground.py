"""Where a canary run happens: servers of its own that log every statement, users with passwords, a folder."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
from redis.asyncio import Redis

from fairlead.adapters.embedded import EmbeddedServers, Endpoints
from fairlead.testing.issuer import Issuer
from tests.lint.tree import ROOT
from tests.security.canary.tattler import Tattler
from tests.support.canaries import Canaries
from tests.support.servers import TEST_SETTINGS, temporary_root

TALKATIVE = {
    "log_statement": "all",
    "log_parameter_max_length": "-1",
    "log_parameter_max_length_on_error": "-1",
}
PREFIX = "canary"
HERE = Path(__file__).parent

SETTINGS = """
home = "home"
redis.prefix = "{prefix}"
http.allow_private_addresses = true
refresh.cooldown_s = 0
refresh.request_deadline_s = 3
refresh.total_deadline_s = 6
refresh.lease_s = 10
refresh.not_sent_delays_s = [0.1]
worker.poll_s = 0.1
worker.shutdown_grace_s = 5
schedules.refresh_scan = "@every 2s"
schedules.urgent_scan = "@every 2s"
schedules.dead_letters = "@every 2s"
notifications.reauth_link = "https://app.example/reconnect?t={{tenant}}&p={{provider}}"

[providers.mercadolibre]
client_id = "app"
client_secret = "{client_secret}"

[providers.mercadolibre.overlay]
allow_http = true
endpoints.token = "{issuer}/mercadolibre/token"
endpoints.authorize = "{issuer}/mercadolibre/authorize"
endpoints.params = {{}}
unset = ["endpoints.params.site"]
test.url = "{issuer}/mercadolibre/resource"

[providers.hubspot]
client_id = "app"
client_secret_file = "{inputs}/client_secret_of_hubspot"

[providers.hubspot.overlay]
allow_http = true
endpoints.token = "{tattler}/token"
endpoints.authorize = "{issuer}/mercadolibre/authorize"
apis.rest.url = "{tattler}/api"

[providers.google.overlay]
allow_http = true
endpoints.token = "{tattler}/token"

[providers.stripe.overlay]
allow_http = true
apis.rest.url = "{tattler}/api"
"""


@dataclass
class Ground:
    """The folder of the run, its servers and the secrets that go in. *inputs* holds the files that a user
    keeps secrets in; it alone is not searched."""

    folder: Path
    inputs: Path
    endpoints: Endpoints
    server_files: Path
    canaries: Canaries
    tattler: Tattler
    issuer: Issuer
    environ: dict[str, str] = field(default_factory=dict)
    said: dict[str, bytes] = field(default_factory=dict)
    """What came out so far, by place."""
    unforeseen: list[str] = field(default_factory=list)
    """Commands that took a user's mistake for one of ours."""
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    def secret_file(self, name: str, secret: str) -> Path:
        """A file of the user's that holds *secret*."""
        path = self.inputs / name
        path.write_text(secret)
        path.chmod(0o600)
        return path

    def add(self, name: str, output: str | bytes) -> None:
        """Something more came out of *place*."""
        raw = output.encode("utf-8", "surrogateescape") if isinstance(output, str) else output
        self.said[name] = self.said.get(name, b"") + raw + b"\n"

    async def start(
        self, table_name: str, *arguments: str, env: Mapping[str, str] | None = None
    ) -> asyncio.subprocess.Process:
        """Start Python with *arguments* in the folder, its developer mode on; output goes to files."""
        streams = [(self.folder / f"{table_name}.{name}").open("ab") for name in ("out", "err")]
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-X", "dev", "-W", "default", *arguments),
                cwd=self.folder,
                env={**self.environ, **(env or {})},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=streams[0],
                stderr=streams[1],
            )
            self.processes.append(process)
            return process
        finally:
            for stream in streams:
                stream.close()


@asynccontextmanager
async def ground(folder: Path, canaries: Canaries) -> AsyncIterator[Ground]:
    """Everything that a run stands on, with secrets in all places that take one."""
    with temporary_root() as root:
        async with Tattler(canaries) as tattler, Issuer() as issuer:
            servers = EmbeddedServers(root, settings={**TEST_SETTINGS, **TALKATIVE})
            endpoints = await asyncio.to_thread(servers.start)
            inputs = folder / "inputs"
            inputs.mkdir(mode=0o700)
            new_ground = Ground(folder, inputs, endpoints, root, canaries, tattler, issuer)
            await _with_passwords(new_ground)
            _with_settings(new_ground)
            try:
                yield new_ground
            finally:
                for process in new_ground.processes:
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
                await asyncio.to_thread(servers.stop)


async def _with_passwords(ground: Ground) -> None:
    """Both servers are reached with a password, as they are in production."""
    user, password = "shop", ground.canaries.word("password of PostgreSQL")
    connection = await asyncpg.connect(ground.endpoints.database_url)
    try:
        await connection.execute("SET log_statement = 'none'")  # what follows is ours, and tells the password
        await connection.execute(f"CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{password}'")
    finally:
        await connection.close()
    parts = urlsplit(ground.endpoints.database_url)
    host = parts.netloc.rpartition("@")[2]
    ground.environ["DATABASE_URL"] = parts._replace(netloc=f"{user}:{password}@{host}").geturl()
    password = ground.canaries.word("password of Redis")
    async with Redis.from_url(ground.endpoints.redis_url) as client:
        await client.execute_command("ACL", "SETUSER", user, "on", f">{password}", "~*", "&*", "+@all")
    ground.environ["REDIS_URL"] = ground.endpoints.redis_url.replace("unix://", f"unix://{user}:{password}@")


def _with_settings(ground: Ground) -> None:
    canaries, environ = ground.canaries, ground.environ
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    ground.secret_file("master_key", f"k1:{canaries.keep('master key', key)}\n")
    ground.secret_file("client_secret_of_hubspot", canaries.word("client secret in a file"))
    text = SETTINGS.format(
        prefix=PREFIX,
        client_secret=canaries.random("client secret in the settings"),
        issuer=ground.issuer.url,
        tattler=ground.tattler.url,
        inputs=ground.inputs,
    )
    settings = ground.secret_file("fairlead.toml", text)
    hook = canaries.random("address of the webhook")
    environ |= {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT}:{ground.folder}",
        "PYTHONUTF8": "1",
        "FAIRLEAD_CONFIG": str(settings),
        "FAIRLEAD_MASTER_KEY_FILE": str(ground.inputs / "master_key"),
        "FAIRLEAD_NOTIFICATIONS__WEBHOOK_URL": f"{ground.tattler.url}/hook/{hook}",
        "FAIRLEAD_NOTIFICATIONS__WEBHOOK_SECRET_FILE": str(
            ground.secret_file("webhook_secret", canaries.random("webhook secret"))
        ),
        "CANARIES": str(ground.inputs / "canaries.json"),
    }
    (ground.folder / "shop.py").write_text((HERE / "shop.py").read_text("utf-8"))
    for handler_name in HANDLERS_HOLD:
        canaries.word(handler_name) if handler_name.startswith("password") else canaries.random(handler_name)
    handler_secrets = {handler_name: canaries.by_place[handler_name] for handler_name in HANDLERS_HOLD}
    ground.secret_file("canaries.json", json.dumps(handler_secrets))


HANDLERS_HOLD = (
    "query of a call",
    "body of a call",
    "header of a call",
    "local variable of a handler",
    "error of a handler",
    "error of a subscriber",
    "log of a handler",
    "password in an error",
    "password in an address",
    "basic auth of a call",
    "wrong upsert",
)
