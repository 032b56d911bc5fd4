"""What experiments found is kept a line a test, and a smoke run does not take a full run's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import results


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_RESULTS", str(tmp_path / "kept"))
    return tmp_path / "kept"


def line(id: str = "E01", test: str = "test_E01_a", size: str = "full", **more: object) -> dict[str, object]:
    return {"id": id, "test": test, "size": size, **more}


def test_a_line_takes_the_place_of_the_one_of_the_same_test(folder: Path) -> None:
    for record in (line(n=1), line(test="test_E01_b"), line(ablation="x"), line(n=2)):
        results.keep(record)
    assert [row.get("n") for row in results.read(folder)] == [2, None, None]
    assert [path.name for path in folder.iterdir()] == ["E01.json"]


def test_parts_of_an_experiment_share_its_file(folder: Path) -> None:
    for id in ("E38-queues", "E38-sheds", "E23_latency"):
        results.keep(line(id=id))
    assert sorted(path.name for path in folder.iterdir()) == ["E23.json", "E38.json"]


def test_smoke_does_not_take_the_place_of_full(folder: Path) -> None:
    results.keep(line(size="smoke", n=1))
    results.keep(line(n=2))
    results.keep(line(size="smoke", n=3))
    assert [row["n"] for row in results.read(folder)] == [2]


def test_nothing_is_written_where_nobody_says_where(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRLEAD_RESULTS")
    results.keep(line())
    assert not folder.exists()


def test_proofs_are_full_and_have_their_safeguards() -> None:
    lines = [line(), line(id="E01-x"), line(size="smoke"), line(ablation="x"), line(id="E02")]
    assert results.proofs(lines, "E01") == lines[:2]


def test_smoke_run_drops_no_line_of_a_full_run(folder: Path) -> None:
    results.keep(line(n=1))
    results.drop(line(size="smoke"))
    results.drop(line(test="test_E01_b"))
    assert len(results.read(folder)) == 1
    results.drop(line())
    assert list(folder.iterdir()) == []
