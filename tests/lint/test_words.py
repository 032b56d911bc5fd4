"""Names and sentences are plain: `python -m tools.words` measures them, and no package gets worse.

`python -m tools.words --list PACKAGE` shows what is left to do in one package. A lower figure never fails here;
`python -m tools.words --ceilings` prints the table anew.
"""

from __future__ import annotations

import math
from functools import cache

import pytest

from tests.lint.tree import ROOT, files
from tools.wording import RULES, Count, count
from tools.words import is_addressed, measure, package, total

Ceiling = tuple[int, int, int, int, int]
CEILINGS: dict[str, Ceiling] = {
    # To do: lower each row to nothing. Of each package that is not clean yet, the findings of
    # tools.wording.RULES, in that order.
    # ceilings begin
    "docs": (0, 0, 5, 0, 0),
    # ceilings end
}
WHO_RATE, TELL_RATE, YOU_RATE = 0.3, 0.2, 10.0
"""For 1,000 words: the final bounds of every package, and of the pages that speak to their reader."""
YOU_FLOORS = {"docs/tutorial": 10.0, "docs/how-to": 10.0, "docs/explanation": 10.0, "docs/reference": 10.0}
"""To do: README.md follows."""
PAGES_WITHOUT_YOU: set[str] = set()
"""To do: none. Pages that never speak to their reader."""


@cache
def packages() -> dict[str, Count]:
    return measure()


def limits(ceiling: Ceiling | None, words: int) -> dict[str, int]:
    """Return how many findings of each rule a package may have; a rate is rounded up."""
    clean = (0, math.ceil(WHO_RATE * words / 1000), math.ceil(TELL_RATE * words / 1000), 0, 0)
    return dict(zip(RULES, map(max, clean, ceiling or clean), strict=True))


def excess(name: str, figures: Count, ceilings: dict[str, Ceiling] = CEILINGS) -> list[str]:
    """Return the rules that the package *name* breaks more often than it may."""
    return [
        f"{name}: {rule} {figures.of(rule)}, at most {limit} hint: python -m tools.words --list {name} --rule {rule}"
        for rule, limit in limits(ceilings.get(name), figures.words).items()
        if figures.of(rule) > limit
    ]


def test_no_package_gets_worse() -> None:
    assert [line for name, figures in packages().items() for line in excess(name, figures)] == []


def test_pages_speak_to_their_reader() -> None:
    rates = {name: figures.per_thousand(figures.you) for name, figures in packages().items()}
    assert {name: rates[name] for name, floor in YOU_FLOORS.items() if rates[name] < floor} == {}
    pages = {file.relative_to(ROOT).as_posix(): file for file in files("docs", suffixes=(".md",))}
    silent = {
        path
        for path, file in pages.items()
        if is_addressed(path) and count(path, file.read_text(encoding="utf-8")).you == 0
    }
    assert silent - PAGES_WITHOUT_YOU == set()


@pytest.mark.parametrize(
    "text",
    [
        "told = 1",
        "_told: int = 1",
        "def f(told): ...",
        "def f(*, told=1): ...",
        "for told in (): ...",
        "with open('x') as told: ...",
        "try: ...\nexcept ValueError as told: ...",
        "x = [told for told in ()]",
        "if (told := 1): ...",
        "match 1:\n    case told: ...",
        "import json as told",
        "def told(): ...",
        "class Told: ...",
        "class A:\n    def f(self):\n        self._told = 1",
        "KNOWN = 1",
    ],
)
def test_bound_participle_is_found(text: str) -> None:
    assert [finding.rule for finding in count("planted.py", text).findings] == ["bound"]


def test_qualified_participle_is_no_finding() -> None:
    text = "held_lease = 1\nx.told(known=held_lease)\nprint(known)\ndef is_known(): ..."
    assert count("planted.py", text).findings == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", '"""A caller who waits is told."""'),
        ("a.py", "x = 1  # whoever waits; it hears"),
        ("a.py", 'x = 1\n"""Whose turn this tells."""'),
        ("a.sql", "SELECT 'a''b'; -- who is told\n"),
        ("a.sql", "/* who\n is told */ SELECT 1"),
        ("a.lua", "local x = 1 -- who is told"),
        ("a.lua", "--[[ who\n is told ]]"),
        ("a.toml", 'x = "a#b" # who is told'),
        ("a.md", "A caller who waits\nis told.\n"),
    ],
)
def test_people_and_speech_are_found_in_prose(path: str, text: str) -> None:
    assert sorted(finding.rule for finding in count(path, text).findings) == ["tell", "who"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", "raise ValueError('who told it')"),
        ("a.py", '"""Return `who_told` of ``who told``, as in "who told"."""'),
        ("a.sql", "SELECT 'who -- told', x;"),
        ("a.lua", "local x = 'who -- told'"),
        ("a.toml", 'x = "who # told"'),
        ("a.md", "```\nwho told\n```\n`who told` [it](who.md#told)\n<!-- who told -->"),
    ],
)
def test_code_and_quotations_are_no_prose(path: str, text: str) -> None:
    assert count(path, text).findings == []


def test_line_of_a_finding_is_where_it_stands() -> None:
    assert [str(finding).split(":")[1] for finding in count("a.md", "a\n```\nx\n```\nwho\n").findings] == [
        "5"
    ]
    assert [str(finding).split(":")[1] for finding in count("a.sql", "a;\n\n-- who\nb;").findings] == ["3"]
    assert [str(finding).split(":")[1] for finding in count("a.py", '"""A\n\nwho\n"""').findings] == ["3"]


def test_docstring_without_an_imperative_verb_is_found() -> None:
    for first in ("The value.", "Whether it runs.", "What runs.", "Returns one.", "*x* of y."):
        figures = count("a.py", f'def f():\n    """{first}"""')
        assert [finding.rule for finding in figures.findings] == ["docstrings"]
    assert count("a.py", 'async def f():\n    """Return it."""').findings == []
    assert (
        count(
            "a.py", 'class A:\n    """The value."""\n    @property\n    def f(self):\n        """The f."""'
        ).findings
        == []
    )


@pytest.mark.parametrize(
    "text",
    [
        "began_s = 1",
        "def f(*, asked_s): ...",
        "class A:\n    left_at_s: float",
        "x_s = clock.monotonic()",
        "deadline_s = time.time() + 5",
        "f(reset_s=clock.now())",
        "ends_at = timedelta(seconds=1)",
    ],
)
def test_instant_that_is_named_as_a_duration_is_found(text: str) -> None:
    assert [finding.rule for finding in count("a.py", text).findings] == ["instants"]


def test_duration_and_instant_by_their_names_are_no_findings() -> None:
    text = "took_s = clock.monotonic() - start_mono\nends_at = clock.now()\nstart_mono = clock.monotonic()"
    assert count("a.py", text).findings == []


def test_worse_package_is_found_and_a_better_one_is_not() -> None:
    ceilings = {"planted": (1, 0, 0, 0, 0)}
    figures = {text: count("planted.py", text) for text in ("x = 1", "told = 1", "told = known = 1")}
    assert [len(excess("planted", figure, ceilings)) for figure in figures.values()] == [0, 0, 1]
    assert [len(excess("clean", figure, ceilings)) for figure in figures.values()] == [0, 1, 1]


def test_packages_are_two_folders_below_fairlead() -> None:
    assert package("src/fairlead/policy/calls/deep/x.py") == "src/fairlead/policy/calls"
    assert package("src/fairlead/app/door.py") == "src/fairlead/app"
    assert package("src/fairlead/httpx.py") == "src/fairlead/httpx.py"
    assert package("docs/how-to/x.md") == "docs/how-to"
    assert package("README.md") == "README.md"
    assert total({"a": count("a.md", "you are"), "b": count("b.md", "yours")}).you == 2
