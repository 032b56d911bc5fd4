"""S36: what is bounded, and by which test that is shown; who fills theirs leaves the others theirs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fairlead._checked_file import SETTINGS_BYTES
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.assembly.config import load
from fairlead.engine.ports import ClaimFilter, Discarded, FailureRecord
from fairlead.errors import InvalidConfigError, RefusedError
from tests.lint.tree import ROOT
from tests.security.figures import tell
from tests.support.engine import IDS, new_job
from tests.support.rows import run
from tests.support.seeds import a_session
from tools.bounds import BOUNDS, page

FAILURE = FailureRecord("transient_server", "boom", "it failed", 0.5, 1)
BOUND = 4


def test_the_page_says_what_the_code_does() -> None:
    page_text = (ROOT / "docs/reference/bounds.md").read_text("utf-8")
    assert page_text == page(), "run: python -m tools.bounds > docs/reference/bounds.md"


def test_each_bound_is_shown_by_a_test() -> None:
    missing = [bound.proof for bound in BOUNDS if not is_there(bound.proof)]
    assert missing == []
    assert not is_there("unit/policy/test_job.py::test_gone")
    tell("S36", n=len(BOUNDS), without_proof=len(missing))


def is_there(proof: str) -> bool:
    file, _, name = proof.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name for node in tree.body
    )


async def all_die(database: Database, **jobs: int) -> PostgresJobStore:
    """So many jobs of each tenant; a store that asks anew, as what the first knows is a few seconds old."""
    store = PostgresJobStore(database, IDS, bound=10 * BOUND)
    for tenant, count in jobs.items():
        await store.enqueue([new_job("sync", tenant_id=tenant) for _ in range(count)])
    session_id = await a_session(database)
    while claimed := await store.claim(ClaimFilter(), 100, session_id):
        await store.acknowledge(
            [Discarded(job.job_id, job.lease_id, IDS.uuid7(), FAILURE) for job in claimed]
        )
    return PostgresJobStore(database, IDS, bound=BOUND)


async def refused_to(store: PostgresJobStore, tenant: str) -> bool:
    """Whether new work of *tenant* is, for that and for a minute."""
    try:
        await store.enqueue([new_job("sync", tenant_id=tenant)])
    except RefusedError as refused:
        return (refused.reason, refused.retry_after_s) == ("dead_letters_full", 60.0)
    return False


async def test_full_dead_letters_stop_who_filled_them_in_his_kind_and_queue(database: Database) -> None:
    fresh = await all_die(database, loud=BOUND)
    assert await refused_to(fresh, "loud")
    others = [
        new_job("sync", tenant_id="quiet"),
        new_job("mail", tenant_id="quiet"),
        new_job("mail", tenant_id="loud"),
        new_job("sync", tenant_id="quiet", queue="another"),
    ]
    for job in others:
        await fresh.enqueue([job])
    ran = await fresh.claim(ClaimFilter(queues=("default", "another")), 100, await a_session(database))
    assert {job.job_id for job in ran} == {job.job_id for job in others}


async def test_full_dead_letters_of_many_stop_their_kind(database: Database) -> None:
    """Nobody stands out; or somebody does, and the queue has twice as many as it may."""
    for jobs in ({"a": BOUND, "b": BOUND, "c": BOUND}, {"a": 9 * BOUND, "b": 1}):
        fresh = await all_die(database, **jobs)
        assert [await refused_to(fresh, tenant) for tenant in ("a", "b", "quiet")] == [True] * 3
        await run(database, "DELETE FROM dead_letter")


def test_a_settings_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    file.write_text("#" * SETTINGS_BYTES)
    assert load({}, file).settings is not None
    file.write_text("#" * (SETTINGS_BYTES + 1))
    with pytest.raises(InvalidConfigError, match="larger than 1048576 bytes"):
        load({}, file)
