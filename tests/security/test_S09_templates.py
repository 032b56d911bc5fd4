"""S09: what stands in a template is a name, and is replaced as one: nothing is evaluated, nothing reached."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from urllib.parse import quote, urlsplit
from uuid import UUID

import pytest

from fairlead._core.secret import Secret
from fairlead.assembly.settings import NotificationsTable, Settings
from fairlead.assembly.settings_mapping import reauth_link
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.request import api_headers
from tests.lint.tree import PACKAGE, Source, findings, planted
from tests.security.vectors import ATTACKED_NAMES, EXPRESSIONS

_EVALUATES = {"eval", "exec", "compile", "__import__"}
_LOADERS = {"pickle", "marshal", "shelve", "yaml", "jinja2", "mako"}
SERVERS = {f"{PACKAGE}/adapters/redis/admin.py", f"{PACKAGE}/adapters/redis/keys.py"}  # EVAL of Redis
OURS = {f"{PACKAGE}/policy/providers/setting_text.py"}  # texts of ours, one name each


def evaluated(source: Source) -> Iterator[str]:
    """Whatever evaluates a text, or walks attributes by one (``str.format`` of what is no literal)."""
    for node in ast.walk(source.tree()):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _EVALUATES:
            yield f"{source.path}:{node.lineno}: {node.func.id}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_text = isinstance(node.func.value, ast.Constant)
            if node.func.attr in ("format", "format_map") and not is_text and source.path not in OURS:
                yield f"{source.path}:{node.lineno}: {node.func.attr} of what is no literal"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            names = [f"{module}.{alias.name}".strip(".") for alias in node.names]
            bad = [name for name in names if name.split(".")[0] in _LOADERS or name == "string.Template"]
            yield from (f"{source.path}:{node.lineno}: {name}" for name in bad)


def test_S09_nothing_is_evaluated() -> None:
    problems = [line for line in findings(evaluated, PACKAGE) if not line.startswith(f"{PACKAGE}/testing/")]
    assert problems == []


@pytest.mark.parametrize(
    "text",
    ["eval(x)", "exec(x)", "template.format(a=1)", "import pickle", "import yaml", "from jinja2 import X",
     "from string import Template"],
)  # fmt: skip
def test_S09_the_search_bites(text: str) -> None:
    assert len(planted(evaluated, text)) == 1
    assert planted(evaluated, "'{}'.format(1)") == []


CONNECTION = UUID(int=7)


@pytest.mark.parametrize("value", [*EXPRESSIONS, *ATTACKED_NAMES])
def test_S09_a_name_in_a_link_stays_a_name(value: str) -> None:
    """Also where it is the name of another placeholder, or of an attribute."""
    notices = NotificationsTable(
        reauth_link="https://app.example/r?t={tenant}&p={provider}&c={connection}&b={account}"
    )
    link = reauth_link(Settings(notifications=notices), ConnectionKey(value, "p", "b"), CONNECTION)
    assert link == f"https://app.example/r?t={quote(value, safe='')}&p=p&c={CONNECTION}&b=b"
    assert urlsplit(link).hostname == "app.example"


@pytest.mark.parametrize("value", EXPRESSIONS)
def test_S09_expressions_in_a_profile_are_refused_or_stay_as_they_are(value: str) -> None:
    profile = load_profiles()["shopify"]
    with pytest.raises(InvalidInputError):
        profile.url("token", {"shop": value})
    for changes in (
        {"endpoints": {"token": f"https://{value}.example/t"}},
        {"credential_header": {"format": f"{value} {{token}}"}},
    ):
        try:
            changed = profile.overlay(changes)
        except InvalidConfigError:
            continue
        header = api_headers(changed, Secret("at"))["x-shopify-access-token"].reveal()
        assert header == f"{value} at"  # it had no brace: words, sent as they stand


@pytest.mark.parametrize("token", ["{token}", "{0}", "{token.__class__}", "%s"])
def test_S09_a_token_is_not_read_as_a_template(token: str) -> None:
    headers = api_headers(load_profiles()["google"], Secret(token))
    assert headers["authorization"].reveal() == f"Bearer {token}"
