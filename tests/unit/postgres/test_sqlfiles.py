"""SQL files become statements: every parameter is found, nothing else is touched, headers are kept honest."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.adapters.postgres.statements import compile_sql, statement, statement_names


def source(body: str) -> str:
    return f"-- job_x: does x.\n-- Takes   a, b\n-- Returns rows\n-- Locks   none\n-- Needs   none\n{body}\n"


def compiled(body: str) -> tuple[str, tuple[str, ...]]:
    sql = compile_sql("job_x", source(body))
    return sql.text.removeprefix("/* job_x */ "), sql.params


def test_a_repeated_name_has_one_number() -> None:
    assert compiled("SELECT :a, :b, :a") == ("SELECT $1, $2, $1", ("a", "b"))


@pytest.mark.parametrize(
    "body",
    [
        "SELECT x::text, y ::jsonb",
        "SELECT ':a', 'it''s :b'",
        "SELECT E'\\':a'",
        'SELECT ":a", "x"":b"',
        "SELECT 1 -- :a\n",
        "SELECT 1 /* :a ::b ' */",
        "SELECT $$ :a $$, $tag$ :b $$ $tag$",
        "SELECT f(a := 1)",
        "SELECT a[1:n], f(x)[y:z]",
        "SELECT a$b$",
    ],
)
def test_text_that_looks_like_a_parameter_is_left_alone(body: str) -> None:
    assert compiled(body) == (body.strip(), ())


@pytest.mark.parametrize(
    ("body", "text", "params"),
    [
        ("SELECT (:a)::int, :b::text", "SELECT ($1)::int, $2::text", ("a", "b")),
        ("WHERE x=:a AND y=ANY(:b)", "WHERE x=$1 AND y=ANY($2)", ("a", "b")),
        ("SELECT '' || :a || '::b'", "SELECT '' || $1 || '::b'", ("a",)),
        ("SELECT -:a, :b -- it's :c\n, :d", "SELECT -$1, $2 -- it's :c\n, $3", ("a", "b", "d")),
        ("SELECT $q$ $1 $q$, :a", "SELECT $q$ $1 $q$, $1", ("a",)),
    ],
)
def test_parameters_beside_them_are_found(body: str, text: str, params: tuple[str, ...]) -> None:
    assert compiled(body) == (text, params)


PIECES = st.sampled_from(
    [":a", ":b", ":name", "'x :a'", '"q:b"', "::text", "-- :c\n", "/* :d */", "$$:a$$", ":=", " , ", "(", "7"]
)


@given(st.lists(PIECES))
def test_only_parameters_change(pieces: list[str]) -> None:
    text, params = compiled("SELECT " + " ".join(pieces))
    parameters = [piece[1:] for piece in pieces if re.fullmatch(r":\w+", piece)]
    assert list(params) == list(dict.fromkeys(parameters))
    back = re.sub(r"\$(\d)", lambda m: ":" + params[int(m[1]) - 1], text)
    assert back.split() == " ".join(["SELECT", *pieces]).split()


def test_args_come_in_the_order_of_the_placeholders() -> None:
    sql = compile_sql("job_x", source("SELECT :b, :a, :b"))
    assert sql.args(a=1, b=2) == [2, 1]


@pytest.mark.parametrize("values", [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 2}, {}])
def test_args_refuse_missing_and_unknown_names(values: dict[str, object]) -> None:
    sql = compile_sql("job_x", source("SELECT :b, :a"))
    with pytest.raises(TypeError, match="job_x: missing"):
        sql.args(**values)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (source("SELECT 1").replace("job_x:", "job_y:"), "first line"),
        (source("SELECT 1").replace("-- Locks   none\n", ""), "Locks"),
        (source("SELECT 1").replace("-- Returns rows", "-- Returns"), "Returns"),
        (source("SELECT $1"), "not \\$n"),
        ("SELECT 1", "first line"),
    ],
)
def test_a_file_that_breaks_the_rules_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        compile_sql("job_x", text)


def test_every_statement_of_ours_compiles() -> None:
    names = statement_names()
    assert names
    assert [statement(name).name for name in names] == names


def test_a_statement_is_compiled_once() -> None:
    assert statement("server_check") is statement("server_check")
