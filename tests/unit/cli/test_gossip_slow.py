"""`members` and `tree` against a fake node: questions, output and exit status."""

import json

import msgpack
import pytest
from rich.console import Console

from tests.unit.client.fake_node import FakeNode

ALPHA = {"node": "alpha", "address": "10.0.0.1:7070", "state": "alive", "epoch": 3, "incarnation": 0}
BETA = {"node": "beta", "address": "[::1]:7071", "state": "dead", "epoch": 12, "incarnation": 4}


def serving(methods):
    def serve(connection):
        while (request := connection.next_request(has_members="members" in methods)) is not None:
            message_id, method, params = request
            connection.answer(message_id, methods[method](*params))

    return serve


@pytest.fixture
def node(monkeypatch):
    """Start a fake node and make it the default of commands."""
    started = []

    def start(**methods):
        fake = FakeNode(serving(methods))
        started.append(fake)
        monkeypatch.setenv("GOSSIPKV_NODE", fake.__enter__().address)

    yield start
    for fake in started:
        fake.__exit__(None, None, None)


def test_members(run, node):
    node(members=lambda: [ALPHA, BETA])
    lines = [line.split() for line in run("members").out.splitlines()]
    assert lines == [
        ["node", "address", "state", "epoch", "incarnation"],
        ["alpha", "10.0.0.1:7070", "alive", "3", "0"],
        ["beta", "[::1]:7071", "dead", "12", "4"],
    ]
    assert json.loads(run("members", "--json").out) == [ALPHA, BETA]


def test_members_of_which_one_is_claimed_twice(run, node):
    """The claim stands beside the state, which is not folded."""
    node(members=lambda: [{**ALPHA, "claimed_twice": True}, {**BETA, "claimed_twice": False}])
    lines = run("members").out.splitlines()
    assert "alive, claimed twice" in lines[1]
    assert "twice" not in lines[2]


@pytest.mark.parametrize("width", [20, 30, 40, 52])
def test_members_in_a_narrow_terminal(run, node, monkeypatch, width):
    """The states are the purpose of the command."""
    monkeypatch.setattr("gossipkv.cli.screen.console", lambda: Console(width=width, highlight=False))
    node(members=lambda: [ALPHA, BETA])
    words = run("members").out.split()
    assert (words.count("alive"), words.count("dead")) == (1, 1)


def test_what_others_say_is_shown_to_the_letter(run, node):
    """IPv6 addresses and names in brackets are text, not markup: nothing is swallowed, and nothing fails."""
    peer = {**ALPHA, "node": "[bold]a[/x]", "address": "[fd00::2]:17711", "state": "[/]"}
    node(
        members=lambda: [peer],
        children=lambda path, _options=None: {"": ["[red]"], "[red]": ["[/y]"]}.get(path, []),
        entries=lambda path, _options=None: [entry("[/y]", owner="[b]", value=b"[/z]")] if path else [],
    )
    done = run("members")
    assert done.out.splitlines()[1].split() == ["[bold]a[/x]", "[fd00::2]:17711", "[/]", "3", "0"]
    row = run("tree").out.splitlines()[1].split()
    assert (row[0], row[1], row[-1]) == ("[red]/[/y]", "[b]", "'[/z]'")


@pytest.mark.parametrize("as_json", [True, False])
def test_members_watched(run, node, monkeypatch, as_json):
    """All members come first, then a line for each change, also when a member is forgotten; Ctrl-C ends it."""
    views = [[ALPHA, BETA], [ALPHA, BETA], [ALPHA, {**BETA, "state": "alive"}], [ALPHA]]
    node(members=lambda: views.pop(0) if views else None)
    monkeypatch.setattr("gossipkv.cli.gossip.POLL_S", 0)

    def interrupted(_seconds):
        if not views:
            raise KeyboardInterrupt

    monkeypatch.setattr("gossipkv.cli.gossip.time.sleep", interrupted)
    done = run("members", "--watch", *(["--json"] if as_json else []))
    assert done.status == 130
    lines = done.out.splitlines()
    if as_json:
        states = [(found["node"], found["state"]) for found in map(json.loads, lines)]
    else:
        states = [(line.split()[1], line.split()[5]) for line in lines]
    assert states == [("alpha", "alive"), ("beta", "dead"), ("beta", "alive"), ("beta", "forgotten")]


def entry(name, owner="alpha", value=b"v", age_s=0.5, state="alive"):
    return {"name": name, "owner": owner, "value": value, "age_s": age_s, "state": state}


TREE = {"": {"a": None, "nodes": None}, "nodes": {"1@x": "leaf", "2@y": "leaf"}, "a": {"b": None}, "a/b": {"c": "leaf"}}


@pytest.fixture
def forest(node):
    """Start a node that knows TREE, and return the list of questions."""
    asked = []

    def children(path, _options=None):
        return sorted(TREE.get(path, {}))

    def entries(path, options=None):
        asked.append((path, (options or {}).get("all", False)))
        return [entry(name) for name, kind in TREE.get(path, {}).items() if kind == "leaf"]

    node(children=children, entries=entries)
    return asked


def test_tree(run, forest):
    """Everything below a path is shown, with its path from the root."""
    rows = [line.split() for line in run("tree").out.splitlines()]
    assert [row[0] for row in rows] == ["path", "a/b/c", "nodes/1@x", "nodes/2@y"]
    assert (rows[1][1], rows[1][-2:]) == ("alpha", ["alive", "'v'"])
    assert sorted(forest) == [("", False), ("a", False), ("a/b", False), ("nodes", False)]
    found = json.loads(run("tree", "/nodes/", "--all", "--json").out)
    assert [one["path"] for one in found] == ["nodes/1@x", "nodes/2@y"]
    assert found[0] == {
        "path": "nodes/1@x",
        "name": "1@x",
        "owner": "alpha",
        "value": "v",
        "age_s": 0.5,
        "state": "alive",
    }
    assert ("nodes", True) in forest


def test_keys_below_keys(run, node):
    """A key may have keys below it, even if only dead members published them and none stands at the path itself."""
    live, dead = {"": ["a"], "a": ["b"]}, {"": ["gone"], "gone": ["deep", "x"], "gone/deep": ["y"]}

    def children(path, options=None):
        return live.get(path, []) + (dead.get(path, []) if (options or {}).get("all") else [])

    def entries(path, options=None):
        return [entry(name) for name in children(path, options) if name != "deep"]

    node(children=children, entries=entries)
    assert [one["path"] for one in json.loads(run("tree", "--json").out)] == ["a", "a/b"]
    every = [one["path"] for one in json.loads(run("tree", "--all", "--json").out)]
    assert every == ["a", "gone", "a/b", "gone/x", "gone/deep/y"]


def test_a_path_with_nothing_below(run, forest):
    """Status 1 and a line, as for a missing key; JSON is an empty list."""
    done = run("tree", "/no/where/")
    told = "not found: no member publishes a key at or below no/where\n"
    assert (done.status, done.out, done.err) == (1, "", told)
    done = run("tree", "nowhere", "--json")
    assert (done.status, json.loads(done.out)) == (1, [])


def test_nobody_publishes_anything(run, node):
    """The line names no path, since none was given."""
    node(children=lambda *_: [], entries=lambda *_: [])
    done = run("tree")
    assert (done.status, done.out, done.err) == (1, "", "not found: no member publishes a key\n")


def test_the_key_at_a_path(run, forest):
    """A key without children is shown by its path."""
    found = json.loads(run("tree", "nodes/1@x", "--json").out)
    assert [one["path"] for one in found] == ["nodes/1@x"]
    assert [one["path"] for one in json.loads(run("tree", "a/b", "--json").out)] == ["a/b/c"]
    assert json.loads(run("tree", "nowhere", "--json").out) == []


@pytest.mark.parametrize(("value", "shown"), [
    (msgpack.packb({"claim": "confirmed", "count": 1, "uuid": b"\x01\xff"}), "claim=confirmed  count=1  uuid=01ff"),
    (b"text", "'text'"), (b"\xc1", "0xc1"), (b"", "''"), (b"\x81", "0x81"),
    (msgpack.packb({1: "a\x1b"}), "0x8101a2611b"),
])  # fmt: skip
def test_values_of_keys(run, node, value, shown):
    """Values that nodes publish are decoded; other values are shown as bytes, and never control the terminal."""
    node(
        children=lambda path, _options=None: [] if path else ["k"],
        entries=lambda _path, _options=None: [entry("k", value=value)],
    )
    out = run("tree").out
    assert shown in out
    assert "\x1b" not in out
