"""Qualifies the names of fairlead's tables and functions in a statement with their schema.

The files name no schema, because each installation chooses one. A session setting such as ``search_path``
cannot supply it behind a pooler in transaction mode, so names are qualified when a statement is loaded. Only
names that the migrations create are qualified, and only where the grammar expects a table, a type or a
function, so columns and aliases of the same name stay as they are. A test compares the plans of all
statements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from fairlead.adapters.postgres.connection_setup import quoted
from fairlead.adapters.postgres.migration_files import shipped_migrations

_CREATED = re.compile(
    r"^\s*CREATE (?:UNLOGGED )?(?:TABLE|VIEW|SEQUENCE|TYPE)(?: IF NOT EXISTS)? (\w+)", re.MULTILINE
)
_FUNCTION = re.compile(r"\b(?:FUNCTION|PROCEDURE) (\w+)\b")
_RENAMED = re.compile(r"\bRENAME TO (\w+)")
_TOKEN = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<string>(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*')
    | (?P<word>[A-Za-z_]\w*)
    | (?P<other>"(?:[^"]|"")*"|::|\$\d+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BEFORE_A_TABLE = frozenset({"from", "join", "into", "update", "using", "only", "table", "exists", "::"})
_TAKES_A_NAME = frozenset({"nextval", "setval", "pg_relation_filenode"})


@dataclass(frozen=True, slots=True)
class Names:
    """The names that the migrations create in their schema."""

    relations: frozenset[str]
    functions: frozenset[str]
    all: frozenset[str]


@cache
def our_names() -> Names:
    """Return the names of all relations and functions that any migration of this version creates."""
    texts = [migration.text for migration in shipped_migrations()]
    matches = [
        {name for text in texts for name in kind.findall(text)} for kind in (_CREATED, _FUNCTION, _RENAMED)
    ]
    tables, functions, renamed = matches
    relations, callables = frozenset({*tables, "migration"}), frozenset({*functions, *renamed})
    return Names(relations, callables, relations | callables)


class QualifiedTexts(dict[str, str]):
    """A mapping from the texts of statements to their qualified texts, computed on first use."""

    def __init__(self, schema: str) -> None:
        super().__init__()
        self._schema = schema

    def __missing__(self, text: str) -> str:
        self[text] = qualified_text = qualified(text, self._schema)
        return qualified_text


@lru_cache(maxsize=1024)
def qualified(text: str, schema: str) -> str:
    """Return *text* with each of fairlead's names qualified by *schema*."""
    tokens = [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(text)]
    significant = [index for index, (kind, _) in enumerate(tokens) if kind != "space"]
    words = ["", "", *[tokens[index][1].lower() for index in significant], "", ""]
    prefix = quoted(schema) + "."
    names, local = our_names(), _named_by_with(words)
    pieces = [piece for _, piece in tokens]
    for at, index in enumerate(significant, start=2):
        kind, piece = tokens[index]
        if piece in names.all and _is_ours(words, at, local):
            pieces[index] = prefix + piece
        elif kind == "string" and words[at - 1] == "(" and words[at - 2] in _TAKES_A_NAME:
            pieces[index] = "'" + prefix.replace("'", "''") + piece[1:]
    return "".join(pieces)


def _is_ours(words: Sequence[str], at: int, local: frozenset[str]) -> bool:
    word, previous, following = words[at], words[at - 1], words[at + 1]
    names = our_names()
    if word in names.functions and following == "(":
        return previous not in {".", "as"}
    if word not in names.relations or word in local or following == ".":
        return False
    return previous in _BEFORE_A_TABLE and words[at - 2] != "distinct"


def _named_by_with(words: Sequence[str]) -> frozenset[str]:
    """Return the names that the statement's WITH clauses define."""
    return frozenset(
        word
        for at, word in enumerate(words[:-2])
        if words[at - 1] in {"with", "recursive", ","}
        and words[at + 1] == "as"
        and words[at + 2] in {"(", "materialized", "not"}
    )
