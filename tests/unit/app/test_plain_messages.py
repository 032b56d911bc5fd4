"""Messages say what is wrong in the user's words, with the way out in its own place."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import fairlead
from fairlead import Fairlead, JobContext
from fairlead.assembly.config import load
from fairlead.assembly.doctor.database_checks import migrations_check
from fairlead.assembly.settings import HttpTable
from fairlead.cli.init import settings_text
from fairlead.errors import InvalidConfigError, InvalidInputError, JobFailedError, NotFoundError
from fairlead.policy.providers.connection_limits import limits_of
from fairlead.policy.text.names import listed
from fairlead.testing import MemoryFairlead


@pytest.fixture
def fl(tmp_path: Path) -> Fairlead:
    return Fairlead.from_env({"FAIRLEAD_HOME": str(tmp_path)})


async def test_args_that_are_a_text_are_told_so(fl: Fairlead) -> None:
    async with MemoryFairlead(fl):
        for args in ('{"a": 1}', [("a", 1)], 7, "", [], False):
            with pytest.raises(InvalidInputError, match=r"args are .*no object.*json\.loads"):
                await fl.enqueue("k", args, tenant="acme")  # type: ignore[arg-type]
            with pytest.raises(InvalidInputError, match=r"args are .*no object.*json\.loads"):
                fl.sync.enqueue("k", args, tenant="acme")  # type: ignore[arg-type]
    for args in ('{"a": 1}', "", []):
        with pytest.raises(InvalidInputError, match=r"args are .*no object.*json\.loads"):
            fl.schedule("nightly", "@daily", "k", args=args)  # type: ignore[arg-type]


async def test_a_wrong_job_id_is_named(fl: Fairlead) -> None:
    async with MemoryFairlead(fl):
        for wrong in ("abc", 7, None):
            with pytest.raises(InvalidInputError, match=rf"{wrong!r}|int|None") as refused:
                await fl.result(wrong)  # type: ignore[arg-type]
            assert "no job id" in refused.value.message
            assert "enqueue returned" in refused.value.hint
        with pytest.raises(NotFoundError):
            await fl.result("00000000-0000-0000-0000-000000000001")  # type: ignore[arg-type]


async def test_the_text_of_a_foreign_error_is_not_cut_at_the_word_hint(fl: Fairlead) -> None:
    @fl.job(retry=0)
    async def work(ctx: JobContext) -> None:
        raise ValueError("wrong, hint: see the manual")

    async with MemoryFairlead(fl) as memory:
        job_id = await work.enqueue(tenant="acme")
        await memory.drain()
        with pytest.raises(JobFailedError, match=r"wrong, hint: see the manual \(.* in work\)") as failed:
            await fl.result(job_id)
    assert failed.value.hint == JobFailedError.default_hint


async def test_the_hint_of_a_failure_is_the_hint_of_job_failed(fl: Fairlead) -> None:
    @fl.job
    async def work(ctx: JobContext) -> None:
        raise InvalidInputError("the order has no lines", hint="add a line")

    async with MemoryFairlead(fl) as memory:
        job_id = await work.enqueue(tenant="acme")
        await memory.drain()
        with pytest.raises(JobFailedError) as failed:
            await fl.result(job_id)
    assert "hint:" not in failed.value.message
    assert "the order has no lines" in failed.value.message
    assert failed.value.hint == "add a line"


def test_the_comments_of_the_settings_file_are_whole_sentences() -> None:
    text = settings_text()
    paragraph = " ".join((HttpTable.__doc__ or "").strip().partition("\n\n")[0].split())
    assert len(paragraph) > 110  # on one line it was cut
    assert "\n".join(textwrap.wrap(paragraph, 100, initial_indent="# ", subsequent_indent="# ")) in text


def test_a_refused_value_is_told_in_words_alone() -> None:
    """Not in those of the library that checks it."""
    with pytest.raises(InvalidConfigError, match=r"^dead_letters notice_before_s must be shorter than"):
        load({"FAIRLEAD_DEAD_LETTERS__NOTICE_BEFORE_S": "9999999"})
    with pytest.raises(InvalidConfigError, match=": settings: minimum_slots is more"):
        limits_of({"minimum_slots": {1: 5}}, tenant="acme", provider="stripe")


def test_the_package_lists_its_names() -> None:
    assert set(fairlead.__all__) <= set(dir(fairlead))


def test_a_check_names_a_few_of_many() -> None:
    names = [f"{number:04}_step" for number in range(1, 33)]
    detail = migrations_check(names, by_itself=False).detail
    assert detail == "the database lacks 0001_step, 0002_step, 0003_step and 29 more"
    assert listed(["a", "b"]) == "a, b"
