"""Whole seeds: they hold and repeat themselves; what goes wrong in one is told with a way to see it again."""

from __future__ import annotations

import asyncio
import json
import shlex
from contextvars import Context
from dataclasses import replace

import pytest

from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.worker import Worker
from tests.simulation import __main__ as simulation
from tests.simulation import ablations, endings, same
from tests.simulation.__main__ import main
from tests.simulation.chance import Chance
from tests.simulation.customer import Customer
from tests.simulation.program import Program
from tests.simulation.report import describe, replay
from tests.simulation.run import Options, run_seed
from tests.simulation.stores import Parts
from tests.simulation.swarm import FAULTS, Swarm
from tests.simulation.watch import Broken, Struck


@pytest.mark.slow
def test_seed_has_work_of_each_kind() -> None:
    """Two hundred seeds, in one interpreter and in several, run beside these tests (`make test-slow`)."""
    outcome = run_seed(Options(1))
    assert outcome.broken is None, describe(outcome)
    assert outcome.healed_s is not None
    for event in ("job_finished", "token_refreshed", "call_attempted", "schedule_fired"):
        assert outcome.seen.get(event), event


@pytest.mark.slow
def test_a_seed_repeats_itself() -> None:
    first, second = run_seed(Options(2)), run_seed(Options(2))
    assert (first.hash, first.steps, first.seen) == (second.hash, second.steps, second.seen)
    assert run_seed(Options(3)).hash != first.hash


def test_seeds_that_have_every_fault_between_them_are_few() -> None:
    few = same.covering(range(200))
    assert len(few) <= 10
    assert {name for seed in few for name in Swarm.of(Chance(seed).swarm).faults} == set(FAULTS)
    with pytest.raises(ValueError, match="no seed has"):
        same.covering(few[:1])


@pytest.mark.slow
@pytest.mark.parametrize("code", ["import os; print(os.environ['PYTHONHASHSEED'])", "raise SystemExit(3)"])
def test_a_difference_between_interpreters_is_found(
    code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(same, "CODE", code)
    assert main(["--same", "--seed", "1"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.slow
def test_hash_of_a_run_covers_every_event() -> None:
    def tells(until: float) -> Options:
        return Options(1, parts=Parts(alter=lambda program: program.world.watch.tell(Struck("none", until))))

    first, second = run_seed(tells(0.0)), run_seed(tells(1.0))
    assert first.steps == second.steps
    assert first.hash != second.hash


@pytest.mark.slow
def test_faults_can_be_left_out() -> None:
    with_it = run_seed(Options(1))
    (name, *_) = (line.split()[0] for line in with_it.words)
    without = run_seed(Options(1, without=frozenset({name})))
    assert [line for line in with_it.words if line.split()[0] != name] == without.words
    assert without.broken is None


def fails_at_its_beginning(program: Program) -> None:
    """A worker whose process cannot do its work."""

    async def fail() -> None:
        raise ValueError("a bug")

    program.worker.run = fail  # type: ignore[method-assign]


@pytest.mark.slow
def test_a_process_that_ends_by_a_bug_breaks_the_seed() -> None:
    outcome = run_seed(Options(1, parts=Parts(alter=fails_at_its_beginning)))
    assert outcome.broken is not None
    assert outcome.broken.invariant == "crash"
    assert "a bug" in outcome.broken.why
    report = describe(outcome)
    assert replay(outcome.options) in report
    assert len(outcome.last) == 40


def never_claims(program: Program) -> None:
    """A worker that is there, and takes no job."""

    async def wait(worker: Worker = program.worker) -> None:
        while not worker.drain.is_requested:
            await program.clock.sleep(5.0)

    program.worker.run = wait  # type: ignore[method-assign]


@pytest.mark.slow
def test_work_that_is_left_lying_breaks_the_seed() -> None:
    outcome = run_seed(Options(1, parts=Parts(alter=never_claims)))
    assert outcome.broken is not None
    assert outcome.broken.invariant == "liveness"
    assert "work" in outcome.broken.why


def spins(program: Program) -> None:
    """A heartbeat that waits for no time."""

    async def spin(heartbeat: Heartbeat = program.heartbeat) -> None:
        while True:
            await heartbeat._clock.sleep(0)

    program.heartbeat.run = spin  # type: ignore[method-assign]


@pytest.mark.slow
def test_spinning_breaks_the_seed() -> None:
    outcome = run_seed(Options(1, parts=Parts(alter=spins)))
    assert outcome.broken is not None
    assert "steps at" in outcome.broken.why


@pytest.mark.slow
def test_an_error_of_the_world_is_told_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("nobody")

    monkeypatch.setattr(endings, "work_left", fail)
    outcome = run_seed(Options(1))
    assert outcome.broken is not None
    assert outcome.broken.invariant == "harness"
    assert "KeyError('nobody') in fail (test_run.py, line" in outcome.broken.why
    assert replay(outcome.options) in describe(outcome)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "invariant", "why"),
    [(None, "liveness", "orders"), (OSError, "harness", "a customer fell")],
)
def test_a_customer_who_never_comes_to_an_end_breaks_the_seed(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception] | None, invariant: str, why: str
) -> None:
    async def order(_: Customer) -> None:
        if error is not None:
            raise error("a customer fell")
        await asyncio.Event().wait()

    monkeypatch.setattr(Customer, "run", order)
    broken = run_seed(Options(1)).broken
    assert broken is not None
    assert broken.invariant == invariant
    assert why in broken.why


def complains_and_never_claims(program: Program) -> None:
    """Nobody handles its error, and then its work is left lying."""
    never_claims(program)
    program.world.loop.call_later(10.0, lambda: json.loads("{"), context=Context())


@pytest.mark.slow
def test_an_error_that_nobody_handles_is_not_hidden_by_what_it_leads_to() -> None:
    outcome = run_seed(Options(1, parts=Parts(alter=complains_and_never_claims)))
    assert outcome.broken is not None
    assert outcome.broken.invariant == "unhandled"
    assert outcome.broken.at == pytest.approx(10.0, abs=1.0)


@pytest.mark.slow
def test_seed_of_an_ablation_is_replayed_without_its_safeguard(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fence = ablations.named("no fence check")
    finding = ablations.search(fence, range(100))
    assert finding is not None
    command = replay(Options(finding.seed, parts=fence.parts()))
    expected = f"python -m tests.simulation --seed {finding.seed} --ablation 'no fence check' --trace"
    assert command == expected
    assert main(shlex.split(command)[3:]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert " broken: I2 at " in lines[0]
    assert lines[-1] == f"  again: {command}"


@pytest.mark.parametrize(
    "option",
    [
        "--ablations --seed 3",
        "--ablations --json",
        "--shrink",
        "--fifo 0-9",
        "--ablation 'no fence check'",
        "--seed 3 --seeds 9",
        "--seed 3 --same --trace",
        "--seed 3 --without nonsense",
        "--seed 3 --ablation nonsense",
    ],
)
def test_option_without_an_effect_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(option))
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "breaks", "expected"),
    [(4, None, "0 broken (3/n = 75 %)"), (3, None, "0 broken"), (4, "I1", "4 broken")],
)
def test_a_zero_says_how_much_it_leaves_possible(
    count: int,
    breaks: str | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = None if breaks is None else Broken(breaks, 1.0, "planted")
    outcome = replace(run_seed(Options(1)), steps=1000, broken=broken)
    monkeypatch.setattr(simulation, "run_many", lambda options, _: [outcome for _ in options])
    main(["--seeds", str(count)])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"{count} seeds in ")
    assert last.endswith(f" s, {count},000 steps: {expected}")


@pytest.mark.slow
def test_seeds_are_told_as_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--from", "3", "--processes", "1", "--json"]) == 0
    *seeds, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert [line["seed"] for line in seeds] == [3, 4]
    assert summary["seeds"] == 2
    assert summary["broken"] == 0


def test_a_replay_says_all_that_decides_a_run() -> None:
    options = Options(7, without=frozenset({"kill", "cut"}), fifo=((0, 10), (20, 30)))
    assert (
        replay(options) == "python -m tests.simulation --seed 7 --without cut,kill --fifo 0-10,20-30 --trace"
    )
    assert "--without" not in replay(replace(options, without=frozenset()))
