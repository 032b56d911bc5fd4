"""The pages of docs/how-to: their code runs as it stands, with the frameworks they are about."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import pytest
from aiohttp import ClientSession, ClientTimeout, UnixConnector

from fairlead.adapters.postgres.connection_setup import DatabaseSettings, quoted
from fairlead.adapters.postgres.database import Database
from tests.support.cli import ROOT, Child, Shell
from tests.support.pages import Page
from tests.support.rows import rows

pytestmark = pytest.mark.slow

HOW_TO = ROOT / "docs/how-to"
SETTINGS = "worker.poll_s = 0.05\n"


@pytest.fixture
async def shop(shell: Shell, database_settings: DatabaseSettings) -> Shell:
    """A folder for a project, and a schema for its tables, where its connections look first."""
    shell.settings(SETTINGS)
    connection = await asyncpg.connect(database_settings.dsn)
    await connection.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders (id bigint PRIMARY KEY)")
    await connection.close()
    return shell


def written(shell: Shell, page: str, **more: str) -> Path:
    """The page's modules in the project's folder, with what a reader's own project has besides."""
    Page(f"how-to/{page}").write_to(shell.folder)
    for name, text in more.items():
        file = shell.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return shell.folder


async def program(shell: Shell, text: str, *arguments: str) -> str:
    """What a program prints that is run in the project; it must end well and say nothing else."""
    command = [sys.executable, "-W", "error", *(arguments or ("-c", text))]
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=shell.folder,
        env={**shell.all_environ, "PYTHONPATH": str(shell.folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


@asynccontextmanager
async def worker(shell: Shell, app: str) -> AsyncIterator[Child]:
    """`fairlead run --app` of the page, until the block ends."""
    child = shell.start("run", "--app", app, "--json")
    try:
        assert json.loads(await child.line())["event"] == "ready"
        yield child
    finally:
        child.kill(signal.SIGTERM)
        done = await shell.end(child)
    assert done.code == 0, done.err


async def finished(database: Database, kind: str, count: int = 1) -> list[dict[str, object]]:
    """The jobs of a kind, once so many have ended."""
    async with asyncio.timeout(60):
        while True:
            rows_found = await rows(
                database,
                "SELECT tenant_id, state, result, attempt FROM job"
                " WHERE kind = $1 AND finished_at IS NOT NULL ORDER BY finished_at",
                kind,
            )
            if len(rows_found) >= count:
                return rows_found
            await asyncio.sleep(0.05)


def test_every_page_is_run_and_in_the_index() -> None:
    pages = {page.name for page in HOW_TO.glob("*.md")} - {"README.md"}
    index = (HOW_TO / "README.md").read_text("utf-8")
    assert all(f"({page})" in index for page in pages)
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_recipes*.py"))
    assert pages == set(re.findall(r'"(?:how-to/)?([a-z-]+\.md)"', tests))


# ---- jobs ------------------------------------------------------------------------------------------

ENQUEUES = """
import asyncio, os
import asyncpg
from shop import nightly, orders, sync
from shop.jobs import fl

async def main():
    async with fl:
        first, again = await orders.once(1), await orders.once(1)
        assert first == again
        assert (first.key_state, again.key_state) == ("none", "waiting")
        assert [await orders.unless_one_is_under_way("c") for _ in range(2)] == ["none", "waiting"]
        await orders.everyday(2)
        await orders.many(["a", "b"])
        await sync.everybody()
        elsewhere = {"search_path": "shop"}
        connection = await asyncpg.connect(os.environ["DATABASE_URL"], server_settings=elsewhere)
        await orders.with_the_order(connection, 3)
        await connection.close()

asyncio.run(main())
"""


async def test_jobs(shop: Shell, database: Database, database_settings: DatabaseSettings) -> None:
    written(
        shop,
        "jobs.md",
        **{"shop/all.py": "from shop import nightly, orders, sync\nfrom shop.jobs import fl\n"},
    )
    await program(shop, ENQUEUES)
    (in_sql,) = Page("how-to/jobs.md").take("sql", "BEGIN")
    connection = await asyncpg.connect(database_settings.dsn)
    await connection.execute("SET search_path = shop")
    await connection.execute(in_sql.replace("fairlead.", f"{quoted(database_settings.in_schema)}."))
    await connection.close()
    async with worker(shop, "shop.all:fl"):
        assert len(await finished(database, "resize", 3)) == 3
        invoices = await finished(database, "send_invoice", 3)
        assert all(json.loads(str(row["result"]))["due"] == "2026-03-01" for row in invoices)
        (other,) = await finished(database, "sync_stock")
        assert json.loads(str(other["result"])) == "synced"
    assert await rows(database, "SELECT name, kind FROM schedule WHERE kind = 'close_books'") == [
        {"name": "close_books", "kind": "close_books"}
    ]
    paused = await rows(database, "SELECT scope, key, tenant_id <> '' AS of_tenant FROM pause")
    assert paused == [{"scope": "group", "key": "shopify/default", "of_tenant": True}]
    assert {row["id"] for row in await rows(database, "SELECT id FROM shop.orders")} == {3, 7}


async def test_grants(shop: Shell, database: Database) -> None:
    (granting,) = Page("how-to/jobs.md").take("sql", "GRANT")
    await rows(database, "CREATE ROLE app")
    for line in granting.strip().splitlines():
        there = quoted(database.settings.in_schema)
        await rows(
            database, line.replace("SCHEMA fairlead", f"SCHEMA {there}").replace(" fairlead.", f" {there}.")
        )
    await rows(database, "DROP OWNED BY app")
    await rows(database, "DROP ROLE app")


async def test_tests(shop: Shell) -> None:
    written(shop, "testing.md")
    output = await program(shop, "", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio")
    assert "2 passed" in output


# ---- frameworks ------------------------------------------------------------------------------------


async def test_fastapi(shop: Shell, database: Database) -> None:
    """On a socket that listens before the server is there: the first call waits for it."""
    written(shop, "fastapi.md")
    words, (*_, app_path) = Page("how-to/fastapi.md").commands()
    with TemporaryDirectory(prefix="fl-web-") as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/web")
        listening.listen()
        web = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-m", *words, "--fd", str(listening.fileno())),
            cwd=shop.folder,
            env={**shop.all_environ, "PYTHONPATH": str(shop.folder)},
            pass_fds=[listening.fileno()],
            stderr=subprocess.PIPE,
        )
        try:
            await call_fastapi(shop, UnixConnector(f"{folder}/web"), app_path)
        finally:
            web.terminate()
            _, output = await web.communicate()
    assert web.returncode in (0, -signal.SIGTERM), output


async def call_fastapi(shop: Shell, connector: UnixConnector, app_path: str) -> None:
    async with ClientSession("http://shop", connector=connector, timeout=ClientTimeout(60)) as http:
        async with http.post("/acme/orders/7") as placed:
            assert placed.status == 202, await placed.text()
            job = f"/jobs/{(await placed.json())['job_id']}"
        async with http.get(job) as response:
            assert (response.status, response.headers["Retry-After"]) == (409, "1")
            assert (await response.json())["code"] == "job_not_finished"
        async with worker(shop, app_path), asyncio.timeout(60):
            while response.status == 409:
                async with http.get(job) as response:
                    ended = await response.json()
        assert ended == {"result": {"tenant": "acme", "order": 7}}
        async with http.get("/jobs/00000000-0000-7000-8000-000000000000") as none:
            assert (none.status, (await none.json())["code"]) == (404, "not_found")


DJANGO_SETTINGS = """
import os
from psycopg.conninfo import conninfo_to_dict

_given = conninfo_to_dict(os.environ["DATABASE_URL"])
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": _given["dbname"], "USER": _given.get("user", ""),
    "HOST": _given.get("host", ""), "PORT": _given.get("port", ""),
    "OPTIONS": {"options": "-c search_path=shop"},
}}
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["testserver"]
SECRET_KEY = "of tests"
USE_TZ = True
"""
DJANGO_MODELS = """
from django.db import models


class Order(models.Model):
    total = models.IntegerField()

    class Meta:
        app_label = "shop"
        db_table = "shop_order"
"""
DJANGO_URLS = """
from django.urls import path
from shop.views import orders

urlpatterns = [path("<str:tenant>/orders", orders)]
"""
CALLS_DJANGO = """
import threading
from shop import worker
from django.db import connection, transaction
from django.test import Client
from fairlead.errors import InvalidInputError, JobNotFinishedError
from shop.jobs import Order, fl, place_order

with connection.schema_editor() as editor:
    editor.create_model(Order)
answer = Client().post("/acme/orders", {"total": "99"})
assert answer.status_code == 202, answer.content
try:
    with transaction.atomic():
        place_order("acme", 1)
        raise KeyError("something else went wrong")
except KeyError:
    pass
try:
    place_order("acme", 2)
    raise AssertionError("it is in no transaction")
except InvalidInputError as error:
    assert "in no transaction" in str(error)
assert [thread.name for thread in threading.enumerate()] == ["MainThread"]
connection.close()
"""


async def test_django(shop: Shell, database: Database) -> None:
    files = {
        "shop/settings.py": DJANGO_SETTINGS,
        "shop/models.py": DJANGO_MODELS,
        "shop/urls.py": DJANGO_URLS,
    }
    written(shop, "django.md", **files, **{"shop/__init__.py": ""})
    await program(shop, CALLS_DJANGO)
    ((*_, app),) = Page("how-to/django.md").commands()
    async with worker(shop, app):
        (invoice,) = await finished(database, "send_invoice")
    assert invoice == {
        "tenant_id": "acme",
        "state": "completed",
        "result": '"invoice of 99 for acme"',
        "attempt": 1,
    }
    assert await rows(database, "SELECT FROM job WHERE kind = 'send_invoice' AND state <> 'completed'") == []


ASKS_CELERY = """
from shop.tasks import import_payouts
for tenant in ("acme", "globex", "acme"):
    import_payouts.delay(tenant)
"""


async def test_celery(shop: Shell, database: Database) -> None:
    """In a prefork pool, with messages in files in the place of a broker."""
    written(shop, "celery.md")
    box = shop.folder / "box"
    box.mkdir()
    (shop.folder / "celeryconfig.py").write_text(
        f"broker_transport_options = {{'data_folder_in': {str(box)!r}, 'data_folder_out': {str(box)!r}}}\n"
        "worker_hijack_root_logger = False\n"
    )
    shop.environ["CELERY_BROKER_URL"] = "filesystem://"
    shop.environ["CELERY_CONFIG_MODULE"] = "celeryconfig"
    added = await shop("connections", "add", "-t", "acme", "-p", "stripe", stdin=shop.secret("key"))
    assert added.code == 0, added.err
    await program(shop, ASKS_CELERY)
    words, (*_, app_path) = Page("how-to/celery.md").commands()
    celery = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *words, "--pool", "prefork", "-c", "2"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        cwd=shop.folder,
        env={
            **shop.all_environ,
            "PYTHONPATH": str(shop.folder),
            "C_FORCE_ROOT": "1",
            "HOME": os.environ["HOME"],
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        async with worker(shop, app_path):
            booked = await finished(database, "book_payout", 2)
    finally:
        celery.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            out, _ = await celery.communicate()
    assert {row["tenant_id"] for row in booked} == {"acme"}, out.decode()
    assert celery.returncode == 0, out.decode()
    async with asyncio.timeout(20):
        while await rows(database, "SELECT FROM worker_session WHERE stopped_at IS NULL"):
            await asyncio.sleep(0.05)
