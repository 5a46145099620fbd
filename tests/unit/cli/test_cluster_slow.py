"""`cluster`: its output and its orders, without processes."""

from __future__ import annotations

import dataclasses
import json

import pytest

from gossipkv import cli
from gossipkv.cli import FAILED
from gossipkv.cli import cluster as command
from gossipkv.launcher import Cluster, NodeFailed, NodeStatus
from gossipkv.launcher.plan import ClusterPlan, NodePlan
from gossipkv.launcher.status import Unread
from tests.unit.client.fake_node import FakeNode


@pytest.fixture
def begun(monkeypatch):
    """Record the clusters that `up` would start; a node of each fails."""
    begun = []

    def up(self, *, detach, on_wait):
        begun.append((self, detach))
        raise NodeFailed("n1 ended", {"node": 1, "words": "n1 ended", "said": ["why"]})

    monkeypatch.setattr(Cluster, "up", up)
    return begun


@pytest.mark.parametrize("name", ["[abc]", "a[/b]", "[red]x"])
def test_brackets_in_a_path(tmp_path, capsys, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "300")
    place = tmp_path / name
    place.mkdir(parents=True)
    ClusterPlan([NodePlan(1, 7070)], settings={"cluster": "x"}).save(place)
    assert cli.run(["cluster", "status", "--data", str(place)]) == 0
    out = capsys.readouterr().out
    assert str(place / "n1" / "data") in out
    assert "cluster x\n" in out


def test_paths_are_remembered_from_here(tmp_path, begun, monkeypatch):
    """The next `up` may run elsewhere, so paths are stored absolute; other values stay as they are."""
    monkeypatch.chdir(tmp_path)
    settings = ["--set", "key-ring=ring", "--set", "profile=lan", "--set", "seal="]
    cli.run(["cluster", "up", "--data", "c", "--source", "s", *settings])
    cli.run(["cluster", "up", "--data", "c", "--source", "s3://s", "--set", "key_ring=~nobody-has-this-name/r"])
    first, second = (cluster._order for cluster, _ in begun)
    assert first.source == str(tmp_path / "s")
    assert first.settings == {"key_ring": str(tmp_path / "ring"), "profile": "lan", "seal": ""}
    assert second.source == "s3://s"
    assert second.settings == {"key_ring": "~nobody-has-this-name/r"}


def test_http_is_on_unless_it_was_off(tmp_path, begun):
    """HTTP is on in a new cluster; an existing one keeps its setting unless a flag changes it."""
    place = ["--data", str(tmp_path / "c")]
    cli.run(["cluster", "up", *place])
    cli.run(["cluster", "up", *place, "--no-http"])
    (tmp_path / "c").mkdir()
    ClusterPlan([NodePlan(1, 7070)]).save(tmp_path / "c")
    cli.run(["cluster", "up", *place])
    cli.run(["cluster", "up", *place, "--http", "--http-base-port", "9000"])
    asked = [(cluster._order.http, cluster._order.http_base_port) for cluster, _ in begun]
    assert asked == [(True, None), (False, None), (None, None), (True, 9000)]


def test_a_setting_that_nodes_fail_with(tmp_path, begun, capsys):
    """The setting is stored all the same, so the error shows the flag that removes it."""
    place = ["--data", str(tmp_path)]
    assert cli.run(["cluster", "up", *place, "--set", "key_ring=/none", "--set", "seal=send"]) == FAILED
    assert "to forget them: --set key_ring= --set seal=\n" in capsys.readouterr().err
    assert cli.run(["cluster", "up", *place, "--set", "seal="]) == FAILED
    assert capsys.readouterr().err == "gossipkv: n1 ended\n    why\n"
    assert len(begun) == 2


ADDRESSES = [f"127.0.0.1:{port}" for port in range(7071, 7075)]


@pytest.fixture
def up(monkeypatch, tmp_path, capsys):
    """Let `up --detach` find four nodes that become ready one by one; return both output streams."""

    def ready(_self, *, detach, on_wait):
        nodes = [NodeStatus(index, f"n{index}", address, "starting") for index, address in enumerate(ADDRESSES, 1)]
        for at, node in enumerate(nodes):
            on_wait(nodes)
            nodes[at] = dataclasses.replace(node, state="ready")
        return nodes

    monkeypatch.setattr(Cluster, "up", ready)
    monkeypatch.setattr(command, "unread", lambda _nodes: [])

    def run(*arguments):
        assert cli.run(["cluster", "up", "--detach", "--data", str(tmp_path), *arguments]) == 0
        return capsys.readouterr()

    return run


EXPORT = "export GOSSIPKV_NODE=127.0.0.1:7071,127.0.0.1:7072,127.0.0.1:7073"


def tells(connection):
    while (request := connection.next_request()) is not None:
        connection.answer(request[0], {"node": "n1", "cluster": "other"})


def serves_http(connection):
    """Read something and answer as an HTTP server."""
    connection.socket.recv(1000)
    connection.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    ("behaviour", "occupant"),
    [
        (tells, "node n1 of cluster other answers"),
        (serves_http, "another program than GossipKV listens"),
        (None, "nothing listens"),
    ],
)
def test_a_cluster_that_commands_would_not_ask(up, monkeypatch, behaviour, occupant):
    """The output names the process that commands would reach, and the line that selects this cluster."""
    with FakeNode(behaviour or tells) as fake:
        address = fake.address if behaviour else "127.0.0.1:1"
        monkeypatch.setenv("GOSSIPKV_NODE", address)
        lines = up().out.splitlines()
    assert lines[-2:] == [f"commands ask {address} by default, where {occupant}; to ask this cluster instead:", EXPORT]


def test_a_cluster_that_commands_ask(up, monkeypatch):
    """No export line is shown if commands reach this cluster, nor in JSON."""
    monkeypatch.setenv("GOSSIPKV_NODE", f"127.0.0.1:1 {ADDRESSES[3]}")
    assert "export" not in up().out
    monkeypatch.setenv("GOSSIPKV_NODE", "127.0.0.1:1")
    assert [node["address"] for node in json.loads(up("--json").out)["nodes"]] == ADDRESSES


def test_it_is_shown_how_many_are_ready(up, monkeypatch):
    """A terminal shows progress until all nodes are ready."""
    shown = []
    monkeypatch.setattr("rich.progress.Progress.update", lambda _self, _task, **state: shown.append(state))
    assert up().err == ""
    assert shown == [{"total": 4, "completed": ready} for ready in range(4)]


COMING = Unread("geo", "n2", "geo has no version ready yet: version 1 is being built, 40% done", is_coming=True)
STUCK = Unread("names", "n1", "names has no version ready yet: version 1 is in error", is_coming=False)


def test_what_cannot_be_read_yet_is_waited_for(up, monkeypatch):
    """`up` waits while a database is coming; a stuck one is named once, with the most specific reason."""
    for_others = STUCK._replace(node="n0", why="version 1 waits for others", is_coming=True)
    answers = [[COMING, STUCK], [for_others, STUCK, COMING], [for_others, STUCK, STUCK._replace(node="n2")]]
    shown = []
    monkeypatch.setattr("rich.progress.Progress.update", lambda _self, _task, **state: shown.append(state))
    monkeypatch.setattr(command, "unread", lambda _nodes: answers.pop(0))
    told = up()
    assert "nodes are ready in" in told.out
    assert told.err == f"gossipkv: names cannot be read yet at n1: {STUCK.why}\n"
    assert [state["description"] for state in shown[-2:]] == [f"geo at n2: {COMING.why}"] * 2
    assert answers == []


def test_a_long_build_is_not_waited_for_for_ever(up, monkeypatch):
    """After a while the missing databases are named; if all can be read, the cluster is ready."""
    monkeypatch.setattr(command, "READ_PATIENCE_S", 0.0)
    monkeypatch.setattr(command, "unread", lambda _nodes: [COMING])
    assert up().err == f"gossipkv: geo cannot be read yet at n2: {COMING.why}\n"
    monkeypatch.setattr(command, "unread", lambda _nodes: [])
    told = up()
    assert (told.err, "\nready in" in told.out) == ("", True)
