"""What people read of a seed: what broke, what led to it, and how to see it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tests.simulation.run import Options, Outcome


def describe(outcome: Outcome, *, trace: bool = False) -> str:
    """Some lines of it; *trace*: the last steps also where nothing broke."""
    lines = [headline(outcome)]
    lines += [f"  fault {words}" for words in outcome.words]
    if trace or outcome.broken:
        lines += [f"  seen  {count} {name}" for name, count in sorted(outcome.seen.items())]
        lines += [f"  {step}" for step in outcome.last]
    if outcome.broken:
        lines.append(f"  again: {replay(outcome.options)}")
    return "\n".join(lines)


def headline(outcome: Outcome) -> str:
    """The seed in one line."""
    healed = "" if outcome.healed_s is None else f", at rest {outcome.healed_s:.0f} s after the mending"
    verdict = f"broken: {outcome.broken}" if outcome.broken else "held"
    simulated = f"{outcome.simulated_s:.0f} s in {outcome.steps} steps{healed}"
    return f"seed {outcome.options.seed} {outcome.hash} {verdict} ({simulated})"


def replay(options: Options) -> str:
    """The command that runs it again."""
    return " ".join(["python -m tests.simulation", *map(shlex.quote, arguments(options)), "--trace"])


def arguments(options: Options) -> Sequence[str]:
    """Those of the command line that say the same."""
    options_text = ["--seed", str(options.seed)]
    if options.parts.lacks:
        options_text += ["--ablation", options.parts.lacks]
    if options.without:
        options_text += ["--without", ",".join(sorted(options.without))]
    if options.fifo:
        options_text += ["--fifo", ",".join(f"{begin}-{end}" for begin, end in options.fifo)]
    return options_text


def as_json(outcome: Outcome) -> dict[str, object]:
    """For programs."""
    return {
        "seed": outcome.options.seed,
        "ablation": outcome.options.parts.lacks or None,
        "without": sorted(outcome.options.without),
        "hash": outcome.hash,
        "steps": outcome.steps,
        "simulated_s": round(outcome.simulated_s, 3),
        "healed_s": None if outcome.healed_s is None else round(outcome.healed_s, 3),
        "broken": None if outcome.broken is None else str(outcome.broken),
        "seen": outcome.seen,
        "struck": outcome.struck,
    }
