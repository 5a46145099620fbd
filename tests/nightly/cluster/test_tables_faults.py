"""Clients at all nodes make and drop tables amid faults of any two nodes, and a register is forced on two sides.

FAULTS_SECONDS sets the duration: a few faults for each change, an hour of them in a night. The nodes are killed,
stopped or isolated.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from gossipkv.launcher import Cluster
from tests.ci.cluster import networks
from tests.ci.cluster.networks import Network
from tests.ci.cluster.table_nodes import OPTIONS, Loop, Nodes, judge, until
from tests.ci.cluster.views import LOGGED, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = float(os.environ.get("FAULTS_SECONDS", "8"))
SEED = int(os.environ.get("FAULTS_SEED", "1"))

pytestmark = pytest.mark.timeout(SECONDS + 600)

N = 5
ALL = range(1, N + 1)


@pytest.fixture
def network() -> Iterator[Network]:
    if (reason := networks.missing(rules=False)) is not None:
        pytest.skip(reason)
    with Network(N) as network:
        yield network


@pytest.fixture
def nodes(network: Network, tmp_path: Path) -> Iterator[Nodes]:
    """Start a node on each machine, with a catalogue on which all decide."""
    settings = {**LOGGED, "insecure_gossip": "true", "refresh_period": "off"}  # The network is private.
    with Cluster(tmp_path, places=network.places(), settings=settings) as cluster, Nodes(cluster, network) as nodes:
        nodes.all_alive(ALL)
        nodes.ask(2, "create_table", "first", OPTIONS)
        nodes.grown(ALL, names(ALL))
        yield nodes
        network.heal()


def kill(nodes: Nodes, network: Network, pair: list[int]) -> Callable[[], None]:
    for index in pair:
        nodes.cluster.kill(index)

    def start() -> None:
        for index in pair:
            nodes.cluster.start(index, wait=False)
        nodes.cluster.wait_ready(*pair)

    return start


def stop(nodes: Nodes, network: Network, pair: list[int]) -> Callable[[], None]:
    for index in pair:
        nodes.cluster.send(index, signal.SIGSTOP)
    return lambda: [nodes.cluster.send(index, signal.SIGCONT) for index in pair]


def deafen(nodes: Nodes, network: Network, pair: list[int]) -> Callable[[], None]:
    others = [index for index in ALL if index not in pair]
    network.miss(pair, others)
    return network.heal


def mute(nodes: Nodes, network: Network, pair: list[int]) -> Callable[[], None]:
    """Drop all packets from the other nodes to the pair, and none from the pair."""
    others = [index for index in ALL if index not in pair]
    network.miss(others, pair)
    return network.heal


FAULTS = (kill, stop, deafen, mute)


def test_one_chain(nodes, network, record_property):
    """After faults and a kill of all nodes, all agree: acknowledged tables exist, and dropped ones do not."""
    drawn = random.Random(SEED)
    over_s, faults = time.monotonic() + SECONDS, 0
    addresses = nodes.cluster.addresses
    with Loop(addresses, clients=6, seed=SEED, network=network) as loop:
        while time.monotonic() < over_s or faults < len(FAULTS):
            fault = FAULTS[faults % len(FAULTS)]
            mend = fault(nodes, network, drawn.sample(ALL, 2))
            time.sleep(drawn.uniform(0.5, 3))
            mend()
            time.sleep(drawn.uniform(0, 2))
            faults += 1
        until(loop.done, lambda done: done[0] > faults and done[1] > faults / 2)
        for index in ALL:
            nodes.cluster.send(index, signal.SIGKILL)
        for index in ALL:
            nodes.cluster.wait_ended(index)
        for index in ALL:
            nodes.cluster.start(index, wait=False)
        nodes.cluster.wait_ready()
        history = loop.end()
    nodes.all_answer(ALL)
    counted = judge(history, nodes.same(ALL))
    record_property("measured", f"{faults} faults, {dict(counted)}")


TORN = "two forced changes have generation 1"


def test_two_forces_on_two_sides_of_a_cut(nodes, network):
    """Each side goes on; when the sides meet, both are refused until a third force decides."""
    nodes.cluster.kill(3)
    network.miss((1, 2), (4, 5))
    network.miss((4, 5), (1, 2))
    two = {**OPTIONS, "replication": 2}
    for side, name in (((1, 2), "left"), ((4, 5), "right")):
        until(lambda side=side: nodes.alive(side[0]), lambda found, side=side: found == names(side))
        with pytest.raises(ConnectionError, match=r"cannot be read|no quorum"):
            nodes.ask(side[0], "create_table", name, two)
        told = nodes.ask(side[0], "metadata_force", None, names(side))
        assert {"n1", "n2", "n3", "n4", "n5"} - {*names(side)} == {*re.findall(r"n\d", told["lost"])}
        nodes.ask(side[1], "create_table", name, two)
        assert nodes.status(side[0])["generation"] == 1
    network.heal()
    nodes.cluster.start(3)
    nodes.all_alive(ALL)
    for index in ALL:
        until(lambda index=index: complaints(nodes, index), lambda found: sum(TORN in why for why in found) > 1)
        with pytest.raises(ConnectionError, match=TORN):
            nodes.ask(index, "create_table", f"never-{index}", two)
    nodes.ask(1, "metadata_force", None, ["n1", "n2"])
    for index in (3, 4, 5):
        nodes.ask(2, "metadata_join", None, f"n{index}")
    nodes.grown(ALL, names(ALL))
    nodes.ask(5, "create_table", "after", OPTIONS)
    assert sorted(nodes.same(ALL)) == ["after", "first", "left"]
    assert [nodes.status(index)["generation"] for index in ALL] == [2] * N
    nodes.all_answer(ALL)


def complaints(nodes: Nodes, index: int) -> list[str]:
    """Return the problem of each acceptor of the catalogue, according to a node."""
    return [str(acceptor["why"]) for acceptor in nodes.status(index)["new"]] or ["no catalogue"]
