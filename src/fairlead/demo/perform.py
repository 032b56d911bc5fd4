"""Builds the stage, plays, and takes all of it down again, whatever happens."""

from __future__ import annotations

from pathlib import Path

from fairlead.cli.kit.output import Output
from fairlead.demo.plan import Plan
from fairlead.demo.stage import Stage
from fairlead.demo.verdict import Report
from fairlead.demo.view import DemoView, Scene
from fairlead.demo.world import World


async def perform(plan: Plan, out: Output, *, keep: bool) -> tuple[Report, Path]:
    """Play *plan*; the report, and the folder where it happened (gone by then, unless *keep*)."""
    scene = Scene(plan)
    with DemoView(scene, out) as view:
        view.tell("starting PostgreSQL and the rude provider")
        try:
            async with World(plan, keep=keep) as world:
                report = await Stage(world, scene, view).play()
                view.tell("putting everything away")
        except BaseExceptionGroup as group:
            raise _first(group) from None
    return report, world.home


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of *group*: what made its neighbours stop."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
