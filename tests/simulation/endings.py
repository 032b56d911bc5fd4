"""What must hold once all is mended: nothing lost, nothing left, no grant burnt without an excuse.

    I1 an acknowledged job is done, dead, called off or pending   I3 a key stands for one job
    I6 no grant is burnt, and none given up that lives

What is still to come is told in words; `at_end` judges what has come to its end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from itertools import combinations, product
from uuid import UUID

from fairlead.policy.jobs.states import JobState
from fairlead.testing._memory import MemoryDatabase
from fairlead.testing._memory.rows import JobRow
from fairlead.testing._memory.token_rows import CredentialRow
from fairlead.testing.ledger import Burn, Ledger, Post, judge, posts_of
from tests.simulation.issuer import Leave, SimIssuer
from tests.simulation.providers import RULES
from tests.simulation.spells import Spells
from tests.simulation.stores import WORK
from tests.simulation.watch import Broken, CalledOff, Enqueued, Entry, Struck, Watch

ON_DISK_S = 0.2
"""Between the moment that an answer leaves the issuer and that at which it is in the journal, at most."""
_TOKENS = re.compile(r"[a-z]+-[0-9]+")
OVERDUE_S = 10.0
"""So much later than its time a job of the fleet may begin where there is little to do."""
RELEASED_S = 1.0
"""Between the moment that a sender knows that nothing was done and that at which the database does."""
KEEP_FROM_TELLING = ("kill", "freeze", "cut", "away")
"""Faults that keep a process from telling the database what it knows."""
UNAVOIDABLE = ("lost", "cut", "died", "gave_up")
"""Ways to lose an answer that no client can help: only the provider's grace does."""
DEADLINE_S = 15.0
"""So long an answer is waited for; who gives up sooner has burnt the grant himself."""


# ---- what is still to come ---------------------------------------------------------------------


def work_left(database: MemoryDatabase) -> Iterator[str]:
    """Pieces of work that are not done. Only a call whose grant is gone may wait: for the customer."""
    lost_tenants = {row.key.tenant for row in database.tokens.credentials.values() if not row.usable}
    for row in database.jobs.values():
        awaits_customer = (
            row.state is JobState.AVAILABLE and row.provider is not None and row.tenant_id in lost_tenants
        )
        if WORK in row.args and row.state in (JobState.AVAILABLE, JobState.RUNNING) and not awaits_customer:
            yield f"work {row.args[WORK]} ({row.kind}) of {row.tenant_id} is {row.state.value}"


def refreshes_left(database: MemoryDatabase) -> Iterator[str]:
    """Refreshes that were begun, and whose outcome nobody has settled."""
    for rotation in database.tokens.rotations.values():
        key = database.tokens.credentials[rotation.connection_id].key
        yield f"a refresh of {key.tenant} is in phase {rotation.phase}"


def jobs_due(database: MemoryDatabase) -> Iterator[str]:
    """Whatever runs, or should: work of all kinds, and what the fleet has to do for itself."""
    for row in database.jobs.values():
        late_s = (database.now - row.run_at).total_seconds()
        if row.state is JobState.RUNNING or (row.state is JobState.AVAILABLE and late_s > OVERDUE_S):
            yield f"a job {row.kind} of {row.tenant_id} is {row.state.value}, {late_s:.0f} s after its time"


def asked_left(database: MemoryDatabase, job_ids: Collection[UUID]) -> Iterator[str]:
    """Of the jobs that were *asked* for after the mending, those that are not done."""
    for job_id in job_ids:
        row = database.jobs[job_id]
        if row.state is not JobState.COMPLETED:
            yield f"a job {row.kind} of {row.tenant_id}, ordered after the mending, is {row.state.value}"


def grants_gone(database: MemoryDatabase) -> Iterator[str]:
    """Connections without a token that is known to be good."""
    for row in database.tokens.credentials.values():
        if row.state != "active":
            yield f"the grant of {row.key.tenant} is {row.state}"


def endpoints_shut(database: MemoryDatabase) -> Iterator[str]:
    """Token endpoints whose breaker is not closed."""
    for key, endpoint in database.tokens.endpoints.items():
        if endpoint.state != "closed":
            yield f"the token endpoint of {key.provider} is {endpoint.state}"


# ---- what has ended ----------------------------------------------------------------------------


def at_end(watch: Watch, database: MemoryDatabase, issuer: SimIssuer) -> Broken | None:
    """The first of I1, I3 and I6 that is broken."""
    return (
        lost_job(watch, database)
        or stored_twice(watch, database)
        or burnt_grant(watch, database, issuer)
        or given_up(watch, database, issuer)
    )


def lost_job(watch: Watch, database: MemoryDatabase) -> Broken | None:
    """I1: what was acknowledged is there, and where it has ended badly there is a dead letter of it.

    No handler of work cancels it, so what is cancelled was called off: that very job, in the store.
    """
    letters = database.dead_letters.values()
    buried = {job_id for letter in letters for job_id in (letter.job_id, letter.lineage_id)}  # of its replays
    for entry in watch.told:
        if isinstance(entry.seen, Enqueued):
            why = _lost(database.jobs.get(entry.seen.job_id), buried, entry.seen)
            if why is not None:
                return Broken("I1", entry.at, why)
    called_off = {entry.seen.job_id for entry in watch.told if isinstance(entry.seen, CalledOff)}
    for row in database.jobs.values():  # replays, and what was stored unanswered, among them
        if WORK in row.args and row.state is JobState.CANCELLED and row.job_id not in called_off:
            why = f"work {row.args[WORK]} of {row.tenant_id} is cancelled, and nobody called it off"
            return Broken("I1", watch.now(), why)
    return None


def stored_twice(watch: Watch, database: MemoryDatabase) -> Broken | None:
    """I3: however often an enqueue is repeated, one job stands for its key; replays of it are others."""
    stored: dict[str, UUID] = {}
    for row in database.jobs.values():
        if WORK not in row.args or row.unique_key is None or row.replay_of is not None:
            continue
        if row.unique_key in stored:
            why = (
                f"{row.unique_key} of {row.tenant_id} is stored as {stored[row.unique_key]} and {row.job_id}"
            )
            return Broken("I3", watch.now(), why)
        stored[row.unique_key] = row.job_id
    return None


def _lost(row: JobRow | None, buried: set[UUID], job: Enqueued) -> str | None:
    if row is None:
        return f"work {job.work} of {job.tenant} was acknowledged, and its job is gone"
    if row.state is JobState.DISCARDED and row.job_id not in buried:
        return f"work {job.work} of {job.tenant} was discarded without a dead letter"
    return None


def burnt_grant(watch: Watch, database: MemoryDatabase, issuer: SimIssuer) -> Broken | None:
    """I6: no refresh token was presented more often than its provider's policy allows, and none was lost.

    Excused is what nobody can help: an answer that never reached a process which lived to write it down,
    where the provider does not repeat itself. One that came to light late, as its process had stood still,
    was not lost.
    """
    live_tenants = {
        row.key.tenant for row in database.tokens.credentials.values() if _holds_live(row, issuer)
    }
    ledger = issuer.ledger()
    verdict = judge(ledger)
    for count in verdict.violations:
        why = f"generation {count.generation} of {count.connection} was presented {count.posts} times"
        return Broken("I6", watch.now(), why)
    beside = sum(not _is_taken_over(*pair, issuer, watch.told) for pair in _overlaps(ledger))
    if beside:
        return Broken("I6", watch.now(), f"{beside} refreshes were sent beside others of their grant")
    for burn in verdict.burns:
        if burn.connection not in live_tenants and not _is_excused(burn, ledger, issuer, watch.told):
            why = (
                f"generation {burn.generation} of {burn.connection} ({burn.provider}) is burnt: {burn.cause}"
            )
            return Broken("I6", burn.t, why)
    return None


def _overlaps(ledger: Ledger) -> Iterator[tuple[Post, Post]]:
    """Each two presentations of a token of which one arrived while the other was in the issuer's hands."""
    for first, other in combinations(posts_of(ledger), 2):
        of = first.provider, first.connection, first.generation
        same = first.generation is not None and of == (other.provider, other.connection, other.generation)
        if same and (first.seq_answered is None or other.seq_arrived < first.seq_answered):
            yield first, other


def _is_taken_over(own_post: Post, other: Post, issuer: SimIssuer, journal: list[Entry]) -> bool:
    """Whether who asked first died or stood still before he was answered: his place was another's by then."""
    first = min(own_post, other, key=lambda post: issuer.asked[post.request])
    until = math.inf if first.t_answered is None else first.t_answered
    return _struck(
        issuer.senders[first.request], ("kill", "freeze"), issuer.asked[first.request], until, journal
    )


def _struck(process: str, faults: Collection[str], since: float, until: float, journal: list[Entry]) -> bool:
    """Whether one of *faults* met *process*, or all, between the two."""
    spells = Spells(*faults)
    for entry in journal:
        spells.see(entry)
    return bool(spells.of(process, since, until))


def _is_excused(burn: Burn, ledger: Ledger, issuer: SimIssuer, journal: list[Entry]) -> bool:
    if burn.cause == "superseded":
        crossed = _have_crossed(burn.connection, burn.generation, ledger, issuer)
        return crossed or _by_a_late_loss(burn.connection, burn.generation, issuer, journal)
    if burn.cause != "lost_answer" or burn.rotation is None:
        return False
    if _is_late_loss(burn.connection, burn.generation, issuer, journal):
        return True
    if RULES[burn.provider].policy.forgives:
        return False
    posts = [post for post in posts_of(ledger) if _is_of(post, burn)]
    return all(_lost_for_good(post, issuer, journal) for post in posts if post.rotated)


def _is_of(post: Post, burn: Burn) -> bool:
    of = post.provider, post.connection, post.generation
    return of == (burn.provider, burn.connection, burn.generation)


def _is_late_loss(connection: str | None, spent: int | None, issuer: SimIssuer, journal: list[Entry]) -> bool:
    """Whether the newest answer to a token was for one who left late and never had it, after another had his.

    What that other stored is good for nothing then, and nobody is left who knows.
    """
    rotated = [
        post
        for post in posts_of(issuer.ledger())
        if (post.connection, post.generation) == (connection, spent) and post.rotated
    ]
    last, answered = rotated[-1], any(post.tokens for post in rotated[:-1])
    return answered and last.request in issuer.late and _lost_for_good(last, issuer, journal)


def _by_a_late_loss(
    connection: str | None, generation: int | None, issuer: SimIssuer, journal: list[Entry]
) -> bool:
    """Whether that took the life of *generation*."""
    posts = [post for post in posts_of(issuer.ledger()) if post.connection == connection and post.rotated]
    spent = {post.generation for post in posts if post.successor == generation}
    return any(_is_late_loss(connection, generation, issuer, journal) for generation in spent)


def _lost_for_good(post: Post, issuer: SimIssuer, journal: list[Entry]) -> bool:
    """Whether its answer never was on any disk of ours."""
    how = issuer.ends.get(post.request)
    if how == "gave_up" and issuer.deadlines[post.request] < DEADLINE_S:
        return False
    if how != "answered":
        return how is None or how in UNAVOIDABLE
    assert post.t_answered is not None
    return _died_at(issuer.senders[post.request], post.t_answered, journal)


def _died_at(process: str, at: float, journal: list[Entry]) -> bool:
    """Whether it was killed before it can have written down what came at *at*: a freeze gives it no time."""
    until = at + ON_DISK_S
    for entry in journal:
        if entry.process == process and isinstance(entry.seen, Struck) and entry.at <= until:
            if entry.seen.fault == "freeze":
                until = max(until, entry.seen.until + ON_DISK_S)
            elif entry.seen.fault == "kill" and entry.at >= at:
                return True
    return False


def given_up(watch: Watch, database: MemoryDatabase, issuer: SimIssuer) -> Broken | None:
    """I6: what is stored as good is the issuer's live token, and no token that lives is stored as gone.

    Where a provider forgives no replay, a grant whose last send may have been heard is given up unseen; one
    that was never sent, or of whose every send the database knew that nothing was done, is not.
    """
    for row in database.tokens.credentials.values():
        holds = _holds_live(row, issuer)
        given_up_s = watch.now() - (database.now - row.state_at).total_seconds()
        spent = _may_be_spent(row, given_up_s, issuer, watch.told)
        forgives = RULES[row.key.provider].policy.forgives or not spent
        if row.state == "active" and not holds and not _may_be_the_other(row, issuer, watch.told):
            return Broken("I6", watch.now(), f"the token stored for {row.key.tenant} is none that lives")
        if row.state == "needs_reauth" and holds and forgives:
            return Broken("I6", watch.now(), f"the grant of {row.key.tenant} lives, and was given up")
    return None


def _may_be_the_other(row: CredentialRow, issuer: SimIssuer, journal: list[Entry]) -> bool:
    """Whether what is stored came of one of two sends of which nobody knows the later."""
    generations = [issuer.families.find(text) for text in _stored(row)]
    numbers = [
        generation.number
        for generation in generations
        if generation is not None and generation.state == "superseded"
    ]
    of, ledger = row.key.tenant, issuer.ledger()
    return any(
        _have_crossed(of, number, ledger, issuer) or _by_a_late_loss(of, number, issuer, journal)
        for number in numbers
    )


def _have_crossed(connection: str | None, generation: int | None, ledger: Ledger, issuer: SimIssuer) -> bool:
    """Whether what brought *generation* and another send of that token were under way at once, one late.

    Nobody knows their order. Who waits for the end of a send counts from its mark, and cannot know that it
    left long after that. Nor does one that left late know when another left, but only when that was marked:
    seconds may lie between.
    """
    posts = [post for post in posts_of(ledger) if post.connection == connection and post.rotated]
    ours = [post for post in posts if post.successor == generation]
    for own_post, other in product(ours, posts):
        same = own_post.generation == other.generation and own_post is not other
        if same and issuer.late & {own_post.request, other.request}:
            assert own_post.t_answered is not None
            assert other.t_answered is not None
            since = issuer.since[own_post.request], issuer.since[other.request]
            if since[0] < other.t_answered and since[1] < own_post.t_answered:
                return True
    return False


def _may_be_spent(row: CredentialRow, at: float, issuer: SimIssuer, journal: list[Entry]) -> bool:
    """Whether nobody could know, as a grant was given up at *at*, what had become of its newest token.

    Its sender knows once an answer has come, or where nothing left, and the database soon after, unless he
    was kept from telling it.
    """
    family = issuer.families.family(row.key.provider, row.key.tenant)
    assert family is not None
    leaves = issuer.leaves.get(family.current.text, [])
    return any(_is_open(leave, at, journal) for leave in leaves if leave.at <= at)


def _is_open(leave: Leave, at: float, journal: list[Entry]) -> bool:
    """Whether the database may not have known at *at* that nothing was done with what was to be sent."""
    if leave.done_at is None:
        return True
    until = leave.done_at + RELEASED_S
    return at <= until or _struck(leave.process, KEEP_FROM_TELLING, leave.at, until, journal)


def _holds_live(row: CredentialRow, issuer: SimIssuer) -> bool:
    """Whether what is stored is the issuer's newest token, and good."""
    family = issuer.families.family(row.key.provider, row.key.tenant)
    assert family is not None
    is_live = not family.revoked and family.current.state == "live"
    return is_live and family.current.text in _stored(row)


def _stored(row: CredentialRow) -> list[str]:
    """The tokens in a stored credential: the simulated vault hides nothing."""
    return _TOKENS.findall(row.sealed.blob.decode())
