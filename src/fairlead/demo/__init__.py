"""``fairlead demo``: the main job on a rude provider, with a killed worker, judged from the other side.

plan      who is on stage, what happens when
profile   fairlead's settings with hours turned into seconds
world     the home, the issuer, the servers, the connections and the workers
stage     the acts in their order
calls     callers who use each token at once
watch     what is seen from outside while it runs; recovery: how long the killed worker is felt
verdict   the issuer's ledger and the database against what was promised
view      live on a terminal, lines in a pipe
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
    seed: Annotated[int, typer.Option("--seed", help="Draws who leaves, and the lives of tokens.")] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the demo's folder: logs, ledger, data.")
    ] = False,
) -> Exit | None:
    """Watch the main job on a rude provider: refreshes, a killed worker, outages, and nothing lost.

    Everything happens in a temporary folder, on servers of its own. Ends with 0 only if no token was burnt
    but by the kill itself, no expired token was served, and every connection stands as it should.
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
