"""Real nodes on which tables are placed anew: docs/operators/placement.md, typed from top to bottom.

The rebalancer goes on between the commands, so a busy or a quick machine may move a range before the page does.
"""

from __future__ import annotations

import json
import re
import shlex
from functools import partial

import pytest

from gossipkv.launcher import Cluster
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.test_cli import gossipkv
from tests.ci.cluster.test_placing import PAGE
from tests.ci.cluster.views import LOGGED

EXAMPLE = re.compile(r"`gossipkv ([^`\n]+)`(?:[^`\n]|`(?!gossipkv )[^`\n]*`|\n(?!\n))*\n\n```\n(.*?)```", re.DOTALL)
# A move takes five seconds, so a plan asked for late still has moves of each node that have not begun.
SETTINGS = {**LOGGED, "refresh_period": "off", "max_moves": "1", "table_transfer": "64KiB/s"}
# A busy machine may cause this for a moment; the command is repeated.
SUSPECTED = b"not a live member of this cluster"
DONE_BEFORE = b"nothing to do: no change was needed\n"
QUICKLY = {"max_moves": "64", "table_transfer": "64MiB/s"}
RECORDS = [(f"cart {number}", bytes(3000)) for number in range(1000)]


def plainly(text: str) -> list[list[str]]:
    """Return the words of each line, without the sizes, numbers and widths, nor the members of groups, which vary."""
    text = re.sub(r"[\d.]+ [KM]iB|\b\d{12,20}\b", "N KiB", text)  # Ids of partitions are random.
    text = re.sub(r"slot \d of|(?<=moves from )n\d", "N", text)
    text = re.sub(r"\d+ moves?|(?<=n4) +\d+(?= +N KiB)", " N moves", text)
    lines = [line.split() for line in text.splitlines()]
    members = sorted(word for line in lines[1:] for word in line[1:]) if lines[0] == ["group", "nodes"] else []
    if lines[0][:2] == ["partition", "start"]:  # The owners, and the end of the first partition, vary.
        return [lines[0], [len(lines)]]
    if lines[0][:2] == ["node", "copy"]:  # The replicas vary.
        return [lines[0], *map(list, {(node, table, *why) for node, _, table, _, _, _, *why in lines[1:]})]
    return [*(line[: 1 if members else None] for line in lines), members]


def typed(cluster, before):
    """Type the page and compare each output with the page; `before` maps commands to preparations."""
    commands, answers = [], []
    for command, shown in EXAMPLE.findall(PAGE):
        before.get(command, lambda: None)()
        say = partial(gossipkv, *shlex.split(command), node=cluster.node(1).address)
        answers.clear()
        done = until(say, lambda done: answers.append(done) or SUSPECTED not in done.stderr)
        notes = done.stderr.replace(DONE_BEFORE, b"") if len(answers) > 1 else done.stderr  # The first one changed it.
        assert plainly((done.stdout + notes).decode()) == plainly(shown), (command, done)
        assert done.returncode == (2 if "nothing was done" in shown else 0), (command, done)
        commands.append(command)
        if command.startswith("table reshard"):
            has_a_plan(cluster)
    assert {*before} <= {*commands}, commands


def has_a_plan(cluster):
    (plan,) = json.loads(gossipkv("table", "plan", "carts", "--json", node=cluster.node(4).address).stdout)
    assert 0 < plan["moves_count"] == len(plan["moves"]) <= 24
    assert (plan["bytes"], plan["unknown"]) == (sum(move["bytes"] for move in plan["moves"]), 0)


def moving(nodes):
    partitions = nodes.ask(1, "partition_map", "carts")["partitions"]
    return [one for each in partitions for one in each["assignments"] if one["state"] != "AVAILABLE"]


def comes_to_rest(cluster, nodes):
    """Wait until the plan is reached; all records exist, quarantined replicas are dropped, and all is well."""
    until(lambda: nodes.ask(1, "plan", "carts")[0]["moves_count"], lambda left: left == 0)
    until(lambda: moving(nodes), lambda found: not found)
    with cluster.connect(5, timeout_ms=30_000) as client:
        assert client.table("carts").get_many([key for key, _ in RECORDS]) == [value for _, value in RECORDS]
    aside = [row["copy"] for row in nodes.ask(1, "quarantine_list", {"node": "n3"})]
    done = gossipkv("table", "quarantine", "drop", "n3", *aside, "--yes", node=cluster.node(1).address)
    assert (done.returncode, done.stdout.count(b"dropped")) == (0, len(aside)), done
    until(lambda: gossipkv("status", node=cluster.node(1).address).stdout, lambda told: b"All is well" in told)


def events_are_there(nodes):
    """Create a range table in which n1 does not hold the range that is to be moved there."""
    for bound in (b"2024-01", b"2025") * 8:
        nodes.ask(1, "create_table", "events", {"kind": "range", "replication": 2, "bounds": [bound]})
        ranges = nodes.ask(1, "partitions", "events")["partitions"]
        there = next(each for each in ranges if each["start"] == (bound if bound < b"2024-06" else b""))
        if "n1" not in {host["node"] for host in there["hosts"]}:
            return
        nodes.ask(1, "drop_table", "events")
    pytest.fail("n1 has every range")


@pytest.mark.timeout(600)
def test_the_page_does_what_it_says(tmp_path):
    """Each command writes the shown output; plans survive the restart of all processes, and are reached."""
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
            until(lambda: nodes.ask(1, "add_node", "n3"), lambda _: True)

        def days_are_there():
            with cluster.connect(1, timeout_ms=30_000) as client:
                client.table("events").put_many([(f"2023-01-{day:02}", b"") for day in range(1, 32)])

        def n3_has_looked():
            until(lambda: nodes.ask(1, "quarantine_list"), bool)

        options = ("--kind", "hash", "--partitions", "12", "--replication", "2")
        done = gossipkv("table", "create", "carts", *options, node=cluster.node(1).address)
        assert done.returncode == 0, done
        with cluster.connect(1, timeout_ms=30_000) as client:
            client.table("carts").put_many(RECORDS)
        typed(cluster, {
            "node add n4": n4_comes, "node remove n3 --force --yes": n3_dies, "node replace n2 n5": n5_comes,
            "table reshard carts 2": n3_is_back, "table split events 2024-06": partial(events_are_there, nodes),
            "table delete-range events 2023-01-01 2023-02": days_are_there,
            "table quarantine list": n3_has_looked,
        })  # fmt: skip
        named = nodes.ask(1, "placement_nodes")
        for number in range(1, 6):
            cluster.kill(number)
        for number in range(1, 6):
            cluster.start(number, settings=QUICKLY)
        nodes.all_alive(range(1, 6))
        assert until(lambda: nodes.ask(5, "placement_nodes"), lambda found: found == named)
        comes_to_rest(cluster, nodes)
