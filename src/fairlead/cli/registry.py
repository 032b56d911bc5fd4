"""Which commands there are. Each is loaded when it is used, so that the others cost nothing.

A command lives at ``module:attribute``, where the attribute is a ``typer.Typer`` (one command, or a group).
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
class Entry:
    """Where a command lives, and its line in the list of commands."""

    home: str
    line: str
    commands: Mapping[str, Entry] = field(default_factory=dict)
    """Further commands of a group, which live elsewhere."""


COMMANDS: dict[str, Entry] = {
    "init": Entry("fairlead.cli.init:app", "Make a settings file and a master key."),
    "doctor": Entry("fairlead.cli.doctor:app", "Check everything that fairlead stands on."),
    "demo": Entry("fairlead.demo:app", "Watch the main job on a rude provider."),
    "run": Entry("fairlead.cli.run:app", "Work: refresh tokens, run jobs, keep schedules."),
    "top": Entry("fairlead.cli.top:app", "Watch what happens, live."),
    "status": Entry("fairlead.cli.status:app", "How it stands, in numbers."),
    "migrate": Entry("fairlead.cli.migrate:app", "Bring the database to this version."),
    "connections": Entry("fairlead.cli.connections:app", "Connect accounts and look after them."),
    "providers": Entry("fairlead.cli.providers:app", "Provider profiles."),
    "jobs": Entry("fairlead.cli.jobs:app", "Look at jobs, hurry, cancel or hold them back."),
    "gate": Entry(
        "fairlead.cli.gate:app",
        "Limits of calls: what is left, who holds what, who waits.",
        {"simulate-load": Entry("fairlead.demo.load:app", "Play many calls on a real gate, and judge them.")},
    ),
    "tenants": Entry("fairlead.cli.tenants:app", "Shares of tenants, and how each fares."),
    "schedules": Entry("fairlead.cli.schedules:app", "Schedules: what comes by itself, and when."),
    "dlq": Entry("fairlead.cli.dlq:app", "Dead letters: what needs a person."),
    "vault": Entry("fairlead.cli.vault:app", "The master key and what it seals."),
    "config": Entry("fairlead.cli.config:app", "Settings, and how answers are judged by them."),
    "completion": Entry("fairlead.cli.completion:app", "A completion script for your shell."),
}


class LazyCommand(TyperCommand):
    """Stands for a command until somebody uses it."""

    def __init__(self, name: str, entry: Entry) -> None:
        super().__init__(name, help=entry.line, add_help_option=False)
        self._entry = entry

    def load(self) -> Any:
        """The command itself."""
        module, attribute = self._entry.home.split(":")
        found: typer.Typer = getattr(importlib.import_module(module), attribute)
        loaded: Any = get_command(found)
        loaded.name = self.name
        for name, entry in self._entry.commands.items():
            loaded.commands[name] = LazyCommand(name, entry)
        return loaded

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """A context of the real command: parsing and running go on there."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


class Commands(TyperGroup):
    """All commands, none of them loaded."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": {}})
        self.commands = {name: LazyCommand(name, entry) for name, entry in COMMANDS.items()}
