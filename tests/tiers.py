"""Which `make` target runs a test: every test is in exactly one tier.

| tier | target | holds |
| --- | --- | --- |
| check | `make check` | lint, and the types that users see |
| unit | `make test-unit` | policy, engine, contracts on memory; starts no PostgreSQL and no Redis |
| main | `make test`, with unit | contracts, SQL, security on real servers; ten end-to-end paths, ten faults |
| slow | `make test-slow` | clusters, Redis 6.2, pages, third parties, other faults, simulation |
| nightly | `make test-nightly` | ablations of safeguards, and the models |

`pytest --tier unit,main` selects; without the option, pytest runs what it is given. To place a test, read
`ROWS` from the top: the first row that fits decides. The mark `slow` sends a test to the slow tier, unless an
earlier row names it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


class Tier(StrEnum):
    """One tier, by the word that `--tier` takes."""

    CHECK = "check"
    UNIT = "unit"
    MAIN = "main"
    SLOW = "slow"
    NIGHTLY = "nightly"


PATHS = (
    "test_app.py::test_the_three_lines_of_the_readme",
    "test_app.py::test_a_worker_in_the_same_loop_keeps_tokens_fresh_and_tells_of_losses",
    "test_app.py::test_the_first_job_that_meets_a_revoked_grant_waits_for_the_new_consent",
    "test_app_jobs.py::test_a_job_is_declared_stored_run_and_waited_for",
    "test_app_jobs.py::test_inside_a_transaction_it_is_there_with_the_commit",
    "test_app_gate.py::test_limit_reported_by_the_provider_delays_the_next_call",
    "test_client.py::test_a_call_and_its_answer",
    "test_cli_connections.py::test_the_life_of_a_connection",
    "test_cli_run.py::test_sigterm_lets_jobs_end_and_exits_with_0",
    "test_cli_dlq.py::test_redrive_by_filter_capped_and_spread",
)
"""The ten end-to-end paths: tokens, jobs, limits and calls from Python, then the command line."""

FAULTS = (
    "test_e01_kill_storm.py::test_E01_worker_kill_storm",
    "test_e03_zombie.py::test_E03_zombie",
    "test_e12_commit_in_doubt.py::test_E12_commit_in_doubt_enqueue",
    "test_e14_database_away.py::test_E14_database_away",
    "test_e21_redis_killed.py::test_E21_redis_killed",
    "test_e26_old_state.py::test_E26_old_state",
    "test_e42_refresh_race.py::test_E42_refresh_race",
    "test_e43_lost_answer.py::test_E43_lost_answer_cut_at_a_byte",
    "test_e45_save_fails.py::test_E45_save_fails_database_away",
    "test_e47_backlog.py::test_E47_backlog",
)
"""The ten faults that `make test` shows in smoke size."""

ABLATION = "without a safeguard"
"""A word of every test that shows what a missing safeguard costs: its name says ablation."""

OTHER_STORES = frozenset({"redis_62", "valkey_cluster", "redis_62_cluster"})
"""Fixtures and parameters: the gate's stores beside the newest single server."""

SERVERS = OTHER_STORES | {"servers", "postgres", "valkey"}
"""Fixtures and parameters that start PostgreSQL or Redis."""

PROGRAMS = ("postgres", "pg_ctl", "initdb", "valkey-server", "redis-server", "redis.server")
"""Programs that no test of the unit tier may start."""


@dataclass(frozen=True, slots=True)
class Case:
    """What the rows decide on. *file*: below its folder; *test*: without parameters; *words*: its fixtures,
    its parameters and their ids, and its marks with an @."""

    folder: str
    file: str
    test: str
    words: frozenset[str]

    @classmethod
    def of(cls, item: pytest.Item) -> Case:
        folder, _, file = item.path.relative_to(TESTS).as_posix().partition("/")
        test = getattr(item, "originalname", None) or item.name
        words = {f"@{mark.name}" for mark in item.iter_markers()} | {*getattr(item, "fixturenames", ())}
        if callspec := getattr(item, "callspec", None):
            words |= {value for value in callspec.params.values() if isinstance(value, str)}
            words |= {*callspec.id.split("-")}
        if "ablation" in item.name:
            words.add(ABLATION)
        return cls(folder, file, test, frozenset(words))


@dataclass(frozen=True, slots=True)
class Row:
    """Tests of *folders* go to *tier*: all, or those named by *tests* (a file, or file::test), or those with
    one of *words*."""

    tier: Tier
    folders: tuple[str, ...]
    tests: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()

    def fits(self, case: Case) -> bool:
        if case.folder not in self.folders:
            return False
        if self.tests:
            return case.file in self.tests or f"{case.file}::{case.test}" in self.tests
        return not self.words or bool(self.words & case.words)


_ON_SERVERS = ("sql", "refresh", "migration", "security", "lua", "counts")

ROWS = (
    Row(Tier.CHECK, ("lint", "typing")),
    Row(Tier.NIGHTLY, ("models",)),
    Row(Tier.NIGHTLY, ("faults",), words=frozenset({ABLATION})),
    Row(Tier.NIGHTLY, ("simulation",), tests=("test_ablations.py",)),
    Row(Tier.MAIN, ("e2e",), tests=PATHS),
    Row(Tier.MAIN, ("faults",), tests=FAULTS),
    Row(Tier.SLOW, ("e2e", "faults", "simulation", "embedded", "integration")),
    Row(Tier.SLOW, ("contract",), tests=("test_gate_cluster.py",)),
    Row(Tier.SLOW, ("unit", "contract", *_ON_SERVERS), words=frozenset({"@slow"}) | OTHER_STORES),
    Row(Tier.MAIN, _ON_SERVERS),
    Row(Tier.MAIN, ("unit", "contract"), words=SERVERS),
    Row(Tier.UNIT, ("unit", "contract")),
)


def tier_of(case: Case) -> Tier:
    """Return the tier of the first row that fits."""
    for row in ROWS:
        if row.fits(case):
            return row.tier
    raise pytest.UsageError(f"tests/{case.folder} is in no row of tests/tiers.py hint: add it to one")


def tiers_in(folder: str) -> set[Tier]:
    """Return the tiers that tests of *folder* can be in."""
    return {row.tier for row in ROWS if folder in row.folders}


TIER = pytest.StashKey[Tier]()


# ---- pytest ---------------------------------------------------------------------------------------


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--tier", default="", help=f"only the tests of these tiers: {', '.join(Tier)}")


def chosen(config: pytest.Config) -> frozenset[Tier]:
    """Return the tiers that `--tier` names; none: all of them."""
    try:
        return frozenset(Tier(word) for word in filter(None, config.getoption("--tier").split(",")))
    except ValueError as error:
        raise pytest.UsageError(f"--tier: {error}; one of {', '.join(Tier)}") from error


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave folders unread in which nothing is chosen."""
    tiers = chosen(config)
    if not tiers or collection_path.parent != TESTS or not collection_path.is_dir():
        return None
    rows = tiers_in(collection_path.name)
    return True if rows and not rows & tiers else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note the tier of each test, and leave those of other tiers out."""
    tiers = chosen(config)
    for item in items:
        item.stash[TIER] = tier_of(Case.of(item))
    if tiers:
        left_out = [item for item in items if item.stash[TIER] not in tiers]
        items[:] = [item for item in items if item.stash[TIER] in tiers]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Know the tier of the test that runs."""
    global _running  # noqa: PLW0603 - an audit hook is one per process
    _running = item.stash[TIER]
    try:
        return (yield)
    finally:
        _running = None


def refuse_servers(event: str, arguments: tuple[object, ...]) -> None:
    """Raise RuntimeError where a test of the unit tier starts a server: an audit hook of this process."""
    if event == "subprocess.Popen" and _running is Tier.UNIT:
        command = f"{arguments[0]} {arguments[1]}"
        if "--version" not in command and any(program in command for program in PROGRAMS):
            raise RuntimeError(f"a test of the unit tier starts a server: {command} hint: tests/tiers.py")


def pytest_configure() -> None:
    sys.addaudithook(refuse_servers)


_running: Tier | None = None
