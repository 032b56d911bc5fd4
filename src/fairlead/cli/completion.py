"""``fairlead completion bash|zsh|fish``: a script that lets the shell complete commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, single

app = single()


class Shell(StrEnum):
    """The supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@command(app, "completion")
def completion(call: Invocation, shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> Exit | None:
    """Print a completion script: `source <(fairlead completion bash)`."""
    from typer._completion_shared import get_completion_script

    from fairlead.cli.entry import COMPLETING, PROGRAM

    call.out.text(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETING, shell=shell.value))
    return None
