"""`node`, `table plan` and `table reshard` against a fake node: questions, output and exit status."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gossipkv.errors import BadRequest, Conflict, NotReady, Unavailable, UnknownDatabase
from tests.unit.cli.asked_node import answering, raising


def row(node, weight=1, **more):
    """Return a node of the tables as a node reports it."""
    told = {"node": node, "uuid": f"{int(node[1:]):032x}", "member": True, "isolation_group": "", "alive": True}
    return {**told, "weight": weight, **more}


def changed(*rows, is_new=True, waits_for=()):
    return {"node": "n4", "changed": is_new, "nodes": [*rows], "waits_for": [*waits_for]}


COMMANDS = [
    (["add", "n4"], ("add_node", ["n4", {}]), "n4: weight 3, isolation group r"),
    (["add", "n4", "--isolation-group", "r", "--weight", "3"],
     ("add_node", ["n4", {"isolation_group": "r", "weight": 3}]), "n4: weight 3, isolation group r"),
    (["remove", "n4"], ("remove_node", ["n4", {}]), "n4: its partitions move to other nodes"),
    (["remove", "n4", "--force", "--yes"], ("remove_node", ["n4", {"force": True}]),
     "n4: lost for good; no node waits for its records"),
    (["replace", "n2", "n4"], ("replace_node", ["n2", "n4", {}]),
     "n4: replaces n2; weight 3, isolation group r"),
    (["replace", "n2", "n4", "--force", "--yes", "--weight", "3", "--isolation-group", "r", "--timeout", "2s"],
     ("replace_node", ["n2", "n4", {"force": True, "isolation_group": "r", "weight": 3, "timeout_ms": 2000}]),
     "n4: replaces n2; weight 3, isolation group r"),
    (["weight", "n4", "3"], ("set_weight", ["n4", 3, {}]), "n4: weight 3, isolation group r"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "question", "line"), COMMANDS)
def test_a_change(ask, arguments, question, line):
    """One question gives one line; a repeated change has a note, and --json passes on the answer."""
    for is_new in (True, False):
        told = changed(row("n1"), row("n4", 3, isolation_group="r"), is_new=is_new)
        done, asked = ask("node", *arguments, **{question[0]: lambda *_, told=told: told})
        assert (done.status, done.out, asked) == (0, f"{line}\n", [question])
        assert done.err == ("" if is_new else "nothing to do: no change was needed\n")
        done, _ = ask("node", *arguments, "--json", **{question[0]: lambda *_, told=told: told})
        assert (json.loads(done.out), done.err) == (told, "")


def test_a_name_that_two_nodes_have(ask):
    """The line describes the member; the former node is known by its uuid."""
    rows = row("n4", None, member=False, uuid="ab" * 16), row("n4", 7)
    done, _ = ask("node", "weight", "n4", "7", set_weight=lambda *_: changed(*rows))
    assert done.out == "n4: weight 7\n"


@pytest.mark.parametrize(("arguments", "gone"), [(["remove", "n3"], "n3"), (["replace", "n2", "n4"], "n2")])
def test_force_says_first_what_may_be_lost(ask, arguments, gone):
    """Nothing is done, no node is asked, and the status is 2."""
    for more in ([], ["--json"]):
        done, asked = ask("node", *arguments, "--force", *more)
        assert (done.status, done.out, asked) == (2, "", [])
        for words in "nothing was done", f"{gone} would count as lost for good", "would be lost", "--yes":
            assert words in done.err


@pytest.mark.parametrize(("waits", "words"), [(["n3"], "n3 is down"), (["n2", "n3"], "n2 and n3 are down")])
def test_partitions_that_wait(ask, waits, words):
    """The note names the nodes that are waited for and the remedy, with --json too."""
    told = changed(row("n3", 0, alive=False), waits_for=waits)
    for arguments, method in (("remove", "n3"), "remove_node"), (("list",), "placement_nodes"):
        for more in ([], ["--json"]):
            done, _ = ask("node", *arguments, *more, **{method: lambda *_: told})
            assert (done.status, done.err.count("\n")) == (0, 1)
            assert f"gossipkv: {words}, and partitions wait" in done.err
            assert "gossipkv node remove NODE --force" in done.err


def test_what_is_unknown_is_asked_again(ask):
    """A lost answer repeats the question, once."""
    done, asked = ask("node", "add", "n4", add_node=answering(EOFError(), changed(row("n4"), is_new=False)))
    assert (done.status, done.out, asked[0]) == (0, "n4: weight 1\n", asked[1])
    assert "asking for the outcome" in done.err
    done, asked = ask("node", "add", "n4", add_node=answering(EOFError(), EOFError()))
    assert (done.status, len(asked)) == (3, 2)


@pytest.mark.parametrize(("error", "status"), [
    (Conflict("too few"), 3), (BadRequest("n9 is not a node of tables"), 2), (Unavailable("no member n9"), 3),
    (NotReady("no table was ever created here"), 3), (UnknownDatabase("there is no table t"), 1),
])  # fmt: skip
def test_what_the_node_refuses(ask, error, status):
    for arguments, method in (
        ("node add n4", "add_node"), ("node remove n4", "remove_node"), ("node replace n2 n4", "replace_node"),
        ("node weight n4 2", "set_weight"), ("node list", "placement_nodes"), ("table plan t", "plan"),
        ("table reshard t 2", "reshard"),
    ):  # fmt: skip
        done, asked = ask(*arguments.split(), **{method: raising(error)})
        assert (done.status, done.out, done.err, len(asked)) == (status, "", f"gossipkv: {error}\n", 1)


@pytest.mark.parametrize("arguments", [
    "node", "node add", "node add n4 --weight 0", "node add n4 --weight 1001", "node weight n4", "node weight n4 0",
    "node weight n4 -5", "node weight n4 many", "node replace n4", "node remove", "node remove n4 n5", "node list n4",
    "table reshard t", "table reshard t -1", "table reshard t two", "table plan t u",
    "table create t --kind range --partitioner sha1", "table create t --kind hash --partitioner md5",
])  # fmt: skip
def test_wrong_use(ask, arguments):
    done, asked = ask(*arguments.split())
    assert (done.status, done.out, asked) == (2, "", [])


def test_a_table_of_another_hash(ask):
    """Its partitioner is sent; without one the option is absent."""
    for arguments, partitioner in (["--partitioner", "sha1"], "sha1"), ([], None):
        command = ["table", "create", "t", "--kind", "hash", *arguments]
        _, ((_, (_, options)),) = ask(*command, create_table=lambda *_: {"table": "ab" * 16, "config": 1})
        assert options.get("partitioner") == partitioner


def test_nodes_are_listed(ask):
    """Each node has its weight or that it was removed, and its uuid if its name is not enough."""
    told = {"waits_for": [], "nodes": [
        row("n2", 0), row("n3", None, member=False, alive=False, uuid="cd" * 16), row("n1", 3, isolation_group="r[1]"),
    ]}  # fmt: skip
    done, asked = ask("node", "list", placement_nodes=lambda: told)
    assert (done.status, done.err, asked) == (0, "", [("placement_nodes", [])])
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["node", "uuid", "isolation", "group", "weight", "alive"]
    assert rows[1:] == [["n1", "r[1]", "3", "yes"], ["n2", "-", "removed", "yes"], ["n3", "cd" * 16, "-", "gone", "no"]]
    done, _ = ask("node", "list", "--json", placement_nodes=lambda: told)
    assert json.loads(done.out) == told
    done, _ = ask("node", "list", placement_nodes=lambda: {"nodes": [], "waits_for": []})
    assert (done.status, done.out, "catalogue of tables is empty" in done.err) == (0, "", True)


def move(source, target, size):
    return {"partition": 7, "slot": 0, "from": source, "to": target, "bytes": size}


def plan(table, *moves, count=None, unknown=0, warning=None):
    """Return the planned moves of a table as a node reports them."""
    size = sum(one["bytes"] or 0 for one in moves)
    told = {"table": table, "moves": [*moves], "moves_count": len(moves) if count is None else count, "bytes": size}
    return {**told, "unknown": unknown, "warning": warning}


def test_a_plan(ask):
    """Each pair of nodes has a row and each table a line, with unknown sizes and a warning."""
    told = [
        plan("carts", move("n1", "n4", 1024), move("n1", "n4", 1024), move(None, "n4", None), count=5000, unknown=1),
        plan("logs", warning="3 nodes in 1 isolation groups"), plan("one", move("n2", "n4", 0)),
    ]  # fmt: skip
    done, asked = ask("table", "plan", plan=lambda _: told)
    assert (done.status, asked) == (0, [("plan", [None])])
    lines = done.out.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["table", "from", "to", "moves", "size"], ["carts", "-", "n4", "1", "-"],
        ["carts", "n1", "n4", "2", "2.0", "KiB"], ["one", "n2", "n4", "1", "0", "B"],
    ]  # fmt: skip
    assert lines[4:] == [
        "carts: 5,000 moves, 2.0 KiB and 1 of unknown size; the first 3 are listed",
        "logs: nothing more to move", "one: 1 move, 0 B",
    ]  # fmt: skip
    assert done.err == "gossipkv: logs: 3 nodes in 1 isolation groups\n"
    done, asked = ask("table", "plan", "carts", "--json", plan=lambda _: told[:1])
    assert (json.loads(done.out), asked) == (told[:1], [("plan", ["carts"])])
    done, _ = ask("table", "plan", plan=lambda _: [])
    assert (done.status, done.out, done.err) == (0, "", "no tables\n")


def test_a_plan_of_ranges(ask):
    """The plan gives reasons and splits, as the page shows."""
    page = (Path(__file__).parents[3] / "docs" / "operators" / "placement.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"still have to split:\n\n```\n(.*?)```", page, re.DOTALL)
    full = {"why": "n1 has 1.80 x its share of bytes"}
    splits = [{"partition": 15241904277395120133, "why": "513.0 MiB, over split_bytes"}]
    lost = move(None, "n4", 81 << 20) | {"why": "2 of 3 replicas"}
    moves = [move("n1", "n4", 162 << 20) | full, move("n1", "n4", 162 << 20) | full, lost]
    told = plan("events", *moves) | {"splits": splits, "splits_count": 1}
    done, _ = ask("table", "plan", plan=lambda _: [told])
    assert [line.split() for line in done.out.splitlines()] == [line.split() for line in shown.splitlines()]
    done, _ = ask("table", "plan", plan=lambda _: [plan("events") | {"splits": splits * 2, "splits_count": 2}])
    assert done.out.splitlines()[-1] == "events: nothing more to move; 2 splits"
    resting = [{"partition": 7, "slot": slot, "for_s": 340 - slot} for slot in range(12)]
    done, _ = ask("table", "plan", plan=lambda _: [plan("events") | {"resting": resting}])
    lately = "12 replicas were moved lately and may not move again yet, the last for 340 s"
    assert done.out.splitlines()[-1] == f"events: nothing more to move; {lately}"


def test_a_reshard(ask):
    """The groups are listed; no groups and a repeated command have their own lines."""
    told = {"table": "carts", "changed": True, "groups": [["n3", "n1"], ["n2", "n4"]]}
    done, asked = ask("table", "reshard", "carts", "2", "--timeout", "3s", reshard=lambda *_: told)
    assert (done.status, asked) == (0, [("reshard", ["carts", 2, {"timeout_ms": 3000}])])
    assert [line.split() for line in done.out.splitlines()] == [
        ["group", "nodes"],
        ["0", "n1", "n3"],
        ["1", "n2", "n4"],
    ]
    done, _ = ask("table", "reshard", "carts", "2", "--json", reshard=lambda *_: told)
    assert json.loads(done.out) == told
    none = {"table": "carts", "changed": False, "groups": []}
    done, _ = ask("table", "reshard", "carts", "0", reshard=lambda *_: none)
    assert done.out == "carts: no groups: each shard may be on any node\n"
    assert done.err == "nothing to do: no change was needed\n"
