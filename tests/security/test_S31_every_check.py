"""S31: no check is left out. Each `check_...` of the product raises in turn, and what is asked for at a door
behind it does not happen; with the check it does."""

from __future__ import annotations

import ast
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from fairlead import Fairlead, JobRequest
from fairlead._checked_file import read_checked
from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.schedule_runs import PostgresScheduleStore
from fairlead.app.job_requests import new_jobs
from fairlead.cli.dlq import actions
from fairlead.cli.gate import overrides
from fairlead.cli.kit import secret_input
from fairlead.cli.kit.changes import ChangeOptions, ConfirmOptions
from fairlead.cli.tenants import shares
from fairlead.engine.jobs.schedules import Schedules
from fairlead.engine.ports import ConnectionKey, Schedule
from fairlead.policy.jobs.dead_letter import DeadLetterStatus, Resolution
from fairlead.policy.limits.override import OverrideKind, OverrideScope
from fairlead.policy.providers.profile_load import read_profile
from fairlead.testing.issuer import Issuer
from tests.lint.tree import PACKAGE, ROOT, files
from tests.security.conftest import PROVIDERS
from tests.security.test_S28_consent import request_count
from tests.security.test_S31_fail_closed import GRANT, JUDGES, Broken, broken
from tests.security.ways_out import resolving, way_out
from tests.support.refresher import MASTER, Refresher
from tests.support.rows import rows
from tests.unit.app.test_client_doors import BY_CURSOR, client
from tests.unit.engine.test_pipeline import World, answer

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
KEY = ConnectionKey("new", PROVIDERS[0])
HOURLY = Schedule("scan", "0 * * * *", "work", "acme")
URL = "https://api.stripe.com/v1/items"


@dataclass
class Stage:
    """What stands behind the doors, and what was done there. *ready*: a connection; *done*: by commands."""

    fl: Refresher
    database: Database
    issuer: Issuer
    environ: dict[str, str]
    ready: UUID
    world: World = field(default_factory=lambda: World([answer(200, b'{"data": []}')] * 9))
    done: list[object] = field(default_factory=list)

    @property
    def jobs(self) -> PostgresJobStore:
        return PostgresJobStore(self.database, SystemIds())

    @property
    def schedules(self) -> Schedules:
        return Schedules(PostgresScheduleStore(self.database), self.jobs, ids=SystemIds())

    async def traces(self) -> tuple[object, ...]:
        """Whatever going through a door leaves behind."""
        [counts] = await rows(
            self.database,
            "SELECT (SELECT count(*) FROM connection) AS a, (SELECT sum(generation) FROM credential) AS b,"
            " (SELECT count(*) FROM job) AS c, (SELECT count(*) FROM schedule) AS d,"
            " (SELECT count(*) FROM worker_session) AS e, (SELECT count(*) FROM audit) AS f",
        )
        return *counts.values(), request_count(self.issuer), len(self.world.sent), len(self.done)


@pytest.fixture
async def stage(fl: Refresher, database: Database, honest: Issuer, tmp_path: Path) -> Stage:
    environ = {
        "DATABASE_URL": database.settings.dsn,
        "FAIRLEAD_DATABASE__SCHEMA_NAME": database.settings.schema or "",
        "FAIRLEAD_MASTER_KEY": MASTER.hex(),
        "FAIRLEAD_HOME": str(tmp_path / "home"),
    }
    ready = await fl.connect(honest, PROVIDERS[0])
    stage = Stage(fl, database, honest, environ, ready)
    await stage.schedules.declare([replace(HOURLY, name="ready")])
    return stage


# ---- the doors


async def connect(stage: Stage) -> None:
    await stage.fl.connections.upsert(KEY, replace(GRANT, settings={}), actor="test")


async def refresh(stage: Stage) -> None:
    await stage.fl.coordinator.refresh(stage.ready, 1)


async def enqueue(stage: Stage) -> None:
    requests = [JobRequest("work", tenant="acme", delay_s=1.0)]
    await stage.jobs.enqueue(list(new_jobs(requests, lambda _kind: None, SystemIds().uuid7)))


async def declare(stage: Stage) -> None:
    await stage.schedules.declare([HOURLY])


async def run_schedule(stage: Stage) -> None:
    await stage.schedules.run("ready")


async def paginate(stage: Stage) -> None:
    listing = client(stage.world).paginate(URL, pages=BY_CURSOR, headers={})
    assert [item async for item in listing] == []


async def graphql(stage: Stage) -> None:
    await client(stage.world).graphql("{ a }", api="rest")


async def start(stage: Stage) -> None:
    async with Fairlead.from_env(stage.environ):
        pass


async def hook_errors(stage: Stage) -> None:
    stage.done.append(Fairlead.from_env(stage.environ).on_error(lambda _error, _context: None))


async def migrate(stage: Stage) -> None:
    stage.done.append(await Migrator(stage.database.settings).apply())


async def weigh(stage: Stage) -> None:
    stage.done.append(shares.set_weight(THROUGH, name="acme", weight=2.0, options=ChangeOptions()))


async def cap(stage: Stage) -> None:
    stage.done.append(
        shares.set_cap(
            THROUGH, name="acme", max_running=2, target=shares.CapTarget(), options=ChangeOptions()
        )
    )


async def isolate(stage: Stage) -> None:
    stage.done.append(
        overrides._put_override(
            THROUGH, OverrideKind.ISOLATED, OverrideScope(), "why", ConfirmOptions(yes=True)
        )
    )


async def close(stage: Stage) -> None:
    stage.done.append(actions._Closing(THROUGH, DeadLetterStatus.ABANDONED, Resolution.ABANDONED, "why"))


async def read_secrets(stage: Stage) -> None:
    stage.done.append(secret_input.secrets_of({"access_token": "at"}))


async def read_secret_file(stage: Stage) -> None:
    file = Path(stage.environ["FAIRLEAD_HOME"]).with_name("secret")
    file.write_text("at")
    file.chmod(0o600)
    stage.done.append(read_checked(file, is_secret=True))


async def read_own_profile(stage: Stage) -> None:
    file = Path(stage.environ["FAIRLEAD_HOME"]).with_name("own.toml")
    file.write_text("")
    stage.done.append(read_profile(file))


THROUGH: Any = SimpleNamespace(
    actor="test", out=SimpleNamespace(record=lambda _record: None), with_runtime=lambda _work: None
)
"""A command's invocation that opens nothing."""
AT: Mapping[Callable[[Stage], Awaitable[None]], tuple[str, ...]] = {
    connect: (
        "check_tenant", "check_name", "check_customer", "check_label", "check_setting_names", "check_settings",
        "check_secrets", "check_connection_settings", "enter_tenant_role",
    ),
    refresh: ("check_endpoints", "check_secret_host"),
    enqueue: ("check_job_fields", "check_delay"),
    declare: ("check_schedule",),
    run_schedule: ("check_new_job",),
    paginate: ("check_options", "check_kind", "check_list", "check_bounds"),
    graphql: ("check_graphql", "check_no_body"),
    start: ("check_schema",),
    hook_errors: ("check_error_hook",),
    migrate: ("check_ground", "check_encoding"),
    weigh: ("check_weight",),
    cap: ("check_cap",),
    isolate: ("check_reason",),
    close: ("check_closing",),
    read_secrets: ("check_known",),
    read_secret_file: ("check_private",),
    read_own_profile: ("check_folder",),
}  # fmt: skip
DOORS = {check: door for door, checks in AT.items() for check in checks}
"""Each check, and one door that it stands at."""
ON_THE_WIRE = {"check_header": "token", "check_value": "call"}


@cache
def checks() -> dict[str, str]:
    """Every `check_...` of the product, and the walls that are called otherwise, with their modules."""
    functions = {"enter_tenant_role": "fairlead.adapters.postgres.row_security"}
    for path in files(PACKAGE):
        if path.parent.name == "doctor":  # its checks report, and guard nothing
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, FUNCTIONS) and node.name.startswith("check_"):
                functions[node.name] = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    return functions


def test_S31_no_check_is_left_out() -> None:
    judges = {judge.rpartition(".")[2] for judge in JUDGES} & {*checks()}
    assert {*checks()} == {*DOORS, *ON_THE_WIRE, *judges}


def break_it(name: str, patch: pytest.MonkeyPatch) -> None:
    """Have the check raise wherever it was imported to."""
    check = getattr(import_module(checks()[name]), name)
    for module in [module for at, module in sys.modules.items() if at.partition(".")[0] == "fairlead"]:
        if vars(module).get(name) is check:
            patch.setattr(module, name, broken)


@pytest.mark.parametrize("name", DOORS)
async def test_S31_action_that_cannot_be_checked_is_refused(
    name: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "change_tenants", lambda *_args, **_more: None)
    monkeypatch.setattr(shares, "_change_cap", lambda *_args, **_more: None)
    traces_before = await stage.traces()
    with monkeypatch.context() as patch:
        break_it(name, patch)
        with pytest.raises(Broken):
            await DOORS[name](stage)
    assert await stage.traces() == traces_before
    await DOORS[name](stage)
    assert await stage.traces() != traces_before, "it is done where the check can be made"


@pytest.mark.parametrize(("name", "method"), ON_THE_WIRE.items())
async def test_S31_a_header_that_cannot_be_checked_is_not_sent(
    name: str, method: str, dialled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, ["8.8.8.8"])
    async with way_out(method) as ask:
        with monkeypatch.context() as patch:
            break_it(name, patch)
            with pytest.raises(Broken):
                await ask("https://api.example.com/x")
        assert dialled == []
        await ask("https://api.example.com/x")
        assert dialled != []


async def test_S31_a_token_whose_account_cannot_be_judged_is_not_stored(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider has been asked by then; what it gave does not take the place of what is there."""
    monkeypatch.setattr("fairlead.engine.tokens.response_handler.account_mismatch", broken)
    monkeypatch.setattr("fairlead.engine.tokens.unknown_outcomes.account_mismatch", broken)
    with pytest.raises(Broken):
        await refresh(stage)
    assert request_count(stage.issuer) == 1
    [row] = await rows(stage.database, "SELECT generation FROM credential")
    assert row["generation"] == 1
