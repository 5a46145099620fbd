"""The row about one link of three that is cut under load: nobody's majority needs it, and no write should notice."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import quantiles
from typing import TYPE_CHECKING

from gossipkv.launcher import Cluster
from tests.bench import goals, machine
from tests.bench.processes import wait_for
from tests.bench.tables import writing
from tests.ci.cluster import networks

if TYPE_CHECKING:
    from tests.bench.measurement import Bench

PARTITIONS = 16
PATIENCE_S = 120
SETTINGS = {"insecure_gossip": "true", "refresh_period": "off"}
CUT = (1, 2)  # Between these.


def missing() -> str | None:
    """What there is not for it; None: all is here."""
    return networks.missing(rules=False)


def measure(bench: Bench, *, run_s: float = 5.0, rounds: int = 5) -> None:
    """In each round whole, and cut both ways; a machine for each node, and writers beside them."""
    with (
        networks.Network(writing.REPLICAS) as network,
        Cluster(
            bench.directory / "cluster", nodes=writing.REPLICAS, places=network.places(), settings=SETTINGS
        ) as cluster,
    ):
        options = {"kind": "hash", "partitions": PARTITIONS, "replication": writing.REPLICAS}
        wait_for(lambda: _all_alive(network), "all nodes are alive")
        network.ask(1, "create_table", writing.TABLE, options)
        for number in range(1, writing.REPLICAS + 1):
            wait_for(lambda number=number: _puts(network, number), f"puts at {number}")
        puts = 0
        for number in range(rounds):
            machine.say(f"  {goals.CUT_P99}")
            for side in (goals.WHOLE_NET, ""):
                if not side:
                    network.miss(CUT[:1], CUT[1:])
                    network.miss(CUT[1:], CUT[:1])
                took_us = _write(network, cluster.addresses, f"{number}{side[:1]}", run_s)
                network.heal()
                bench.add(goals.CUT_P99, quantiles(took_us, n=100)[98], side)
                puts += len(took_us)
    bench.notes.append(
        "A link of three cut, both ways: a network namespace for each node; two writers at each of the three with one "
        f"put in flight, {PARTITIONS} partitions, whose majority each node reaches without that link; {run_s:g} s "
        f"whole and {run_s:g} s cut a round, {puts:,} puts, all acknowledged, and read from each node's own copies "
        "before the link is mended"
    )


def _write(network: networks.Network, addresses: list[str], prefix: str, run_s: float) -> list[float]:
    """What the writers tell, beside the nodes.  Raises CalledProcessError: a put was refused, or is not at each."""
    command = [sys.executable, "-m", "tests.bench.tables.timed_puts", writing.TABLE, prefix, str(run_s), *addresses]
    done = subprocess.run(
        network.command_at_switch(*command), check=True, capture_output=True, text=True, timeout=run_s + PATIENCE_S
    )
    took_us: list[float] = json.loads(done.stdout)
    return took_us


def _all_alive(network: networks.Network) -> bool:
    return all(
        sum(member["state"] == "alive" for member in network.ask(number, "members")) == writing.REPLICAS
        for number in range(1, writing.REPLICAS + 1)
    )


def _puts(network: networks.Network, number: int) -> bool:
    return network.ask(number, "put", writing.TABLE, "first", "", {"level": "all"}) is not None
