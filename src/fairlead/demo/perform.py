"""Builds the stage, plays, and takes all of it down again, whatever happens."""

from __future__ import annotations

from pathlib import Path

from fairlead.cli.kit.output import Output
from fairlead.demo.demo_plan import DemoPlan
from fairlead.demo.demo_run import DemoRun
from fairlead.demo.demo_view import DemoState, DemoView
from fairlead.demo.environment import DemoEnvironment
from fairlead.demo.report import DemoReport


async def perform(plan: DemoPlan, out: Output, *, keep: bool) -> tuple[DemoReport, Path]:
    """Play *plan*; the report, and the folder where it happened (gone by then, unless *keep*)."""
    scene = DemoState(plan)
    with DemoView(scene, out) as view:
        view.tell("starting PostgreSQL and the rude provider")
        try:
            async with DemoEnvironment(plan, keep=keep) as world:
                report = await DemoRun(world, scene, view).play()
                view.tell("putting everything away")
        except BaseExceptionGroup as group:
            raise _first(group) from None
    return report, world.home


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of *group*: what made its neighbours stop."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
