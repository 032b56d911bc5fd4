"""What is judged at the end finds a breach that was planted, and lets pass what only looks like one."""

from __future__ import annotations

from random import Random
from typing import cast
from uuid import UUID

import pytest

from fairlead._core.clock import Clock
from fairlead._core.secret import Secret
from fairlead.engine.ports import ConnectionKey, NewJob, Sealed, TokenCall
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.states import JobState
from fairlead.testing._kit.ids import CountedIds
from fairlead.testing._memory import MemoryDatabase
from fairlead.testing._memory.dead_lettering import unrun_to_dead_letter
from fairlead.testing._memory.enqueue import insert
from fairlead.testing._memory.rows import JobRow
from fairlead.testing._memory.token_rows import CredentialRow
from tests.simulation.endings import burnt_grant, given_up, lost_job, stored_twice
from tests.simulation.issuer import SimIssuer
from tests.simulation.providers import ACCESS_TTL_S
from tests.simulation.stores import WORK
from tests.simulation.watch import NOBODY, CalledOff, Enqueued, Struck, Watch
from tests.simulation.wire import HowItEnded

JOB, CONNECTION = UUID(int=1), UUID(int=2)
AT_S = 5.0
"""When a refresh arrives."""
GIVEN_UP = "the grant of a lives, and was given up"


class Ends:
    """A world at its end: what is stored, what the issuer knows, and what was told."""

    def __init__(self) -> None:
        self.at = 0.0
        self.database = MemoryDatabase(cast(Clock, self), CountedIds())
        self.watch = Watch(self.monotonic, lambda: NOBODY)
        self.issuer = SimIssuer(self.monotonic, Random(1))

    def monotonic(self) -> float:
        return self.at

    # ---- jobs ----------------------------------------------------------------------------------

    def enqueued(
        self, job_id: UUID = JOB, *, unique_key: str | None = None, acknowledged: bool = True
    ) -> JobRow:
        """A job that was stored, and whether that was answered."""
        job = NewJob(job_id=job_id, kind="sim.work", tenant_id="a", args={WORK: 7}, unique_key=unique_key)
        insert(self.database, job)
        if acknowledged:
            self.watch.tell(Enqueued(job_id, 7, "a"))
        return self.database.jobs[job_id]

    def lost(self) -> bool:
        broken = lost_job(self.watch, self.database)
        assert broken is None or broken.invariant == "I1"
        return broken is not None

    # ---- grants --------------------------------------------------------------------------------

    def connected(self, provider: str) -> str:
        """The refresh token of a tenant's first grant, which is stored."""
        tokens = self.issuer.register(provider, "a")
        self.stored(provider, tokens.refresh_token)
        return tokens.refresh_token

    def stored(self, provider: str, refresh_token: str, state: str = "active") -> None:
        """What the database has of the tenant's grant."""
        sealed = Sealed(UUID(int=9), refresh_token.encode())
        row = CredentialRow(CONNECTION, ConnectionKey("a", provider), sealed, True, self.database.now)
        row.state = state  # type: ignore[assignment]
        self.database.tokens.credentials[CONNECTION] = row

    def refreshed(
        self,
        provider: str,
        token: str,
        how: HowItEnded = "answered",
        process: str = "p1",
        deadline_s: float = 15.0,
    ) -> str:
        """One request of *process*, and how it ended; the newest refresh token of the issuer."""
        form = {"grant_type": Secret("refresh_token"), "refresh_token": Secret(token)}
        call = TokenCall(f"https://issuer.sim/{provider}/token", {}, form, deadline_s, reuse_connection=True)
        self.issuer.arrive(call, process).ended(how)
        family = self.issuer.families.family(provider, "a")
        assert family is not None
        return family.current.text

    def strikes(self, fault: str, at: float, until: float, process: str = "p1") -> None:
        self.at = at
        self.watch.tell(Struck(fault, until), process)

    def harm(self) -> str | None:
        """What I6 says of it, ten minutes later."""
        self.at = 600.0
        self.issuer.register("stable", "another")  # the ledger's last line tells how long nobody came back
        broken = burnt_grant(self.watch, self.database, self.issuer) or given_up(
            self.watch, self.database, self.issuer
        )
        assert broken is None or broken.invariant == "I6"
        return None if broken is None else broken.why


@pytest.fixture
def ends() -> Ends:
    return Ends()


# ---- I1, I3 ------------------------------------------------------------------------------------


def test_i1_an_acknowledged_job_that_is_gone_is_found(ends: Ends) -> None:
    ends.enqueued()
    assert not ends.lost()
    del ends.database.jobs[JOB]
    assert ends.lost()


def test_i1_a_discarded_job_without_a_dead_letter_is_found(ends: Ends) -> None:
    row = ends.enqueued()
    row.end(JobState.DISCARDED, ends.database.now)
    assert ends.lost()


def test_i1_a_dead_letter_or_a_job_that_was_called_off_is_no_loss(ends: Ends) -> None:
    row, other = ends.enqueued(), ends.enqueued(UUID(int=3))
    unrun_to_dead_letter(ends.database, row, Category.TRANSIENT_SERVER, "poison", "it killed its worker")
    other.end(JobState.CANCELLED, ends.database.now)
    ends.watch.tell(CalledOff(other.job_id))
    assert not ends.lost()


@pytest.mark.parametrize("acknowledged", [True, False])
def test_i1_a_job_that_is_cancelled_and_that_nobody_called_off_is_found(
    ends: Ends, acknowledged: bool
) -> None:
    row, other = ends.enqueued(acknowledged=acknowledged), ends.enqueued(UUID(int=3))
    row.end(JobState.CANCELLED, ends.database.now)
    ends.watch.tell(CalledOff(other.job_id))
    assert ends.lost()


def test_i3_a_key_that_is_stored_twice_is_found(ends: Ends) -> None:
    ends.enqueued(unique_key="k1")
    other = ends.enqueued(UUID(int=3), unique_key="k2")
    assert stored_twice(ends.watch, ends.database) is None
    other.unique_key = "k1"
    broken = stored_twice(ends.watch, ends.database)
    assert broken is not None
    assert broken.invariant == "I3"


# ---- I6 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["strict", "family", "grace", "successor", "stable"])
def test_i6_a_grant_that_is_refreshed_and_stored_is_whole(ends: Ends, provider: str) -> None:
    token = ends.connected(provider)
    for at in (5.0, 50.0):
        ends.at = at
        token = ends.refreshed(provider, token)
        ends.stored(provider, token)
    assert ends.harm() is None


def test_i6_a_token_that_is_presented_once_too_often_is_found(ends: Ends) -> None:
    token = ends.connected("strict")
    newest = ends.refreshed("strict", token)
    ends.refreshed("strict", token)
    ends.stored("strict", newest)
    assert ends.harm() == "generation 1 of a was presented 2 times"


def lost(ends: Ends, provider: str, how: HowItEnded = "answered") -> str:
    """A refresh at AT_S that nobody wrote down; the token that was spent."""
    token = ends.connected(provider)
    ends.at = AT_S
    ends.refreshed(provider, token, how)
    ends.stored(provider, token, "needs_reauth")
    return token


def comes_back(ends: Ends, token: str) -> None:
    """It is presented once more when the access token has expired: what was lost comes to light."""
    ends.at = AT_S + 2 * ACCESS_TTL_S
    ends.refreshed("strict", token)


def test_i6_an_answer_that_arrived_and_was_not_kept_is_found(ends: Ends) -> None:
    comes_back(ends, lost(ends, "strict"))
    assert ends.harm() == "generation 1 of a (strict) is burnt: lost_answer"


@pytest.mark.parametrize("how", ["lost", "cut", "died"])
def test_i6_an_answer_that_never_arrived_is_nobodys_fault(ends: Ends, how: HowItEnded) -> None:
    lost(ends, "strict", how)
    assert ends.harm() is None


def test_i6_but_who_could_ask_again_has_to(ends: Ends) -> None:
    lost(ends, "grace", "lost")
    assert ends.harm() == "generation 1 of a (grace) is burnt: lost_answer"


@pytest.mark.parametrize(
    ("strikes", "excused"),
    [
        ([("kill", AT_S + 0.1, 9.0)], True),
        ([("kill", AT_S + 1.0, 9.0)], False),  # it had time to write
        ([("kill", AT_S - 1.0, 9.0)], False),  # of another life
        ([("freeze", AT_S + 0.1, 60.0), ("kill", 59.0, 70.0)], True),
        ([("freeze", AT_S + 0.1, 60.0), ("kill", 61.0, 70.0)], False),
        ([("jump", AT_S + 0.1, 60.0)], False),
    ],
)
def test_i6_who_died_before_he_could_write_is_excused(
    ends: Ends, strikes: list[tuple[str, float, float]], excused: bool
) -> None:
    token = lost(ends, "strict")
    for fault, at, until in strikes:
        ends.strikes(fault, at, until)
    comes_back(ends, token)
    assert (ends.harm() is None) == excused


def test_i6_an_older_token_that_is_stored_as_good_is_found(ends: Ends) -> None:
    token = ends.connected("stable")
    assert ends.harm() is None
    ends.stored("stable", "refresh-99")
    assert ends.harm() == "the token stored for a is none that lives"
    ends.stored("stable", token)
    assert ends.harm() is None


def test_i6_a_grant_that_lives_and_is_given_up_is_found(ends: Ends) -> None:
    token = ends.connected("grace")
    ends.stored("grace", token, "needs_reauth")
    assert ends.harm() == GIVEN_UP


@pytest.mark.parametrize(("deadline_s", "excused"), [(15.0, True), (3.0, False)])
def test_i6_who_waits_too_short_for_an_answer_has_burnt_the_grant(
    ends: Ends, deadline_s: float, excused: bool
) -> None:
    token = ends.connected("strict")
    ends.at = AT_S
    ends.refreshed("strict", token, "gave_up", deadline_s=deadline_s)
    ends.stored("strict", token, "needs_reauth")
    assert (ends.harm() is None) == excused


@pytest.mark.parametrize(
    ("since", "late_s", "excused"), [(AT_S, 3.0, True), (AT_S, 0.0, False), (AT_S + 1, 3.0, False)]
)
def test_i6_of_two_sends_under_way_at_once_nobody_knows_the_later(
    ends: Ends, since: float, late_s: float, excused: bool
) -> None:
    """Where the one that left late had been answered before the other began, everybody does."""
    token = ends.connected("successor")
    form = {"grant_type": Secret("refresh_token"), "refresh_token": Secret(token)}
    call = TokenCall("https://issuer.sim/successor/token", {}, form, 15.0, reuse_connection=True)
    ends.at = AT_S
    ends.strikes("freeze", AT_S, 9.0)
    reply = ends.issuer.arrive(call, "p1", AT_S - 1, late_s)
    ends.at = AT_S + 0.5
    reply.ended("answered")
    family = ends.issuer.families.family("successor", "a")
    assert family is not None
    ends.stored("successor", family.current.text)
    ends.at = AT_S + 2
    ends.issuer.arrive(call, "p2", since).ended("answered")
    assert (ends.harm() is None) == excused


def test_i6_a_later_loss_is_not_excused_by_sends_that_crossed(ends: Ends) -> None:
    token = ends.connected("successor")
    form = {"grant_type": Secret("refresh_token"), "refresh_token": Secret(token)}
    call = TokenCall("https://issuer.sim/successor/token", {}, form, 15.0, reuse_connection=True)
    ends.at = AT_S
    ends.strikes("freeze", AT_S, 9.0)
    for process, late_s in (("p1", 3.0), ("p2", 0.0)):
        reply = ends.issuer.arrive(call, process, AT_S - 1, late_s)
        reply.ended("answered")
    family = ends.issuer.families.family("successor", "a")
    assert family is not None
    stored = family.current.text
    ends.stored("successor", stored)
    assert ends.harm() is None
    ends.at = AT_S + 60
    ends.refreshed("successor", stored)
    assert ends.harm() is not None
