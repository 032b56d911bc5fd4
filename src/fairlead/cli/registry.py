"""The commands. Each is loaded when it is used, so that the others cost nothing.

A command is at ``module:attribute``, where the attribute is a ``typer.Typer`` (one command, or a group).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command is, and its line in the list of commands."""

    home: str
    line: str
    commands: Mapping[str, CommandEntry] = field(default_factory=dict)
    """Further commands of a group, from other modules."""


COMMANDS: dict[str, CommandEntry] = {
    "init": CommandEntry("fairlead.cli.init:app", "Make a settings file and a master key."),
    "doctor": CommandEntry("fairlead.cli.doctor:app", "Check everything that fairlead depends on."),
    "demo": CommandEntry("fairlead.demo:app", "Watch fairlead with a failing provider."),
    "run": CommandEntry("fairlead.cli.run:app", "Refresh tokens, run jobs and schedules."),
    "top": CommandEntry("fairlead.cli.top:app", "Watch all processes, live."),
    "status": CommandEntry("fairlead.cli.status:app", "Show the state in numbers, and problems."),
    "migrate": CommandEntry("fairlead.cli.migrate:app", "Bring the database to this version."),
    "connections": CommandEntry("fairlead.cli.connections:app", "Connect accounts and maintain them."),
    "providers": CommandEntry("fairlead.cli.providers:app", "Provider profiles."),
    "jobs": CommandEntry("fairlead.cli.jobs:app", "List jobs, run them now, cancel or pause them."),
    "gate": CommandEntry(
        "fairlead.cli.gate:app",
        "Limits of calls: what is left, slots, waiting calls.",
        {
            "simulate-load": CommandEntry(
                "fairlead.demo.load:app", "Run many calls on a real gate, and judge the result."
            )
        },
    ),
    "tenants": CommandEntry("fairlead.cli.tenants:app", "Shares of tenants, and how each fares."),
    "schedules": CommandEntry(
        "fairlead.cli.schedules:app", "Schedules: which jobs are enqueued by the clock."
    ),
    "dlq": CommandEntry("fairlead.cli.dlq:app", "Dead letters: discarded jobs that need you."),
    "vault": CommandEntry("fairlead.cli.vault:app", "The master key and what it seals."),
    "config": CommandEntry("fairlead.cli.config:app", "Settings, and how responses are classified."),
    "completion": CommandEntry("fairlead.cli.completion:app", "A completion script for your shell."),
}


class LazyCommand(TyperCommand):
    """A command that is loaded when it is used."""

    def __init__(self, name: str, entry: CommandEntry) -> None:
        super().__init__(name, help=entry.line, add_help_option=False)
        self._entry = entry

    def load(self) -> Any:
        """Load the command."""
        module, attribute = self._entry.home.split(":")
        app: typer.Typer = getattr(importlib.import_module(module), attribute)
        loaded: Any = get_command(app)
        loaded.name = self.name
        for name, entry in self._entry.commands.items():
            loaded.commands[name] = LazyCommand(name, entry)
        return loaded

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return a context of the loaded command, which parses and runs."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


class Commands(TyperGroup):
    """All commands, none of them loaded."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": {}})
        self.commands = {name: LazyCommand(name, entry) for name, entry in COMMANDS.items()}
