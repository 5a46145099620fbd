"""Real nodes find each other."""

from __future__ import annotations

import json

from tests.ci.cluster import test_gossip_nodes
from tests.ci.cluster.test_gossip_nodes import ask, command, eventually, joining, owners, states, until

start = test_gossip_nodes.start


def test_nodes_find_each_other(start):
    """Each node knows all, has its own place in the ring, and says so on the wire and on the command line."""
    alpha = start("alpha")
    beta = start("beta", *joining(alpha))
    gamma = start("gamma", *joining(beta))
    nodes = (alpha, beta, gamma)
    for node in nodes:
        eventually(lambda node=node: states(node), dict.fromkeys(("alpha", "beta", "gamma"), "alive"), node)
    places = [f"{ask(node, 'info')['shard_id']}@{node.address}" for node in nodes]
    for node in nodes:
        eventually(lambda node=node: len(ask(node, "children", "nodes")), 3, node)
    eventually(lambda: {ask(node, "info")["shard_id"] for node in nodes}, {"1", "2", "3"}, alpha)
    places = sorted(f"{ask(node, 'info')['shard_id']}@{node.address}" for node in nodes)
    for node in nodes:
        eventually(lambda node=node: ask(node, "children", "nodes"), places, node)
        # One of the nodes may found the catalogue, and says so.
        eventually(lambda node=node: ask(node, "children", ""), ["nodes", "tables"], node)
        eventually(lambda node=node: owners(node), dict.fromkeys(("alpha", "beta", "gamma"), "alive"), node)
        until(lambda node=node: ask(node, "info")["isolated"] is False, node)
    told = json.loads(command(gamma, "members", "--json").stdout)
    assert [(one["node"], one["address"], one["state"], one["epoch"]) for one in told] == [
        (name, node.address, "alive", ask(node, "info")["epoch"])
        for name, node in zip(("alpha", "beta", "gamma"), nodes, strict=True)
    ]
    rows = [line.split() for line in command(alpha, "tree", "nodes").stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == [f"nodes/{place}" for place in places]
    assert command(alpha, "tree", "nowhere").returncode == 1
