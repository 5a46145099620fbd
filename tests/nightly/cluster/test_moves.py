"""A table moves while random nodes are killed, stopped or isolated, and clients of all nodes go on.

MOVES_SECONDS sets the duration.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.launcher import Cluster
from tests.ci.cluster import networks
from tests.ci.cluster.networks import Network
from tests.ci.cluster.table_moves import Death, Failed, held, hosts_of, shares
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.table_records import TABLE, trouble
from tests.ci.cluster.views import LOGGED, names
from tests.nightly.cluster import test_tables_faults as faults

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = float(os.environ.get("MOVES_SECONDS", "30"))
SEED = int(os.environ.get("MOVES_SEED", "1"))

pytestmark = pytest.mark.timeout(SECONDS + 900)

N = 6
ALL = range(1, N + 1)
MIN_NODES = 4  # The minimum for three replicas: one node may be away, and one may be removed.
PARTITIONS = 32
CLIENTS = Path(__file__).with_name("moving_clients.py")
FAULTS = (*faults.FAULTS, lambda *_: lambda: None)
METHODS = ("add_node", "remove_node", "replace_node", "set_weight", "reshard")
SETTINGS = {
    **LOGGED,
    "insecure_gossip": "true",  # The network is private.
    "refresh_period": "off",
    "table_segment": "4MiB",
    "move_stall": "5s",
}
CUTS = (faults.deafen, faults.mute)  # A node that reaches no other may not answer.
MET_S = 5.0  # The time in which separated nodes meet again.
SETTLE_S = 300.0
COMMAND_MS = 5_000


@pytest.fixture
def network() -> Iterator[Network]:
    if (reason := networks.missing(rules=False)) is not None:
        pytest.skip(reason)
    with Network(N) as network:
        yield network


class Commands:
    """Gives random commands at random nodes, and knows on which nodes the table is to be placed."""

    def __init__(self, nodes: Nodes, chance: random.Random) -> None:
        self._nodes = nodes
        self._chance = chance
        self.done: dict[str, int] = dict.fromkeys(
            ("add_node", "remove_node", "replace_node", "set_weight", "reshard"), 0
        )
        self.open: list[str] = []  # The outcome of these commands is unknown.

    def say(self, away: int = 0) -> None:
        """Give a random command at a node that is not away."""
        at = self._chance.choice([one for one in ALL if one != away])
        try:
            found = self.placed(at)
        except ConnectionError:
            return
        placed = [one for one in ALL if f"n{one}" in found]
        others = [one for one in ALL if one not in placed]
        method = self._chance.choice([*self.done])
        one, other = f"n{self._chance.choice(placed)}", f"n{self._chance.choice(others or [*ALL])}"
        match method:
            case "add_node":
                params: tuple[object, ...] = (other,)
            case "remove_node" if len(placed) > MIN_NODES:
                params = (one,)
            case "replace_node" if others:
                params = (one, other)
            case "set_weight":
                params = (one, self._chance.choice((1, 2)))
            case "reshard":
                params = (TABLE, self._chance.choice((0, 1)))
            case _:
                return
        try:
            self._nodes.ask(at, method, *params, {"timeout_ms": COMMAND_MS})
        except ConnectionError as error:
            self.open.append(f"{method}: {error}")
        else:
            self.done[method] += 1

    def placed(self, index: int) -> set[str]:
        """Return the nodes on which the table is to be placed, as a node knows them."""
        told = self._nodes.ask(index, "placement_nodes")["nodes"]
        return {one["node"] for one in told if one["weight"]}


def test_what_is_wanted_is_reached_whatever_fails(network, tmp_path, record_property):
    """No acknowledged write is lost, no session steps back, and after the repairs the map is as wanted."""
    chance = random.Random(SEED)
    settings = {
        **LOGGED,
        "insecure_gossip": "true",
        "refresh_period": "off",
        "table_segment": "4MiB",
        "move_stall": "5s",
    }
    with Cluster(tmp_path, places=network.places(), settings=settings) as cluster, Nodes(cluster, network) as nodes:
        nodes.all_alive(ALL)
        nodes.ask(2, "create_table", TABLE, {"kind": "hash", "partitions": PARTITIONS, "replication": 3})
        commands, struck, cuts = Commands(nodes, chance), [0] * len(FAULTS), list[Death]()
        order = {"addresses": dict(zip(names(ALL), cluster.addresses, strict=True)), "seed": SEED}
        command = network.command_at_switch(sys.executable, str(CLIENTS), json.dumps(order))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as clients:
            over_s = time.monotonic() + SECONDS
            while time.monotonic() < over_s or not all(struck) or not all(commands.done.values()):
                commands.say()
                number, victim = chance.randrange(len(FAULTS)), chance.choice(ALL)
                began_s, mend = time.monotonic(), FAULTS[number](nodes, network, [victim])
                struck[number] += 1
                time.sleep(chance.uniform(0.2, 3))
                commands.say(victim)
                mend()
                cuts += [Death(began_s, time.monotonic() + MET_S)] if FAULTS[number] in CUTS else []
                time.sleep(chance.uniform(0, 2))
            nodes.all_alive(ALL)
            until(lambda: lies_on(nodes), lambda found: found == commands.placed(1), within_s=SETTLE_S)
            shares(nodes, ALL, sorted(int(name[1:]) for name in commands.placed(1)))
            hosts = hosts_of(nodes, 1)
            said, _ = clients.communicate(json.dumps([hosts[number] for number in range(PARTITIONS)]) + "\n")
            network.heal()
        told = json.loads(said)
        record_property("measured", f"{commands.done}, {len(commands.open)} not done, faults {struck}, {told}"[:2000])
        assert (told["faults"], trouble(cluster)) == ([], [])
        apart = [Failed(*one) for one in told["failed_reads"]]
        assert [one for one in apart if not any(one.is_amid(cut) for cut in cuts)] == []
        assert min(told["counts"]) > 10 * SECONDS


def lies_on(nodes: Nodes) -> set[str]:
    """Return the nodes that have any part of the table."""
    return {one.node for one in held(nodes, 1)}
