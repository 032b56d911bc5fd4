"""Set up the demo, run it, and remove all of it again, also after an error."""

from __future__ import annotations

from pathlib import Path

from fairlead.cli.kit.output import Output
from fairlead.demo.demo_plan import DemoPlan
from fairlead.demo.demo_run import DemoRun
from fairlead.demo.demo_view import DemoState, DemoView
from fairlead.demo.environment import DemoEnvironment
from fairlead.demo.report import DemoReport


async def perform(plan: DemoPlan, out: Output, *, keep: bool) -> tuple[DemoReport, Path]:
    """Run *plan*; return the report and the demo's folder, which is removed unless *keep*."""
    state = DemoState(plan)
    with DemoView(state, out) as view:
        view.tell("starting PostgreSQL and the provider")
        try:
            async with DemoEnvironment(plan, keep=keep) as environment:
                report = await DemoRun(environment, state, view).run()
                view.tell("removing everything")
        except BaseExceptionGroup as group:
            raise _first(group) from None
    return report, environment.home


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of *group*, which made the other tasks stop."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
