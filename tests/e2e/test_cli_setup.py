"""What comes before the first run: init, config, migrate, doctor."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.assembly.settings import Settings
from tests.support.cli import MASTER_KEY, Shell
from tests.support.databases import without_public
from tests.support.servers import drop_database, fresh_database


async def test_init_makes_what_is_missing_and_never_writes_over_a_key(bare: Shell) -> None:
    dry = await bare("init", "--dry-run", "--json")
    assert [row["done"] for row in dry.rows] == ["would be created", "would be created"]
    first = await bare("init", "--json")
    assert [(row["what"], row["done"]) for row in first.rows] == [
        ("settings", "created"),
        ("master key", "created"),
    ]
    key = bare.folder / ".fairlead" / "master.key"
    written = key.read_text()
    bare.canaries.add(written.strip().partition(":")[2])
    for path in (key, bare.folder / "fairlead.toml"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    bare.settings("[worker]\nconcurrency = 3\n")
    again = await bare("init", "--json")
    assert [row["done"] for row in again.rows] == ["kept", "kept"]
    forced = await bare("init", "--force", "--json")
    assert [row["done"] for row in forced.rows] == ["replaced", "kept"]
    assert key.read_text() == written
    assert "\nconcurrency = 3\n" not in (bare.folder / "fairlead.toml").read_text()


async def test_the_settings_file_says_every_setting_and_its_default(bare: Shell) -> None:
    await bare("init", "-q")
    text = (bare.folder / "fairlead.toml").read_text()
    assert Settings.model_validate(tomllib.loads(text)) == Settings()
    settings_lines = [line.removeprefix("#") for line in text.splitlines() if not line.startswith("# ")]
    no_default = (' = ""', " = 0")
    settable = [line for line in settings_lines if not line.endswith(no_default) and "1234567890" not in line]
    table = settable.index("[providers.mercadolibre]")
    assert Settings.model_validate(tomllib.loads("\n".join(settable[:table]))) == Settings()


async def test_config_show_masks_secrets_and_names_origins(bare: Shell) -> None:
    secret = bare.secret("client")
    bare.settings(
        f'[worker]\nconcurrency = 4\n[providers.hubspot]\nclient_secret = "{secret}"\n'
        f'[notifications]\nwebhook_url = "https://hooks.example/{bare.secret("hook")}"\n'
    )
    shown = await bare("config", "show", "--origin", "--json", env={"FAIRLEAD_WORKER__SHUTDOWN_GRACE_S": "7"})
    rows = {row["setting"]: row for row in shown.rows}
    assert rows["worker.concurrency"] == {
        "setting": "worker.concurrency",
        "value": "4",
        "origin": "fairlead.toml",
    }
    assert rows["worker.shutdown_grace_s"]["origin"] == "environment FAIRLEAD_WORKER__SHUTDOWN_GRACE_S"
    assert rows["worker.lease_s"]["origin"] == "default"
    assert (rows["database.url"]["value"], rows["vault.master_key"]["value"]) == ("***", "***")
    assert rows["providers.hubspot.client_secret"]["value"] == "***"
    assert rows["notifications.webhook_url"]["value"] == "***"
    wrong = await bare("config", "show", "--json", env={"FAIRLEAD_WORKER__SIZE": "1"})
    assert (wrong.code, wrong.error["code"]) == (78, "invalid_config")
    assert "worker.size" in wrong.error["message"]


async def test_migrate_an_empty_database(bare: Shell, servers: Endpoints) -> None:
    url = await fresh_database(servers.database_url)
    await without_public(url)
    bare.environ |= {"DATABASE_URL": url, "FAIRLEAD_DATABASE__SCHEMA_NAME": "own"}
    needed = await bare("status", "--json")
    assert (needed.code, needed.error["code"], needed.error["hint"]) == (
        78,
        "migration_required",
        "run `fairlead migrate`",
    )
    unfit = await bare("doctor", "--json")
    assert (unfit.code, {row["check"]: row["status"] for row in unfit.rows}["migrations"]) == (4, "fail")
    check = await bare("migrate", "--check", "--json")
    assert (check.code, check.rows[0]["state"], check.error["code"]) == (78, "pending", "migration_required")
    script = await bare("migrate", "--sql")
    assert script.out.startswith("\\set ON_ERROR_STOP on")
    dry = await bare("migrate", "--dry-run", "--json")
    assert dry.rows == check.rows
    done = await bare("migrate", "--json")
    assert (done.code, done.rows[0]["state"]) == (0, "applied")
    again = await bare("migrate", "--check")
    assert (again.code, again.out, again.err) == (0, "", "the database is up to date\n")
    await drop_database(servers.database_url, url)


async def test_doctor_on_sound_ground(shell: Shell, servers: Endpoints) -> None:
    done = await shell("doctor", "--json", env={"REDIS_URL": servers.redis_url})
    rows_by_check = {row["check"]: row for row in done.rows}
    assert done.code == 0, done.out
    sound = ["settings", "profiles", "master key", "database", "durability", "clock", "migrations"]
    assert {
        rows_by_check[name]["status"]
        for name in [*sound, "database role", "row security", "sealed data", "redis"]
    } == {"ok"}
    assert "noeviction" in rows_by_check["redis"]["detail"]
    assert rows_by_check["journal"]["status"] in {"ok", "warn"}  # the tests may lie in memory
    people = await shell("doctor")
    assert people.out.splitlines()[0].split() == ["check", "status", "detail"]


@pytest.mark.parametrize(
    ("environ", "check", "way_out"),
    [
        ({"DATABASE_URL": "postgresql://x@127.0.0.1:1/y"}, "database", "DATABASE_URL"),
        ({"FAIRLEAD_MASTER_KEY": ""}, "master key", "FAIRLEAD_MASTER_KEY"),
        ({"FAIRLEAD_PROVIDERS_DIR": "nowhere"}, "profiles", "providers"),
        ({"REDIS_URL": "redis://127.0.0.1:1/0"}, "redis", "REDIS_URL"),
        ({"FAIRLEAD_HOME": "/proc/nowhere"}, "journal", "home"),
        ({"FAIRLEAD_WORKER__SIZE": "1"}, "settings", "settings"),
    ],
)
async def test_doctor_says_what_is_wrong_and_the_way_out(
    shell: Shell, environ: dict[str, str], check: str, way_out: str
) -> None:
    done = await shell("doctor", "--json", env=environ)
    assert done.code == 4
    check_row = {row["check"]: row for row in done.rows}[check]
    assert check_row["status"] == "fail"
    assert way_out in check_row["hint"]


async def test_another_key_does_not_open_the_data(shell: Shell) -> None:
    added = await shell("connections", "add", "-t", "acme", "-p", "stripe", stdin=shell.secret("api-key"))
    assert added.code == 0, added.err
    other = {"FAIRLEAD_MASTER_KEY": "k2:" + "fedcba9876543210" * 4}
    looked = await shell("doctor", "--json", env=other)
    sealed_row = {row["check"]: row for row in looked.rows}["sealed data"]
    assert (looked.code, sealed_row["status"], "k1" in sealed_row["detail"]) == (4, "fail", True)
    shown = await shell("vault", "verify", "--json", env=other)
    assert (shown.code, shown.error["code"]) == (78, "master_key_missing")


async def test_the_vault_moves_to_a_new_key(shell: Shell) -> None:
    for tenant in ("acme", "globex"):
        await shell("connections", "add", "-t", tenant, "-p", "stripe", stdin=shell.secret("api-key"))
    both = {"FAIRLEAD_MASTER_KEY": f"k2:{'fedcba9876543210' * 4},{MASTER_KEY}"}
    status_before = await shell("vault", "status", "--json", env=both)
    assert status_before.record == {
        "master_key": "k2",
        "seals": "k2",
        "in_use": ["k1"],
        "data_keys_to_rotate": 2,
        "processes_without_a_key": [],
    }
    dry = await shell("vault", "rotate-key", "--dry-run", "--json", env=both)
    assert dry.record == {"data_keys_to_rotate": 2}
    done = await shell("vault", "rotate-key", "--rewrap-only", "--json", env=both)
    assert (done.code, done.record["rewrapped"], done.record["left"]) == (0, 2, 0)
    new_key = {"FAIRLEAD_MASTER_KEY": f"k2:{'fedcba9876543210' * 4}"}
    checked = await shell("vault", "verify", "--json", env=new_key)
    assert (checked.code, checked.record["checked"], checked.record["readable"]) == (0, 2, 2)


async def test_a_command_makes_a_second_master_key(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "master.key"
    file.write_text(f"{MASTER_KEY}\n")
    file.chmod(0o640)  # a group of this process may read it
    refused = await shell("vault", "add-key", "--json")
    assert (refused.code, "--print" in refused.error["hint"]) == (2, True)
    del shell.environ["FAIRLEAD_MASTER_KEY"]
    here = {"FAIRLEAD_MASTER_KEY_FILE": str(file)}
    planned = await shell("vault", "add-key", "--dry-run", "--json", env=here)
    assert (planned.code, file.read_text()) == (0, f"{MASTER_KEY}\n")
    added = await shell("vault", "add-key", "--json", env=here)
    assert added.code == 0, added.err
    new, old = file.read_text().splitlines()
    assert (new.partition(":")[0], old) == (added.record["master_key"], MASTER_KEY)
    assert file.stat().st_mode & 0o777 == 0o640, "whoever could read it still can"
    assert new.partition(":")[2] not in added.out + added.err
    shown = await shell("vault", "status", "--json", env=here)
    assert shown.record["master_key"] == added.record["master_key"]
    printed = await shell("vault", "add-key", "--print", "--json")
    assert printed.record["master_key"].partition(":")[2]
