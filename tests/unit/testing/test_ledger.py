"""The judge: every kind of post told apart, every loss seen, and a planted violation found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.errors import InvalidInputError
from fairlead.testing.ledger import Ledger, LedgerVerdict, judge, parse_ledger, read_ledger


class Book:
    """Writes a ledger by hand, one line per call; time is what the test says."""

    def __init__(self, policy: str = "strict", grace_s: float | None = None) -> None:
        self.lines: list[str] = []
        self._requests = 0
        self._add(0.0, "started", url="http://issuer", pid=1)
        extra = {} if grace_s is None else {"grace_s": grace_s}
        self._add(0.0, "family", **_where(1), change="registered", policy=policy, **extra)

    def _add(self, t: float, event: str, **fields: object) -> None:
        self.lines.append(json.dumps({"t": t, "seq": len(self.lines) + 1, "ev": event, **fields}) + "\n")

    def arrive(self, t: float, generation: int | None = 1, *, left_s: float = 100.0, **more: object) -> int:
        self._requests += 1
        where = _where(generation) if generation is not None else {"provider": "p"}
        self._add(t, "arrived", req=self._requests, **where, left_s=left_s, **more)
        return self._requests

    def process(self, req: int, t: float, kind: str, **more: object) -> None:
        self._add(t, "processed", req=req, provider="p", connection="acme", kind=kind, **more)

    def answer(self, req: int, t: float, *, delivered: bool = True, **more: object) -> None:
        self._add(t, "answered", req=req, provider="p", connection="acme", delivered=delivered, **more)

    def rotate(self, t: float, generation: int, successor: int, *, tokens: bool = True) -> None:
        """A post that was processed, answered, and (tokens) answered in full."""
        req = self.arrive(t, generation)
        self.process(req, t + 0.1, "rotated", successor=successor)
        self.answer(req, t + 0.2, status=200, delivered=tokens, tokens=tokens)

    def fail(self, t: float, generation: int, status: int = 503, **more: object) -> None:
        self.answer(self.arrive(t, generation, **more), t + 0.1, status=status)  # type: ignore[arg-type]

    def refuse(self, t: float, generation: int, reason: str = "replay", *, left_s: float = 100.0) -> None:
        req = self.arrive(t, generation, left_s=left_s)
        self.process(req, t + 0.1, "refused", reason=reason)
        self._add(t + 0.1, "reuse", req=req, **_where(generation))
        self.answer(req, t + 0.2, status=400)

    def end(self, t: float) -> None:
        self._add(t, "stopped")

    @property
    def ledger(self) -> Ledger:
        return parse_ledger(self.lines)

    def judged(self, **options: object) -> LedgerVerdict:
        return judge(self.ledger, **options)  # type: ignore[arg-type]


def _where(generation: int) -> dict[str, object]:
    return {"provider": "p", "connection": "acme", "generation": generation}


def test_a_clean_run_is_clean() -> None:
    book = Book()
    for generation in range(1, 6):
        book.rotate(generation * 10.0, generation, generation + 1)
    verdict = book.judged()
    assert (verdict.provider_posts, verdict.generations, len(verdict.rotations)) == (5, 5, 5)
    assert (verdict.violations, verdict.burnt, verdict.lost_answers, verdict.overlaps) == ((), 0, 0, 0)


def test_a_planted_violation_is_found_and_named() -> None:
    book = Book()
    book.rotate(10, 1, 2)
    book.rotate(20, 2, 3)
    book.refuse(30, 1)
    verdict = book.judged()
    (violation,) = verdict.violations
    assert (violation.connection, violation.generation, violation.posts) == ("acme", 1, 2)
    assert (verdict.replays, verdict.replays_allowed, verdict.reuse_events) == (1, 0, 1)
    assert [(burn.generation, burn.cause) for burn in verdict.burns] == [(1, "replay")]


@pytest.mark.parametrize("status", [429, 500, 503, 401])
def test_a_retry_after_an_answered_failure_is_free(status: int) -> None:
    book = Book()
    book.fail(10, 1, status)
    book.fail(20, 1, status)
    book.rotate(30, 1, 2)
    verdict = book.judged()
    assert (verdict.answered_failures, verdict.replays, verdict.violations) == (2, 0, ())


def test_a_failure_that_was_cut_short_gives_no_free_retry() -> None:
    book = Book()
    book.answer(book.arrive(10), 11, status=503, delivered=False)
    book.rotate(20, 1, 2)
    assert len(book.judged().violations) == 1


def test_a_failure_after_processing_gives_no_free_retry() -> None:
    book = Book()
    req = book.arrive(10)
    book.process(req, 10.1, "rotated", successor=2)
    book.answer(req, 10.2, status=500, tokens=False)
    book.refuse(20, 1)
    verdict = book.judged()
    assert len(verdict.violations) == 1
    assert verdict.answered_failures == 0


def test_a_forbidden_replay_is_seen_even_where_it_met_a_failure() -> None:
    book = Book()
    book.rotate(10, 1, 2, tokens=False)
    book.fail(20, 1, 503)
    verdict = book.judged()
    assert (verdict.violations, verdict.replays_forbidden, verdict.replays_allowed) == ((), 1, 0)


def test_a_token_that_was_kept_may_be_presented_again() -> None:
    book = Book()
    for t in (10, 20, 30):
        req = book.arrive(t)
        book.process(req, t + 0.1, "minted")
        book.answer(req, t + 0.2, status=200, tokens=True)
    book.rotate(40, 1, 2)
    verdict = book.judged()
    assert (verdict.generations, verdict.replays, verdict.violations) == (4, 0, ())


@pytest.mark.parametrize(
    ("policy", "left_s", "violations"),
    [
        ("strict", 100.0, 1),
        ("strict", 0.5, 0),
        ("strict_family_revoke", 0.5, 1),
    ],
)
def test_strict_policy_allows_one_refusal_at_expiry(policy: str, left_s: float, violations: int) -> None:
    book = Book(policy)
    book.rotate(10, 1, 2, tokens=False)
    book.refuse(200, 1, left_s=left_s)
    verdict = book.judged()
    assert len(verdict.violations) == violations
    assert [burn.cause for burn in verdict.burns] == ["lost_answer"], "the replay burnt nothing new"


def test_the_look_at_expiry_is_one() -> None:
    book = Book()
    book.rotate(10, 1, 2, tokens=False)
    book.refuse(200, 1, left_s=-1)
    book.refuse(300, 1, left_s=-100)
    assert len(book.judged().violations) == 1


def test_a_look_at_expiry_burns_nothing_where_the_answer_comes_to_light_after_it() -> None:
    book = Book()
    book.rotate(10, 1, 2)
    book.refuse(200, 1, left_s=-1)
    book.rotate(300, 2, 3)
    verdict = book.judged()
    assert (verdict.violations, verdict.burnt) == ((), 0)


def test_a_replay_before_expiry_is_a_burn_also_where_the_answer_comes_to_light() -> None:
    book = Book()
    book.rotate(10, 1, 2)
    book.refuse(20, 1)
    book.rotate(300, 2, 3)
    assert [burn.cause for burn in book.judged().burns] == ["replay"]


def test_the_policies_that_look_at_expiry_are_the_callers_choice() -> None:
    book = Book("strict_family_revoke")
    book.rotate(10, 1, 2, tokens=False)
    book.refuse(200, 1, left_s=-1)
    assert book.judged(replay_at_expiry=["strict_family_revoke"]).violations == ()


def test_until_successor_used_allows_replays_until_then() -> None:
    book = Book("until_successor_used")
    book.rotate(10, 1, 2, tokens=False)
    req = book.arrive(20)
    book.process(req, 20.1, "replayed", successor=3)
    book.answer(req, 20.2, status=200, tokens=True)
    verdict = book.judged()
    assert (verdict.replays_allowed, verdict.violations, verdict.burnt) == (1, (), 0)
    assert (verdict.lost_answers, verdict.generations) == (1, 1)
    book.rotate(30, 3, 4)
    book.refuse(40, 1)
    verdict = book.judged()
    assert [count.generation for count in verdict.violations] == [1]
    assert verdict.burnt == 0, "the successor is alive in somebody's hands"


def test_a_client_that_kept_the_replaced_successor_lost_its_token() -> None:
    book = Book("until_successor_used")
    book.rotate(10, 1, 2)
    req = book.arrive(20)
    book.process(req, 20.1, "replayed", successor=3)
    book.answer(req, 20.2, status=200, tokens=True)
    book.refuse(30, 2, "superseded")
    assert [(burn.generation, burn.cause) for burn in book.judged().burns] == [(2, "superseded")]


@pytest.mark.parametrize(("end", "burnt"), [(50.0, 0), (80.0, 1)])
def test_under_grace_a_lost_answer_burns_when_the_window_closes(end: float, burnt: int) -> None:
    book = Book("grace", 60.0)
    book.rotate(10, 1, 2, tokens=False)
    book.end(end)
    verdict = book.judged()
    assert (verdict.lost_answers, verdict.burnt) == (1, burnt)


@pytest.mark.parametrize(("t", "violations"), [(60.0, 0), (80.0, 1)])
def test_under_grace_a_replay_is_allowed_inside_the_window(t: float, violations: int) -> None:
    book = Book("grace", 60.0)
    book.rotate(10, 1, 2, tokens=False)
    book.refuse(t, 1)
    assert len(book.judged().violations) == violations


@pytest.mark.parametrize("policy", ["strict", "strict_family_revoke"])
def test_under_strict_a_lost_answer_burns(policy: str) -> None:
    book = Book(policy)
    book.rotate(10, 1, 2, tokens=False)
    (burn,) = book.judged().burns
    assert (burn.generation, burn.cause) == (1, "lost_answer")
    assert burn.rotation is not None
    assert (burn.rotation.t_arrived, burn.rotation.t_processed, burn.rotation.t_answered) == (10, 10.1, 10.2)
    assert not burn.rotation.delivered


@pytest.mark.parametrize("policy", ["stable", "assertion"])
def test_token_that_is_never_spent_is_never_burnt(policy: str) -> None:
    book = Book(policy)
    for t in (10, 20, 30):
        req = book.arrive(t)
        book.process(req, t + 0.1, "minted")
        book.answer(req, t + 0.2, status=200, delivered=False, tokens=False)
    verdict = book.judged()
    assert (verdict.replays, verdict.replays_allowed, verdict.violations, verdict.burnt) == (2, 2, (), 0)


def test_presenting_the_successor_proves_delivery() -> None:
    book = Book()
    req = book.arrive(10)
    book.process(req, 10.1, "rotated", successor=2)  # the issuer was killed before it wrote "answered"
    book.rotate(20, 2, 3)
    verdict = book.judged()
    assert [rotation.delivered for rotation in verdict.rotations] == [True, True]
    assert (verdict.burnt, verdict.lost_answers) == (0, 0)


def test_a_client_that_looks_back_at_expiry_never_got_the_answer() -> None:
    book = Book()
    book.rotate(10, 1, 2)  # left whole, but the client died before it could write it down
    book.refuse(200, 1, left_s=0)
    (burn,) = book.judged().burns
    assert burn.cause == "lost_answer"
    assert burn.rotation is not None
    assert burn.rotation.delivered, "as far as the issuer could see"


@pytest.mark.parametrize("policy", ["stable", "strict", "until_successor_used"])
def test_asking_again_after_a_refusal_is_a_violation(policy: str) -> None:
    book = Book(policy)
    book.refuse(10, 1, "revoked")
    assert book.judged().violations == ()
    book.refuse(20, 1, "revoked")
    assert len(book.judged().violations) == 1


def test_two_posts_at_once_overlap() -> None:
    book = Book("stable")
    first = book.arrive(10)
    second = book.arrive(10.05)
    for req in (first, second):
        book.process(req, 10.1, "minted")
        book.answer(req, 10.2, status=200, tokens=True)
    assert book.judged().overlaps == 1


def test_windows_of_death_explain_lost_answers_only() -> None:
    book = Book()
    book.rotate(10, 1, 2, tokens=False)
    verdict = book.judged()
    assert verdict.burnt_outside([(10.15, 10.3)]) == ()
    assert len(verdict.burnt_outside([(3.0, 9.9), (10.3, 11.0)])) == 1
    book = Book()
    book.rotate(10, 1, 2)
    book.rotate(20, 2, 3)
    book.refuse(30, 1)
    assert len(book.judged().burnt_outside([(0.0, 100.0)])) == 1, "a replay is nobody's death"


def test_calls_strays_revocations_and_unknown_tokens_are_counted() -> None:
    book = Book()
    book.answer(book.arrive(1, None, query=True), 1.1, status=400)
    book.arrive(2, None, incomplete=True)
    for why in ("live", "expired", "revoked"):
        book._add(3, "resource", provider="p", connection="acme", status=401, why=why)
    book._add(4, "stray", method="GET", path="/_elsewhere")
    book._add(5, "family", **_where(1), change="revoked", reason="customer")
    verdict = book.judged()
    assert (verdict.provider_posts, verdict.unknown_tokens, verdict.incomplete) == (1, 1, 1)
    assert (verdict.resource_calls, verdict.expired_served, verdict.strays) == (3, 1, 1)
    assert (verdict.revoked, verdict.in_url) == (1, 1)


def test_totals_are_plain_figures() -> None:
    book = Book()
    book.rotate(10, 1, 2, tokens=False)
    totals = book.judged().totals()
    assert (totals["provider_posts"], totals["lost_answers"], totals["burnt"]) == (1, 1, 1)
    assert totals["violations"] == 0
    assert json.loads(json.dumps(totals)) == totals


def test_ledger_judges_a_single_provider() -> None:
    book = Book()
    book.rotate(10, 1, 2)
    assert book.judged(provider="p").provider_posts == 1
    assert book.judged(provider="other").provider_posts == 0


def test_an_issuer_that_appends_begins_a_new_run() -> None:
    first, second = Book(), Book()
    first.rotate(10, 1, 2)
    second.rotate(10, 1, 2)
    verdict = judge(parse_ledger([*first.lines, *second.lines]))
    assert (verdict.provider_posts, verdict.violations) == (2, ())


def test_half_a_line_at_the_place_of_death_is_passed_over(tmp_path: Path) -> None:
    book, path = Book(), tmp_path / "ledger.ndjson"
    book.rotate(10, 1, 2)
    path.write_text("".join(book.lines) + '{"t":11,"se', "utf-8")
    ledger = read_ledger(path)
    assert (len(ledger.entries), ledger.complete) == (5, False)
    path.write_text("".join(book.lines) + '{"t":11,"se\n' + "".join(Book().lines), "utf-8")
    assert len(read_ledger(path).entries) == 7


@pytest.mark.parametrize("spoil", ["drop", "cut"])
def test_any_other_damage_is_refused(spoil: str) -> None:
    book = Book()
    book.rotate(10, 1, 2)
    lines = book.lines[:2] + book.lines[3:] if spoil == "drop" else [*book.lines[:2], "{\n", *book.lines[2:]]
    with pytest.raises(InvalidInputError, match="damaged at line"):
        parse_ledger(lines)


def test_names_with_odd_line_breaks_stay_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.ndjson"
    path.write_text('{"t":1,"seq":1,"ev":"started","url":"a\u2028b\x85c"}\n', "utf-8")
    assert read_ledger(path).entries[0].fields["url"] == "a\u2028b\x85c"
