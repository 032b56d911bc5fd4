"""``fairlead demo``: refreshes at faulty providers, with a killed worker, judged by the provider's ledger.

demo_plan       tenants, providers and connections, and the times of the faults
profile         fairlead's settings with hours turned into seconds
environment     the folder, the issuer, the servers, the connections and the workers
demo_run        the faults in their order
token_callers   callers that use each token at once
watch           samples of the database while it runs; recovery: how long the killed worker is missed
report          the issuer's ledger and the database, compared with the promises
demo_view       a live picture on a terminal, lines in a pipe
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, single, until_terminated
from fairlead.demo.demo_plan import LONGEST_S, SHORTEST_S, DemoPlan

app = single()


@command(app, "demo")
def demo(
    call: Invocation,
    seconds: Annotated[
        int, typer.Option("--seconds", min=SHORTEST_S, max=LONGEST_S, help="Length of the run.")
    ] = 60,
    seed: Annotated[
        int, typer.Option("--seed", help="Draws the customers that leave, and the lives of tokens.")
    ] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the demo's folder: logs, ledger, data.")
    ] = False,
) -> Exit | None:
    """Watch token refreshes through outages and a killed worker, and see that nothing is lost.

    Everything runs in a temporary folder, on servers of its own. The exit code is 0 only if no token was burnt
    except by the kill itself, no expired token was served, and every connection has the right state.
    """
    from fairlead.demo.demo_view import show_report
    from fairlead.demo.perform import perform

    plan = DemoPlan(float(seconds), seed)
    try:
        report, home = asyncio.run(until_terminated(perform(plan, call.out, keep=keep)))
    except asyncio.CancelledError:
        return Exit.TERMINATED
    if call.out.as_json:
        call.out.record(report.as_json())
    else:
        show_report(report, call.out)
    if keep:
        call.out.say(f"kept: {home}")
    if report.violations:
        hint = f"run it again with --keep --seed {seed} and look at the logs and the ledger"
        call.out.error("; ".join(report.violations), hint=hint)
        return Exit.FAILED
    return None
