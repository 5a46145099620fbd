"""`python -m tests.world --whole SCENARIO` replays runs of whole nodes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from gossipkv.cli.output import print_json
from gossipkv.errors import GossipKVError
from tests.world.nodes.replay import WholePlan, run
from tests.world.nodes.scheduling import Stuck
from tests.world.nodes.trace import Trace
from tests.world.nodes.whole_cluster import Defect

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.wire.rpc import Value
    from tests.world.nodes.whole_cluster import WholeRun

WHOLE_MEMBERS: Final = 5
MAX_WHOLE_MEMBERS: Final = 254  # The hosts of one network, 10.0.0.0/24.
SHOWN: Final = 40  # The last lines of the trace that are printed.


def simulate_whole(scenario: str, seeds: Iterable[int], members: int, *, cold: bool, as_json: bool) -> int:
    failed = 0
    for seed in seeds:
        plan, trace = WholePlan(scenario, members, seed, cold), Trace()
        try:
            outcome: WholeRun | Exception = run(plan, trace)
        except (AssertionError, Defect, Stuck, GossipKVError, OSError) as error:  # A check's own question may fail.
            outcome = error
            failed += 1
        if as_json:
            print_json(_fields(plan, trace, outcome))
        else:
            _tell(plan, trace, outcome)
        sys.stdout.flush()
    return failed


def _tell(plan: WholePlan, trace: Trace, outcome: WholeRun | Exception) -> None:
    head = f"seed {plan.seed}: {plan.scenario}, {plan.members} whole nodes, trace {trace.digest}"
    if isinstance(outcome, Exception):
        click.echo("\n".join(trace.lines_with("event=")[-SHOWN:]))
        click.echo(f"{head}\n{type(outcome).__name__}: {outcome}\nBROKEN; to replay: {plan.command}")
        return
    struck = ", ".join(f"{name} {count}" for name, count in sorted(outcome.struck.items()))
    click.echo(f"{head}, {outcome.virtual_s:.1f} s\nstruck: {struck or 'nothing'}")


def _fields(plan: WholePlan, trace: Trace, outcome: WholeRun | Exception) -> dict[str, Value]:
    told: dict[str, Value] = {
        "seed": plan.seed,
        "command": plan.command,
        "scenario": plan.scenario,
        "members": plan.members,
        "trace": trace.digest,
    }
    if isinstance(outcome, Exception):
        return told | {"error": f"{type(outcome).__name__}: {outcome}"}
    return told | {"virtual_s": outcome.virtual_s, "struck": {**dict(sorted(outcome.struck.items()))}}
