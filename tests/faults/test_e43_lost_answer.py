"""E43: the answer to a refresh is cut at any byte, or its process is killed at any point (P6).

What may be lost is the answer of a provider without grace whose process died between the provider's commit
and our journal's fsync. That window is measured here, and nothing is lost outside of it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fairlead.testing import Quirk
from fairlead.testing.ledger import posts_of
from tests.faults.support.child import Child, Gone
from tests.faults.support.faultproxy import FaultProxy, tcp_proxy
from tests.faults.support.refreshes import STRICT, die_at, expected, proven, recover, refresh_result
from tests.faults.support.report import FULL, Figures, quantiles, sized
from tests.faults.support.stage import FAMILY, POLICIES, Stage, until
from tests.support.issuer import fetch, refresh_form
from tests.support.standstill import ran_s

pytestmark = pytest.mark.slow

POINTS = ("after_intent", "after_sent", "after_answer", "after_journal", "after_settle")
KILLED_UNDER = [
    policy for policy in POLICIES if policy != "grace-short"
]  # its time may be over by the heir's
LEFT_BEHIND = (("after_sent", "grace"), ("after_answer", "grace"), ("after_journal", FAMILY))
FORGIVING = ("grace", "grace-short", "until-successor-used")
DEADLINE_S = 3.0  # so that a replay is inside the short grace
SCAN_LEASE_S = 1.5
CUTS_SAMPLED = 9
WIRE_POLICIES = ("strict", "grace", "until-successor-used")
WIRE_BYTES, WIRE_CUTS = 250, sized(4, 100)  # any answer is longer
REPEATS = sized(1, 8)
STORM_ROUNDS, STORM_CONNECTIONS = sized(8, 300), 6
QUIET_REFRESHES = sized(60, 1000)


# ---- the answer is cut


async def _cut_places(stage: Stage, figures: Figures) -> list[int]:
    """Of a token answer: every byte, or in a smoke run both ends and some between."""
    probe = stage.issuer.register("strict", "probe")
    answer = await fetch(f"{stage.issuer.url}/strict/token", refresh_form(probe.refresh_token))
    size = len(answer.raw)
    if FULL:
        return list(range(size))
    return sorted({0, 1, size - 1, *figures.draw.sample(range(2, size - 1), CUTS_SAMPLED)})


def _delivered(stage: Stage, policy: str, name: str) -> bool:
    posts = posts_of(stage.issuer.ledger())
    return any(post.delivered for post in posts if (post.provider, post.connection) == (policy, name))


async def _lose(
    stage: Stage, child: Child, policy: str, cut: int, figures: Figures, wire: FaultProxy | None = None
) -> int:
    """Lose an answer after *cut* bytes, by the issuer or on the *wire*, and see what becomes of it.

    How many were lost: none where the answer ends before this byte.
    """
    name = f"cut-{cut}"
    (connection,) = await stage.connect(child, policy, [name])
    first = stage.live_token(policy, name)
    if wire is None:
        stage.issuer.be_rude(Quirk(cut=cut), provider=policy, connection=name, times=1)
        lost = await refresh_result(child, connection, 1)
    else:
        wire.cut_after_bytes = cut
        lost = await refresh_result(child, connection, 1)
        wire.cut_after_bytes = None
    if not isinstance(lost, str) and _delivered(stage, policy, name):
        return 0
    expected_error = "TransientFailureError" if policy == "stable" else "OutcomeUnknownError"
    figures.holds(lost == expected_error, f"{policy} cut at {cut}: {lost}")
    if policy in FORGIVING:
        figures.holds(
            await refresh_result(child, connection, 1) == lost, f"{policy} cut at {cut}: not waited for"
        )
    await stage.end_sends([connection], DEADLINE_S)
    again = await refresh_result(child, connection, 1)
    if policy not in STRICT:
        figures.holds(again != lost and again["generation"] == 2, f"{policy} cut at {cut}: {again}")
        await proven(stage, child, connection, policy, name, 2, figures)
        return 1
    served = (await child.ask("token", tenant=name, provider=policy))["token"]
    figures.holds((again, served) == (lost, first), f"{policy} cut at {cut}: not served meanwhile ({again})")
    await stage.expire([connection])
    ended = await refresh_result(child, connection, 1)
    figures.holds(ended == "ReauthRequiredError", f"{policy} cut at {cut}: ended {ended}")
    return 1


def _note_cuts(stage: Stage, figures: Figures, lost: Counter[str]) -> None:
    """What was *lost* under policies that forgive is a chance to burn a token, and none was taken.

    Where no answer is given again each loss is a token burnt; those stand apart, with their number.
    """
    burnt = {policy: stage.verdict(provider=policy).burnt for policy in lost}
    figures.note(n=sum(lost[policy] for policy in FORGIVING), cuts=lost.total(), burnt_by_policy=burnt)
    figures.note(
        lost_without_grace=sum(lost[policy] for policy in STRICT),
        burnt_where_nobody_can_help=sum(burnt.get(policy, 0) for policy in STRICT),
    )
    verdict = stage.verdict()
    figures.zero(
        burnt_where_it_can_be_had_again=sum(burnt[policy] for policy in burnt.keys() - set(STRICT)),
        violations=len(verdict.violations),
        replays_forbidden=verdict.replays_forbidden,
    )


async def _grace_is_over(stage: Stage, child: Child, figures: Figures) -> None:
    """A replay that would come too late is not made."""
    (connection,) = await stage.connect(child, "grace-short", ["late"])
    stage.issuer.be_rude(Quirk(cut="after"), provider="grace-short", connection="late", times=1)
    await refresh_result(child, connection, 1)
    await stage.end_sends([connection], 10.0)
    ended = await refresh_result(child, connection, 1)
    posts = [post for post in posts_of(stage.issuer.ledger()) if post.connection == "late"]
    figures.holds(
        (ended, len(posts)) == ("ReauthRequiredError", 1), f"after its grace: {ended}, {len(posts)} posts"
    )


async def test_E43_lost_answer_cut_at_a_byte(stage: Stage) -> None:
    figures = Figures("E43")
    cut_points = await _cut_places(stage, figures)
    child = await stage.born(numbers={"request_deadline_s": DEADLINE_S})
    lanes, lost = asyncio.Semaphore(8), Counter[str]()

    async def run_cut(policy: str, cut: int) -> None:
        async with lanes:
            times = await _lose(stage, child, policy, cut, figures)
            lost[policy] += times  # others have counted meanwhile

    await asyncio.gather(*(run_cut(policy, cut) for policy in POLICIES for cut in cut_points))
    await _grace_is_over(stage, child, figures)
    figures.note(what="cut at a byte")
    _note_cuts(stage, figures, lost)
    by_policy = figures.counters["burnt_by_policy"]
    figures.holds(by_policy[FAMILY] == by_policy["strict"] > 0, "each cut is a loss there")
    figures.conclude()


async def test_E43_lost_answer_cut_on_the_wire(stage: Stage) -> None:
    """As above, but the issuer believes that all went well."""
    figures = Figures("E43")
    cut_points, lost = sorted(figures.draw.sample(range(1, WIRE_BYTES), WIRE_CUTS)), Counter[str]()
    async with tcp_proxy(stage.issuer.url) as (wire, url):
        child = await stage.born(issuer_url=url, numbers={"request_deadline_s": DEADLINE_S})
        for cut in cut_points:
            for policy in WIRE_POLICIES:
                times = await _lose(stage, child, policy, cut, figures, wire)
                lost[policy] += times
        await child.stop()
    figures.note(what="cut on the wire")
    _note_cuts(stage, figures, lost)
    figures.conclude()


async def test_E43_ablation_a_cut_is_nothing(stage: Stage) -> None:
    figures = Figures("E43", ablation="cut_is_nothing", sees="replays_forbidden")
    child = await stage.born(unsafe=["cut_is_nothing"])
    (connection,) = await stage.connect(child, FAMILY, ["acme"])
    stage.issuer.be_rude(Quirk(cut=1), provider=FAMILY, connection="acme", times=1)
    results = [await refresh_result(child, connection, 1) for _ in range(2)]
    figures.note(told=results, burnt=stage.verdict().burnt)
    figures.zero(replays_forbidden=stage.verdict().replays_forbidden)
    figures.conclude()


# ---- the process is killed at a point


async def _kill_everywhere(stage: Stage, figures: Figures, **order: Any) -> dict[tuple[str, str, str], float]:
    """Every point under every policy; what died, and when."""
    cells = [
        (point, policy, f"{point}-{i}") for point in POINTS for policy in KILLED_UNDER for i in range(REPEATS)
    ]
    figures.draw.shuffle(cells)
    lanes = asyncio.Semaphore(6)

    async def run_cell(cell: tuple[str, str, str]) -> tuple[str, float]:
        async with lanes:
            return await die_at(stage, *cell, **order)

    died = dict(zip(cells, await asyncio.gather(*map(run_cell, cells)), strict=True))
    began_s = time.monotonic()
    heir = await stage.born(**order)  # on the same host, with the same journal folder
    await asyncio.gather(*(recover(stage, heir, died[cell][0], cell[1], figures) for cell in cells))
    figures.note(recovered_by_the_next_process_s=round(time.monotonic() - began_s, 3))
    for point, policy, name in cells:
        if expected(point, policy)[0] == "active":
            await proven(stage, heir, died[point, policy, name][0], policy, name, 2, figures)
    return {cell: dead_s for cell, (_, dead_s) in died.items()}


async def test_E43_lost_answer_killed_at_a_point(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E43")
    died = await _kill_everywhere(stage, figures)
    standing, posts = await stage.credentials(), posts_of(stage.issuer.ledger())
    burnt: dict[str, int] = {}
    given_up, window_s = 0, []
    for (point, policy, name), dead_s in died.items():
        state = standing[f"{name} {policy}"]["state"]
        sent = [post for post in posts if (post.provider, post.connection) == (policy, name)]
        proof = int(state == "active")
        where = f"{policy} killed {point}: {state} after {len(sent) - proof} posts"
        figures.holds((state, len(sent) - proof) == expected(point, policy), where)
        if state != "active" and sent:
            burnt[point] = burnt.get(point, 0) + 1
            window_s.append(dead_s - (sent[0].t_processed or 0.0))
        given_up += state != "active" and not sent
    in_window = burnt.pop("after_answer", 0)
    helpless = sum(point == "after_answer" and policy in STRICT for point, policy, _ in died)
    figures.note(what="killed at a point", n=len(died) - helpless, kills_at_points=len(died))
    figures.note(lost_without_grace=helpless, burnt_where_nobody_can_help=in_window, given_up_unsent=given_up)
    figures.note(killed_after_processing_ms=quantiles(window_s, 1000))
    figures.zero(burnt_outside_window=sum(burnt.values()), violations=len(stage.verdict().violations))
    figures.conclude()


async def test_E43_ablation_no_journal(stage: Stage) -> None:
    figures = Figures("E43", ablation="no_journal", sees="burnt_outside_window")
    connection, _ = await die_at(stage, "after_journal", "strict", "acme", unsafe=["no_journal"])
    heir = await stage.born(unsafe=["no_journal"])
    await recover(stage, heir, connection, "strict", figures)
    figures.zero(burnt_outside_window=stage.verdict().burnt)
    figures.conclude()


# ---- nobody asks


@pytest.mark.parametrize("death", ["proven", "presumed"])
async def test_E43_lost_answer_found_by_a_scan(stage: Stage, tmp_path: Path, death: str) -> None:
    """A process dies with a refresh in flight: the fleet finds it, without any caller."""
    figures = Figures("E43")
    numbers = {"lease_s": SCAN_LEASE_S, "poll_s": 0.1}
    unsafe = ["no_proof"] if death == "presumed" else []
    order = {"sink": str(tmp_path / "sink"), "scheduler": True, "unsafe": unsafe}
    await stage.born(worker=numbers, numbers={"request_deadline_s": 1.0}, **order)
    cells = [(*cell, f"{cell[0]}-{i}") for cell in LEFT_BEHIND for i in range(REPEATS)]
    died = await asyncio.gather(*(die_at(stage, *cell, worker=numbers, unsafe=unsafe) for cell in cells))
    recovered_s = await asyncio.gather(*(_recovered_at(stage, *death) for death in died))
    figures.note(
        what=f"found by a scan, death is {death}", n=len(cells), lease_s=SCAN_LEASE_S, scan_every_s=1.0
    )
    figures.note(sent_refresh_recovery_s=quantiles(recovered_s))
    bound_s = SCAN_LEASE_S + 1.0 + 6.0  # as jobs, after a scan
    figures.holds(max(recovered_s) <= bound_s, f"found after {max(recovered_s):.1f} s")
    figures.zero(burnt=stage.verdict().burnt, violations=len(stage.verdict().violations))
    figures.conclude()


async def _recovered_at(stage: Stage, connection: str, dead_s: float) -> float:
    async def is_found() -> bool:
        return await stage.generation(connection) == 2

    await until(is_found, "somebody sees to it")
    return ran_s(dead_s)


# ---- the process is killed at any moment


async def _killed_at_random(stage: Stage, figures: Figures, number: int, journaled: Path) -> list[str]:
    """A process that refreshes all the time, killed at some moment: its connections."""
    child = await stage.born(journaled=str(journaled))
    names = [f"storm-{number}-{i}" for i in range(STORM_CONNECTIONS)]
    connections = await stage.connect(child, "strict", names)
    busy = asyncio.ensure_future(child.ask("refresh_on", connections=connections, at_once=3))
    await asyncio.sleep(figures.draw.uniform(0.0, 0.08))
    await child.kill()
    with pytest.raises(Gone):
        await busy
    return connections


async def _settle_all(stage: Stage, connections: list[str]) -> None:
    """A fresh process takes over; then every access token ends, and strict ones may look once."""
    heir = await stage.born()
    ages = {connection: await stage.generation(connection) for connection in connections}
    await stage.expire(connections)
    await stage.end_sends(connections)
    await asyncio.gather(*(refresh_result(heir, connection, age) for connection, age in ages.items()))


async def test_E43_lost_answer_killed_at_any_moment(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E43")
    journaled = tmp_path / "journaled.ndjson"
    killed: list[str] = []
    for number in range(STORM_ROUNDS):
        killed += await _killed_at_random(stage, figures, number, journaled)
    ids = {row["name"]: row["id"] for row in await stage.rows(
        "SELECT tenant_id AS name, connection_id::text AS id FROM connection"
    )}  # fmt: skip
    on_disk = {
        (line["connection"], line["generation"])
        for line in map(json.loads, journaled.read_text().splitlines())
    }

    def not_on_disk(entries: Iterable[Any]) -> int:
        return sum((ids[entry.connection], entry.generation) not in on_disk for entry in entries)

    # before the heir asks for anything; some were written when their process died before it could say so
    lost = not_on_disk(stage.verdict().rotations)
    await _settle_all(stage, killed)
    burns = stage.verdict().burns
    in_window = not_on_disk(burns)
    figures.note(what="killed at any moment", n=STORM_ROUNDS)
    figures.note(lost_without_grace=lost, burnt_where_nobody_can_help=in_window)
    await _note_windows(stage, figures, journaled)
    figures.zero(burnt_outside_window=len(burns) - in_window, violations=len(stage.verdict().violations))
    figures.conclude()


async def _note_windows(stage: Stage, figures: Figures, journaled: Path) -> None:
    """How long the window was, where a kill did not meet it; and the same of a process that does little."""
    idle = journaled.with_name("journaled-idle.ndjson")
    await _refresh_quietly(stage, idle)
    window_s, idle_s = await stage.windows_s(journaled), await stage.windows_s(idle)
    figures.note(window_n=len(window_s), window_ms=quantiles(window_s, 1000))
    figures.note(window_idle_n=len(idle_s), window_idle_ms=quantiles(idle_s, 1000))


async def _refresh_quietly(stage: Stage, journaled: Path) -> None:
    """One refresh after the other, for the figures of an idle process."""
    child = await stage.born(journaled=str(journaled))
    (connection,) = await stage.connect(child, FAMILY, ["quiet"])
    for generation in range(1, QUIET_REFRESHES + 1):
        await child.ask("refresh", connection=connection, newer_than=generation)
