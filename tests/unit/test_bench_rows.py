"""What a row of a benchmark counts as met."""

from __future__ import annotations

from typing import Any

from bench.report import Row


def row(**more: Any) -> Row:
    return Row(bench="b", ours=10.0, unit="jobs/s", n=1, **more)


def test_from_below_against_the_best_peer() -> None:
    assert row(peers={"a": 5.0, "b": 2.0}, goal={"ratio_best_peer": 2.0}).passed
    assert not row(peers={"a": 5.1, "b": 2.0}, goal={"ratio_best_peer": 2.0}).passed


def test_from_above_the_best_peer_is_the_lowest() -> None:
    slow = row(peers={"a": 5.0, "b": 20.0}, goal={"ratio_best_peer": 2.0}, at_most=True)
    assert slow.ratios == {"ratio_best_peer": 2.0}
    assert slow.passed


def test_the_figure_itself_can_be_bounded() -> None:
    assert row(goal={"ours": 10.0}, at_most=True).passed
    assert not row(goal={"ours": 9.0}, at_most=True).passed


def test_goal_without_a_measurement_is_missed() -> None:
    assert not row(goal={"ratio_best_peer": 0.1}).passed


def test_no_goal_is_met() -> None:
    assert row().passed


def test_ratio_of_pairs_stands_before_the_ratio_of_medians() -> None:
    assert row(limit=20.0, paired_ratio=0.6).ratios == {"ratio_limit": 0.6}
    assert row(limit=20.0).ratios == {"ratio_limit": 0.5}
