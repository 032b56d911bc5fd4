"""Each .sql file states its contract, holds one statement, and names no schema (STYLE A7, A8)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.lint.tree import PACKAGE, ROOT, Source, files

SQL = f"{PACKAGE}/adapters/postgres/sql"
BASELINE = (f"{PACKAGE}/adapters/postgres/functions", f"{PACKAGE}/adapters/postgres/schema")
_FUNCTION = re.compile(r"^CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) (\w+)", re.MULTILINE)
_LINES = ("Takes", "Returns", "Locks", "Needs")
_QUOTED = re.compile(r"--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$|'(?:[^']|'')*'", re.DOTALL)
_SCHEMA = re.compile(r"\b(from|join|into|update|table|using)\s+(public|fairlead)\.", re.IGNORECASE)


def contract(source: Source) -> Iterator[str]:
    stem = PurePosixPath(source.path).stem
    header = "\n".join(_header(source.text))
    if not header.startswith(f"-- {stem}: "):
        yield f"{source.path}: begins with '-- {stem}: what it does'"
    for word in _LINES:
        if not re.search(rf"^-- {word}[ \t]+\S", header, re.MULTILINE):
            yield f"{source.path}: the header has no line '-- {word}   ...'"
    bare = _QUOTED.sub(" ", source.text).strip()
    if bare.rstrip("; \n").count(";"):
        yield f"{source.path}: more than one statement hint: one statement, one file"
    if _SCHEMA.search(bare):
        yield f"{source.path}: names a schema hint: search_path decides"


def _header(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.startswith("--"):
            return
        yield line


def definition(source: Source) -> Iterator[str]:
    """Yield the faults of one file of the baseline, in ``functions/`` or ``schema/``."""
    path = PurePosixPath(source.path)
    if not source.text.startswith(f"-- {path.stem}: "):
        yield f"{source.path}: begins with '-- {path.stem}: what it does'"
    bare = _QUOTED.sub(" ", source.text)
    defined = _FUNCTION.findall(bare)
    if defined != ([path.stem] if path.parent.name == "functions" else []):
        yield f"{source.path}: defines {defined} hint: one function a file, named like it, in functions/"
    if "pg_get_functiondef" in source.text:
        yield f"{source.path}: patches the text of a function hint: write the whole text"
    if _SCHEMA.search(bare):
        yield f"{source.path}: names a schema hint: search_path decides"


GOOD = """\
-- job_claim: hand due jobs to one worker.
-- Takes   queue, demand
-- Returns the claimed rows
-- Locks   the claimed rows; never waits
-- Needs   job_claim_idx
SELECT ';' AS a, "b" FROM job -- not the end; yet
WHERE queue = :queue;
"""


def _planted(text: str) -> list[str]:
    return list(contract(Source(f"{SQL}/job_claim.sql", text)))


def test_each_statement_states_its_contract() -> None:
    sources = [
        Source(path.relative_to(ROOT).as_posix(), path.read_text()) for path in files(SQL, suffixes=(".sql",))
    ]
    assert [finding for source in sources for finding in contract(source)] == []


def test_a_good_file_passes() -> None:
    assert _planted(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-- job_claim:", "-- claim:"),
        ("-- Takes   queue, demand\n", ""),
        ("-- Returns the claimed rows\n", "-- Returns\n"),
        ("-- Locks", "-- locks"),
        ("-- Needs   job_claim_idx\n", "\n-- Needs   job_claim_idx\n"),
        ("WHERE queue = :queue;", "WHERE queue = :queue; DELETE FROM job;"),
        ("FROM job", "FROM public.job"),
    ],
)
def test_header_without_a_part_is_found(old: str, new: str) -> None:
    assert len(_planted(GOOD.replace(old, new))) == 1


def test_each_file_of_the_baseline_defines_what_its_name_says() -> None:
    sources = [
        Source(path.relative_to(ROOT).as_posix(), path.read_text())
        for folder in BASELINE
        for path in files(folder, suffixes=(".sql",))
    ]
    assert len(sources) > 80
    assert [finding for source in sources for finding in definition(source)] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("functions/a.sql", "CREATE FUNCTION a() RETURNS void AS $$ $$;"),
        ("functions/a.sql", "-- a: acts.\nCREATE FUNCTION b() RETURNS void AS $$ $$;"),
        ("functions/a.sql", "-- a: acts.\nCREATE FUNCTION a() AS $$ $$;\nCREATE FUNCTION b() AS $$ $$;"),
        ("functions/a.sql", "-- a: acts.\nCREATE FUNCTION a() AS $$ EXECUTE pg_get_functiondef(1) $$;"),
        ("schema/a.sql", "-- a: tables.\nCREATE FUNCTION a() RETURNS void AS $$ $$;"),
        ("schema/a.sql", "-- a: tables.\nALTER TABLE public.job ADD COLUMN a integer;"),
    ],
)
def test_a_planted_file_of_the_baseline_is_found(path: str, text: str) -> None:
    assert len(list(definition(Source(f"{PACKAGE}/adapters/postgres/{path}", text)))) == 1
