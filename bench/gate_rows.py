"""The rows of the gate's benchmark, from the figures of its rounds."""

from __future__ import annotations

from collections.abc import Sequence

from bench.gate_sides import Field
from bench.report import Row
from bench.sides import Contender


def rows(taking_part: Field, *, tenants: Sequence[int], tasks: int, rounds: int) -> list[Row]:
    """Return all rows."""
    return [
        _throughput(taking_part, rounds, "bucket_1", goal=6.0, aim=8.0, further=_sides(taking_part)),
        _throughput(taking_part, rounds, "bucket_1000", goal=6.0, aim=8.0),
        _full(taking_part, rounds, "full_1"),
        _full(taking_part, rounds, "full_1000"),
        _throughput(taking_part, rounds, "pair_1"),
        _throughput(taking_part, rounds, "pair_1000"),
        _serial(taking_part, rounds),
        _herd(taking_part.ours, rounds, tasks, "gate.herd", "pair"),
        _herd(taking_part.ours, rounds, tasks, "gate.herd_bucket", "bucket"),
        _open_loop(taking_part.ours, rounds),
        _flat(taking_part.script, rounds, tenants),
        *(_cluster(taking_part.ours, rounds, figure) for figure in _CLUSTER),
    ]


def _sides(taking_part: Field) -> dict[str, object]:
    """Return versions and settings of the sides that ran, and why others did not."""
    everyone = [taking_part.ours, taking_part.script, taking_part.incrby, *taking_part.peers]
    present = [contender for contender in everyone if contender.skipped is None]
    return {
        "versions": {contender.name: contender.version for contender in present if contender.version},
        "settings": {contender.name: {**contender.settings, **contender.options} for contender in present},
        "skipped": {
            contender.name: contender.skipped for contender in everyone if contender.skipped is not None
        },
    }


def _throughput(
    taking_part: Field,
    rounds: int,
    figure: str,
    *,
    goal: float | None = None,
    aim: float | None = None,
    further: dict[str, object] | None = None,
) -> Row:
    ours, script, incrby = taking_part.ours, taking_part.script, taking_part.incrby
    keys = figure.partition("_")[2]
    beside = {
        "incrby": incrby.median(f"bucket_{keys}.per_s"),
        "script_single": script.median(f"{figure}_single.per_s"),
    }
    costs = {
        "process_us": ours.median(f"{figure}.cpu_us"),
        "server_us": script.median(f"{figure}.server_us"),
        "server_single_us": script.median(f"{figure}_single.server_us"),
    }
    return Row(
        bench=f"gate.{figure}",
        ours=ours.median(f"{figure}.per_s"),
        unit="decisions/s" if figure.startswith("bucket") else "admissions/s",
        n=rounds,
        limit=script.median(f"{figure}.per_s"),
        peers=_buckets_of_peers(taking_part, keys),
        goal={"ratio_best_peer": goal} if taking_part.peers and goal else {},
        aim={"ratio_best_peer": aim} if aim else {},
        more={"beside": _rounded(beside), **_rounded(costs), **(further or {})},
    )


def _full(taking_part: Field, rounds: int, figure: str) -> Row:
    """Return the row of full admissions, beside the single bucket of the peers."""
    ours = taking_part.ours
    return Row(
        bench=f"gate.{figure}",
        ours=ours.median(f"{figure}.per_s"),
        unit="admissions/s",
        n=rounds,
        peers=_buckets_of_peers(taking_part, figure.partition("_")[2]),
        goal={"ratio_best_peer": 2.5} if taking_part.peers else {},
        aim={"ratio_best_peer": 4.0},
        more=_rounded({"process_us": ours.median(f"{figure}.cpu_us")}),
    )


def _buckets_of_peers(taking_part: Field, keys: str) -> dict[str, float]:
    present = [contender for contender in taking_part.peers if contender.skipped is None]
    return {contender.name: contender.median(f"bucket_{keys}.per_s") for contender in present}


_CLUSTER = tuple(f"{plan}_{keys}" for plan in ("bucket", "full", "pair") for keys in (1, 1_000))


def _cluster(ours: Contender, rounds: int, figure: str) -> Row:
    """Return the row of a cluster, with its ratio to a single server."""
    return Row(
        bench=f"gate.cluster_{figure}",
        ours=ours.median(f"cluster_{figure}.per_s"),
        unit="decisions/s",
        n=rounds,
        more={
            "process_us": round(ours.median(f"cluster_{figure}.cpu_us"), 3),
            "of_one_server": round(
                ours.median(f"cluster_{figure}.per_s") / ours.median(f"{figure}.per_s"), 3
            ),
        },
    )


def _serial(taking_part: Field, rounds: int) -> Row:
    ours = taking_part.ours
    more = {
        "p95_ms": ours.median("serial_pair.p95_ms"),
        "with_finish_ms": ours.median("serial_pair.whole_ms"),
        "bucket_ms": ours.median("serial_bucket.p50_ms"),
    }
    return Row(
        bench="gate.serial",
        ours=ours.median("serial_pair.p50_ms"),
        unit="ms",
        n=rounds,
        limit=taking_part.incrby.median("serial.p50_ms"),
        goal={"ratio_limit": 2.0},
        at_most=True,
        more=_rounded(more),
    )


def _herd(ours: Contender, rounds: int, tasks: int, bench: str, plan: str) -> Row:
    """Return the row of a herd. Its limit is the time that follows from the measured throughput."""
    return Row(
        bench=bench,
        ours=ours.median(f"herd_{plan}.p95_ms"),
        unit="ms",
        n=rounds,
        limit=tasks / ours.median(f"{plan}_1.per_s") * 1000,
        goal={"ratio_limit": 1.2, "ours": 100.0},
        at_most=True,
        more={"tasks": tasks}
        | _rounded({name: ours.median(f"herd_{plan}.{name}") for name in ("p50_ms", "p99_ms")}),
    )


def _open_loop(ours: Contender, rounds: int) -> Row:
    return Row(
        bench="gate.open_loop",
        ours=ours.median("open_loop.p95_ms"),
        unit="ms",
        n=rounds,
        goal={"ours": 5.0},
        at_most=True,
        more={"rate": round(ours.median("pair_1000.per_s") / 2)}
        | _rounded({name: ours.median(f"open_loop.{name}") for name in ("p50_ms", "p99_ms")}),
    )


def _flat(script: Contender, rounds: int, tenants: Sequence[int]) -> Row:
    """Return the largest of the server's times over the smallest, for calls of one item."""

    def times(plan: str) -> dict[str, float]:
        return {str(count): script.median(f"flat_{plan}_{count}.server_us") for count in tenants}

    pair, bucket = times("pair"), times("bucket")
    return Row(
        bench="gate.flat",
        ours=max(pair.values()) / min(pair.values()),
        unit="x",
        n=rounds,
        goal={"ours": 1.5},
        at_most=True,
        more={
            "pair_us": _rounded(pair),
            "bucket_us": _rounded(bucket),
            "bucket_x": round(max(bucket.values()) / min(bucket.values()), 3),
        },
    )


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3 if value < 100 else 1) for name, value in figures.items()}
