"""`python -m bench` takes several names, and refuses what it does not know before anything runs."""

from __future__ import annotations

import pytest

from bench.__main__ import COMPARED, _parser, _runs
from bench.slices import SLICES


def runs(*words: str) -> list[tuple[str, dict[str, object]]]:
    parser = _parser()
    return list(_runs(parser, parser.parse_args(words)))


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        runs(*words)
    assert exit_.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_several_names_run_one_after_the_other() -> None:
    assert runs("call", "gate", "--no-peers") == [("call", {"peers": False}), ("gate", {"peers": False})]
    assert runs("bloat", "--seconds", "2") == [("bloat", {"seconds": 2.0})]
    assert runs("sweep") == [("sweep", {})]


def test_compare_takes_a_tree_and_several_names() -> None:
    assert runs("compare", "HEAD", "call", "gate") == [
        ("compare", {"tree": "HEAD", "name": "call"}),
        ("compare", {"tree": "HEAD", "name": "gate"}),
    ]


def test_compare_offers_the_slices_that_there_are() -> None:
    assert set(COMPARED) == SLICES.keys()


def test_unknown_name_and_option_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no benchmark 'cal'" in refusal(capsys, "gate", "cal")
    assert "no benchmark 'storm'" in refusal(capsys, "compare", "HEAD", "storm")
    assert "takes TREE and at least one NAME" in refusal(capsys, "compare", "HEAD")
    assert "sweep takes no --no-peers" in refusal(capsys, "gate", "sweep", "--no-peers")
    assert "gate takes no --seconds" in refusal(capsys, "gate", "--seconds", "2")


def test_help_lists_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parser().parse_args(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "compare TREE NAME [NAME ...]" in text
    assert "utilisation" in text
