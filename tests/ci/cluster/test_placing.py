"""Real nodes on which tables are laid otherwise: docs/operators/placement.md, typed from top to bottom."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from gossipkv.launcher import Cluster
from tests.ci.cluster.pages import ROOT
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.test_cli import gossipkv
from tests.ci.cluster.views import LOGGED

pytestmark = pytest.mark.timeout(600)

PAGE = (ROOT / "docs" / "operators" / "placement.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"`gossipkv ([^`\n]+)`(?:[^`\n]|`(?!gossipkv )[^`\n]*`|\n(?!\n))*\n\n```\n(.*?)```", re.DOTALL)
SETTINGS = {**LOGGED, "refresh_period": "off"}
RECORDS = [(f"cart {number}", bytes(1000)) for number in range(1000)]


def plainly(text: str) -> list[list[str]]:
    """The words of each line, whatever the sizes and the widths; who is in which group is chance."""
    lines = [re.sub(r"[\d.]+ KiB", "N KiB", line).split() for line in text.splitlines()]
    members = sorted(word for line in lines[1:] for word in line[1:]) if lines[0] == ["group", "nodes"] else []
    return [*(line[: 1 if members else None] for line in lines), members]


def test_the_page_does_what_it_says(tmp_path):
    """Each command writes what stands below it; the plan has moves and bytes; what is wanted outlives all processes."""
    with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive((1, 2, 3))

        def n4_comes():
            cluster.add()
            nodes.all_alive((1, 2, 3, 4))

        def n3_dies():
            cluster.kill(3)
            until(lambda: nodes.alive(1), lambda alive: "n3" not in alive)

        def n5_comes():
            cluster.add()
            until(lambda: nodes.alive(1), lambda alive: "n5" in alive)

        def n3_is_back():
            cluster.start(3)
            until(lambda: nodes.alive(1), lambda alive: "n3" in alive)
            nodes.ask(1, "add_node", "n3")

        before = {"node add n4": n4_comes, "node remove n3": n3_dies, "node replace n2 n5": n5_comes,
                  "table reshard carts 2": n3_is_back}  # fmt: skip
        options = ("--kind", "hash", "--partitions", "12", "--replication", "2")
        done = gossipkv("table", "create", "carts", *options, node=cluster.node(1).address)
        assert done.returncode == 0, done
        with cluster.connect(1, timeout_ms=30_000) as client:
            client.table("carts").put_many(RECORDS)
        typed = []
        for command, shown in EXAMPLE.findall(PAGE):
            before.get(command, lambda: None)()
            done = gossipkv(*shlex.split(command), node=cluster.node(1).address)
            assert plainly((done.stdout + done.stderr).decode()) == plainly(shown), (command, done)
            assert done.returncode == (2 if command.endswith("--force") else 0), (command, done)
            typed.append(command)
        assert {*before} <= {*typed}, typed

        plan = json.loads(gossipkv("table", "plan", "carts", "--json", node=cluster.node(4).address).stdout)[0]
        assert 0 < plan["moves_count"] == len(plan["moves"]) <= 24
        assert (plan["bytes"], plan["unknown"]) == (sum(move["bytes"] for move in plan["moves"]), 0)
        named = nodes.ask(1, "placement_nodes")
        for number in range(1, 6):
            cluster.kill(number)
        for number in range(1, 6):
            cluster.start(number)
        nodes.all_alive(range(1, 6))
        assert until(lambda: nodes.ask(5, "placement_nodes"), lambda found: found == named)
