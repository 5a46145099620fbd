"""`python -m tests.world --seed N` replays a run of the simulated world, or of whole nodes."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from gossipkv.cli.options import JSON
from gossipkv.cli.output import note, print_json
from tests.world.faults import FAULTS
from tests.world.gossip.swarm import SwarmPlan
from tests.world.metadata.world import run as run_metadata
from tests.world.nodes.scenarios import SCENARIOS
from tests.world.replication.world import run as run_replication
from tests.world.shrink import shrink
from tests.world.whole import MAX_WHOLE_MEMBERS, WHOLE_MEMBERS, simulate_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.wire.rpc import Value
    from tests.world.metadata.world import Run as MetadataRun
    from tests.world.replication.world import Run as ReplicationRun
    from tests.world.swarm import Outcome, Plan

BROKEN = 3
SHOWN = 20  # Print at most 20 violations: most of those after the first are its consequences.


def _faults(text: str) -> frozenset[str]:
    names = frozenset(filter(None, text.split(",")))
    unknown = sorted(names - set(FAULTS))
    if unknown:
        raise click.BadParameter(f"no fault is called {unknown[0]!r}; there are {', '.join(FAULTS)}")
    return names


@click.command()
@click.option("--seed", type=click.IntRange(min=0), required=True, help="The number that a run comes from.")
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="This seed and those after it.")
@click.option("--members", type=click.IntRange(min=2, max=1024), help="How many.  [default: the seed says]")
@click.option("--without", type=_faults, default="", metavar="FAULT,...", help="Faults to switch off.")
@click.option("--sealed", is_flag=True, help="Every packet is sealed, and the keys are changed now and then.")
@click.option(
    "--cold", is_flag=True, help="Pages of what whole nodes serve come and go, as on a machine of little memory."
)
@click.option("--metadata", is_flag=True, help="Nodes that decide on tables, under Trio.")
@click.option("--replication", is_flag=True, help="Nodes that hold copies of partitions, under Trio.")
@click.option("--refounding", is_flag=True, help="The same, where ranges lose all their hosts, and begin anew.")
@click.option("--shrink", "is_shrunk", is_flag=True, help="Of a run that fails, find one with fewer faults.")
@click.option("--whole", type=click.Choice(sorted(SCENARIOS)), help="Whole nodes go through this, 5 unless told.")
@JSON
@click.pass_context
def simulate(
    context: click.Context,
    *,
    seed: int,
    runs: int,
    members: int | None,
    without: frozenset[str],
    sealed: bool,
    metadata: bool,
    replication: bool,
    refounding: bool,
    cold: bool,
    is_shrunk: bool,
    whole: str | None,
    as_json: bool,
) -> None:
    """Run simulated members under simulated faults, and check the promises.

    The same seed gives the same run, to the last datagram.  The exit status is 3 if a promise was broken; the command
    that replays the run is printed with the violation.
    """
    seeds = range(seed, seed + runs)
    if whole is not None:
        words = "--whole goes with --members, --cold and --json alone"
        _refuse(without, sealed, metadata, replication, is_shrunk, words=words)
        if members is not None and members > MAX_WHOLE_MEMBERS:
            raise click.UsageError(f"of whole nodes there are {MAX_WHOLE_MEMBERS} at most, not {members}")
        failed = simulate_whole(whole, seeds, members or WHOLE_MEMBERS, cold=cold, as_json=as_json)
        _end(context, runs, failed, as_json=as_json)
    if metadata or replication or refounding:
        words = "--metadata, --replication and --refounding take --seed and --runs alone"
        _refuse(without, sealed, cold, is_shrunk, members, as_json, words=words)
        _refuse(metadata and (replication or refounding), words=words)
        play = run_metadata if metadata else partial(run_replication, refounds=refounding)
        broken = [number for number in seeds if _tell_counts(play(number))]
        _end(context, runs, len(broken), as_json=False)
    _refuse(cold, words="--cold is for --whole")
    plans: list[Plan] = [SwarmPlan(number, without, members, sealed) for number in seeds]
    failed = _simulate_members(plans, is_shrunk=is_shrunk, as_json=as_json)
    _end(context, runs, failed, as_json=as_json)


def _end(context: click.Context, runs: int, failed: int, *, as_json: bool) -> None:
    """Print the verdict as the last line, to standard error if the output is JSON, and leave."""
    click.echo(f"FAIL: {failed} of {runs} failed" if failed else f"PASS: all promises held; runs: {runs}", err=as_json)
    context.exit(BROKEN if failed else 0)


def _refuse(*given: object, words: str) -> None:
    """Raise `click.UsageError` if any of these options, which do not go together, is given."""
    if any(given):
        raise click.UsageError(words)


def _simulate_members(plans: Iterable[Plan], *, is_shrunk: bool, as_json: bool) -> int:
    failed = 0
    for plan in plans:
        outcome = plan.run()
        if is_shrunk and not outcome.is_right:
            outcome = shrink(outcome, note)
        failed += not outcome.is_right
        if as_json:
            print_json(_fields(outcome))
        else:
            _tell(outcome)
        sys.stdout.flush()
    return failed


def _tell(outcome: Outcome) -> None:
    plan = outcome.plan
    faults = ", ".join(sorted(outcome.faults)) or "none"
    click.echo(
        f"seed {plan.seed}: {outcome.members} members ({outcome.profile}), {outcome.virtual_s:.1f} s, "
        f"trace {outcome.trace}; faults: {faults}"
    )
    click.echo("struck: " + (", ".join(f"{name} {n}" for name, n in sorted(outcome.struck.items())) or "nothing"))
    if outcome.is_right:
        click.echo(f"right; everybody showed the truth {outcome.healed_s:.2f} s after the faults had ended")
        return
    for violation in outcome.violations[:SHOWN]:
        click.echo(str(violation))
    if len(outcome.violations) > SHOWN:
        click.echo(f"and {len(outcome.violations) - SHOWN} more")
    click.echo(f"BROKEN; to replay: {plan.command}")


def _fields(outcome: Outcome) -> dict[str, Value]:
    return {
        "seed": outcome.plan.seed,
        "command": outcome.plan.command,
        "members": outcome.members,
        "profile": outcome.profile,
        "faults": [*sorted(outcome.faults)],
        "trace": outcome.trace,
        "virtual_s": outcome.virtual_s,
        "healed_s": outcome.healed_s,
        "struck": {**dict(sorted(outcome.struck.items()))},
        "transitions": {**dict(sorted(outcome.transitions.items()))},
        "violations": [str(violation) for violation in outcome.violations],
    }


def _tell_counts(outcome: MetadataRun | ReplicationRun) -> bool:
    """Print the outcome of a run under Trio; return True if a promise was broken."""
    for name, count in sorted(outcome.counts.items()):
        click.echo(f"{count:8} {name}")
    for violation in outcome.violations:
        click.echo(str(violation))
    if outcome.violations:
        click.echo(f"BROKEN; to replay: {outcome.command}")
    return bool(outcome.violations)


if __name__ == "__main__":
    simulate(prog_name="python -m tests.world")
