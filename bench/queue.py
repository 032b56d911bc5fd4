"""No-op jobs through whole queues: ours with all its safeguards, other queues for Python, and the bare limit.

In each round every side gets an empty database on the same server (the embedded PostgreSQL, its default
settings, fsync on) and its own processes. One enqueues jobs one after the other, then many at once, over 100
tenants. The tables are vacuumed and the server has written its pages. Then one worker process works the
backlog off, measured from the start of the first job to the stored end of the last one, or for ten seconds.

    queue.noop          ours: `Fairlead.run` with default settings: every role, leases, fence, results stored
    queue.enqueue_one   awaited one by one, on one connection
    queue.enqueue_bulk  the way each one documents for many, 1,000 jobs at a time (the limit: one COPY)

Some sides are shown beside the others and count in no goal: awa, PgQueuer with larger batches than it
documents, and ours with the log lines of `fairlead run`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.databases import connected, fresh_database, server, settle
from bench.report import Row
from bench.sides import Contender, SideFailedError, SkippedError, ask

START_S = 60.0
ENQUEUE_S = 180.0


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a round."""

    singles: int
    bulk: int
    drain_s: float


FULL = Size(singles=1_000, bulk=20_000, drain_s=10.0)
SMALL = Size(singles=20, bulk=400, drain_s=3.0)


@dataclass(frozen=True, slots=True)
class Field:
    """All contenders."""

    ours: Contender
    limit: Contender
    peers: Sequence[Contender]
    beside: Sequence[Contender]

    @property
    def all(self) -> list[Contender]:
        return [self.ours, self.limit, *self.peers, *self.beside]


def contenders(*, peers: bool) -> Field:
    """Return all contenders."""
    pgqueuer = "bench.peers.pgqueuer"
    others = {name: Contender(name, f"bench.peers.{name}") for name in ("procrastinate", "oban", "awa")}
    return Field(
        ours=Contender("fairlead", "bench.ours"),
        limit=Contender("limit", "bench.limits.queue"),
        peers=[Contender("pgqueuer", pgqueuer), others["procrastinate"], others["oban"]] if peers else [],
        beside=[
            Contender("fairlead_logged", "bench.ours", {"logged": True}),
            *([Contender("pgqueuer_1x100", pgqueuer, {"managers": 1, "batch_size": 100})] if peers else []),
            *([others["awa"]] if peers else []),
        ],
    )


async def run(*, rounds: int, quick: bool, peers: bool = True) -> list[Row]:
    """Measure all sides and return all rows."""
    size, taking_part = SMALL if quick else FULL, contenders(peers=peers)
    with server() as url:
        for contender in [] if quick else taking_part.all:  # files and caches are warm for the first round
            await _guarded_round(url, taking_part, contender, SMALL)
            contender.figures.clear()
        for number in range(rounds):
            turn = number % len(taking_part.all)
            for contender in taking_part.all[turn:] + taking_part.all[:turn]:
                await _guarded_round(url, taking_part, contender, size)
    return _rows(taking_part, size, rounds)


async def _guarded_round(server_url: str, taking_part: Field, contender: Contender, size: Size) -> None:
    """Run one round. A peer that fails is skipped from then on; a failure of ours or the limit is raised."""
    if contender.skipped is not None:
        return
    try:
        await _round(server_url, taking_part, contender, size)
    except (SkippedError, SideFailedError) as error:
        if contender in (taking_part.ours, taking_part.limit):
            raise
        contender.skipped = str(error)


async def _round(server_url: str, taking_part: Field, contender: Contender, size: Size) -> None:
    module = contender.module
    async with fresh_database(server_url, "bench") as url:
        prepared = await ask(module, "prepare", url, START_S)
        contender.version, contender.settings = (
            prepared["version"],
            {**prepared["settings"], **contender.options},
        )
        sizes = {"singles": size.singles, "bulk": size.bulk}
        stored = await ask(module, "enqueue", url, ENQUEUE_S, **sizes)
        await settle(url)
        async with connected(url) as connection:
            jobs = await connection.fetchval(prepared["open_sql"])
        batch = round(statistics.median(taking_part.ours.figures.get("batch", [32])))
        options = {"batch": batch, **contender.options, "jobs": jobs, "for_s": size.drain_s}
        done = await ask(module, "drain", url, START_S + size.drain_s, **options)
    contender.note(noop=done["jobs"] / done["took_s"], one=stored["one_per_s"], many=stored["many_per_s"])
    if done["batch"] is not None:
        contender.note(batch=done["batch"])


# ---- rows --------------------------------------------------------------------------------------


def _rows(taking_part: Field, size: Size, rounds: int) -> list[Row]:
    with_peers = bool(taking_part.peers)
    present = [contender for contender in taking_part.all if contender.skipped is None]
    sides = {
        "versions": {contender.name: contender.version for contender in present if contender.version},
        "settings": {contender.name: contender.settings for contender in present},
        "skipped": {
            contender.name: contender.skipped
            for contender in taking_part.all
            if contender.skipped is not None
        },
    }
    batch = round(taking_part.ours.median("batch"), 1)

    def row(bench: str, figure: str, goal: dict[str, float], aim: dict[str, float], **more: object) -> Row:
        def medians(group: Sequence[Contender]) -> dict[str, float]:
            return {
                contender.name: contender.median(figure) for contender in group if contender.skipped is None
            }

        return Row(
            bench=bench,
            ours=taking_part.ours.median(figure),
            unit="jobs/s",
            n=rounds,
            limit=taking_part.limit.median(figure),
            peers=medians(taking_part.peers),
            goal={name: bound for name, bound in goal.items() if with_peers or name != "ratio_best_peer"},
            aim=aim,
            more={"beside": {name: round(rate, 1) for name, rate in medians(taking_part.beside).items()}}
            | more,
        )

    return [
        row(
            "queue.noop",
            "noop",
            {"ratio_best_peer": 2.0, "ratio_limit": 0.45},
            {"ratio_best_peer": 3.0, "ratio_limit": 0.6},
            jobs=size.singles + size.bulk,
            batch=batch,
            **sides,
        ),
        row("queue.enqueue_one", "one", {"ratio_best_peer": 0.8}, {}, jobs=size.singles),
        row("queue.enqueue_bulk", "many", {"ratio_best_peer": 1.5}, {}, jobs=size.bulk),
    ]
