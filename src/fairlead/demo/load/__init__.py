"""``fairlead gate simulate-load``: many calls on a real gate, checked at their destination.

load_plan     the numbers of a load, and its limits
load_process  a process that makes calls (``python -m``)
upstream      the destination: counts, delays and answers calls; its count decides
load_run      starts the load, samples it, ends it, and cleans up
series        figures over time, and their summary
load_view     a live picture on a terminal, lines in a pipe, charts at the end; chart: charts as text
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, single, until_terminated
from fairlead.errors import InvalidInputError

if TYPE_CHECKING:
    from fairlead.cli.kit.output import Output
    from fairlead.demo.load.load_plan import Load
    from fairlead.demo.load.series import LoadReport


app = single()


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options of the load."""

    seconds: Annotated[float, typer.Option("--seconds", min=1, max=600, help="Length of the load.")] = 20.0
    tenants: Annotated[
        int, typer.Option("--tenants", min=1, max=1000, help="Tenants, each with limits of its own.")
    ] = 4
    processes: Annotated[int, typer.Option("--processes", min=1, max=32, help="Processes that call.")] = 2
    rate: Annotated[
        float, typer.Option("--rate", min=0.1, max=5000, help="Calls a second that are attempted, in total.")
    ] = 160.0
    per_s: Annotated[
        float, typer.Option("--limit", min=0.01, max=100_000, help="Calls a second that a tenant may make.")
    ] = 20.0
    capacity: Annotated[
        float, typer.Option("--capacity", min=1, max=100_000, help="Calls that its full bucket holds.")
    ] = 40.0
    slots: Annotated[
        int, typer.Option("--slots", min=0, max=1000, help="Its calls in flight at once; 0: any number.")
    ] = 10
    hold_ms: Annotated[
        float, typer.Option("--hold-ms", min=0, max=60_000, help="How long the upstream takes for a call.")
    ] = 100.0
    wait_ms: Annotated[
        float, typer.Option("--wait-ms", min=0, max=60_000, help="How long a call waits to be admitted.")
    ] = 1000.0
    seed: Annotated[int, typer.Option("--seed", help="Draws the times and tenants of calls.")] = 1

    def load(self) -> Load:
        """Return the load; raise InvalidInputError if it has more calls than can be checked."""
        from fairlead.demo.load.load_plan import MAX_CALLS, Load

        if self.seconds * self.rate > MAX_CALLS:
            message = f"{self.seconds * self.rate:,.0f} calls are more than {MAX_CALLS:,}"
            raise InvalidInputError(message, hint="a shorter load, or a lower --rate")
        return Load(
            seconds=self.seconds,
            tenants=self.tenants,
            processes=self.processes,
            rate=self.rate,
            per_s=self.per_s,
            capacity=self.capacity,
            slots=self.slots,
            hold_s=self.hold_ms / 1000,
            wait_s=self.wait_ms / 1000,
            seed=self.seed,
        )


@command(app, "simulate-load")
def simulate_load(call: Invocation, options: LoadOptions) -> Exit | None:
    """Put a load on a real gate, and check at the upstream whether the limit held.

    It runs on the Redis of the settings, or on the embedded Valkey, under its own key prefix, which is emptied
    afterwards; other keys are not touched. The exit code is 1 if the upstream saw more than capacity + limit · W
    calls of a tenant in any W seconds, or more in flight than slots.
    """
    load = options.load()
    try:
        report = asyncio.run(until_terminated(_run(call, load)))
    except asyncio.CancelledError:
        return Exit.TERMINATED
    if call.out.as_json:
        call.out.record(report.as_json())
    else:
        from fairlead.demo.load.load_view import show_report

        show_report(report, call.out)
    return exit_code(call.out, report)


def exit_code(out: Output, report: LoadReport) -> Exit:
    """Return the exit code; print how the limit was exceeded if it was."""
    if report.limit_held:
        return Exit.OK
    from fairlead.demo.load.load_view import verdict

    out.error(verdict(report), hint="run it again with --json, and see `fairlead gate doctor`")
    return Exit.FAILED


async def _run(call: Invocation, load: Load) -> LoadReport:
    from secrets import token_hex

    from fairlead.assembly.stores import redis_server
    from fairlead.demo.load.load_run import LoadRun
    from fairlead.demo.load.load_view import LoadView

    settings = call.config().settings
    async with redis_server(settings) as redis:
        prefix = f"{settings.redis.prefix[:40]}-load-{token_hex(4)}"
        with LoadView(load, call.out) as view:
            run = LoadRun(load, redis.url, prefix, view)
            return await run.run(redis.server)
