"""`publish`, against a node that records the questions."""

from __future__ import annotations

import json
import os

import pytest

from gossipkv.errors import UnknownDatabase
from tests.unit.cli.asked_node import answering, raising

LINES = b"france\tParis\nperu\tLima\n"
WELL = {"level": "well", "text": "All is well."}


class World:
    """A source that a node sees, which serves the newest version."""

    def __init__(self, tmp_path):
        self.root = tmp_path / "root"
        self.root.mkdir()
        self.out = tmp_path / "out"
        self.out.mkdir()
        (self.out / "part-0").write_bytes(LINES)
        self.require = False
        self.hold = None
        self.shown = str(self.root)

    @property
    def versions(self):
        place = self.root / "geo"
        return sorted(name for name in os.listdir(place) if name[0] != "_") if place.exists() else []

    def methods(self, **changed):
        def status(*_):
            if not self.versions:
                raise UnknownDatabase("no database geo")
            return {"geo": {"active": self.hold or self.versions[-1], "hold": self.hold, "versions": {}}}

        usual = {
            "info": lambda: {"source": {"root": self.shown, "require_success_file": self.require}},
            "status": status,
            "refresh": lambda *_: {"geo": self.versions},
            "members": list,
            "verdict": lambda *_: WELL,
        }
        return usual | changed


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_directory_becomes_a_version(world, ask):
    """The command says what it is, beside the version before; said again, it changes nothing."""
    done, asked = ask("publish", "geo", world.out, "--version", "1", "--wait", **world.methods())
    assert (done.status, done.err) == (0, "")
    assert done.out == (
        "geo: 1: 2 records, 23 B in 1 file of tsv, partitioned by sequins, the first version\ngeo: 1 serves\n"
    )
    assert [method for method, _ in asked] == ["info", "status", "members", "refresh", "verdict", "status"]
    assert (world.root / "geo" / "1" / "part-0").read_bytes() == LINES
    (world.out / "part-0").write_bytes(LINES + b"chile\tSantiago\n")
    done, _ = ask("publish", "geo", world.out, "--version", "2", **world.methods())
    assert done.out == (
        "geo: 2: 3 records, 38 B in 1 file of tsv, partitioned by sequins, after 1 with 2 records (+1), 23 B\n"
    )
    done, _ = ask("publish", "geo", world.out, "--json", **world.methods())
    told = json.loads(done.out)
    assert told["version"] == "2"
    assert told["before"] == {"version": "1", "records": 2, "source_bytes": 23}
    assert (told["records"], told["serves"], world.versions) == (3, True, ["1", "2"])


def test_the_name_is_the_time_by_default(world, ask):
    done, _ = ask("publish", "geo", world.out, **world.methods())
    (name,) = world.versions
    assert done.out.startswith(f"geo: {name}: ")
    assert len(name) == len("2026-11-20-101530")


def test_a_command_that_ended_early_is_said_again(world, ask):
    """The node went away after the version was put there: the second command goes on with the same one."""
    done, _ = ask("publish", "geo", world.out, **world.methods(refresh=raising(EOFError())))
    assert done.status == 3
    before = world.versions
    done, _ = ask("publish", "geo", world.out, "--wait", **world.methods())
    assert (done.status, world.versions) == (0, before)
    assert done.out.endswith(f"the first version; published before\ngeo: {before[0]} serves\n")


@pytest.mark.parametrize(("shown", "options", "said"), [
    (None, (), "has no source: give the root with --source ROOT"),
    ("/not/here", (), "the node's source is /not/here, and this machine has no such directory: give its path"),
    ("s3://***@bucket/x", (), "the node's source is s3://***@bucket/x: give the full URL"),
    ("s3://bucket/x", (), "s3://bucket/x: an object store has no rename"),
    ("/srv", ("--source", "/not/there"), "the source is /not/there, and this machine has no such directory"),
])  # fmt: skip
def test_a_source_out_of_reach_is_one_error(world, ask, shown, options, said):
    world.shown = shown
    done, _ = ask("publish", "geo", world.out, *options, **world.methods())
    assert (done.status, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_another_source_than_the_nodes_is_noticed(world, ask, tmp_path):
    (tmp_path / "other").mkdir()
    for refused in (lambda *_: {"geo": ["0"]}, raising(UnknownDatabase("no database geo"))):
        done, _ = ask("publish", "geo", world.out, "--source", tmp_path / "other", **world.methods(refresh=refused))
        assert (done.status, "does not see it: its source may be another directory" in done.err) == (3, True)


def test_what_cannot_be_read_is_not_published(world, ask):
    (world.out / "part-0").write_bytes(b"no tab\n")
    done, asked = ask("publish", "geo", world.out, **world.methods())
    assert (done.status, "part-0: line 1" in done.err) == (3, True)
    assert (world.versions, "refresh" in dict(asked)) == ([], False)
    for name in ("_x", "a/b", ""):
        assert ask("publish", "geo", world.out, "--version", name, **world.methods())[0].status == 2


def test_it_is_read_by_the_settings_of_the_nodes(world, run, tmp_path, monkeypatch):
    """Fields and minimal counts are those of the file; a dry run asks nobody."""
    monkeypatch.setenv("GOSSIPKV_NODE", "127.0.0.1:1")
    (world.out / "part-0").write_bytes(b'{"id": "peru", "capital": "Lima"}\n' * 3)
    file = tmp_path / "gossipkv.toml"
    file.write_text('[databases.geo]\nkey = "id"\nvalue = "capital"\nmin_records = 3\n')
    done = run("publish", "geo", world.out, "--dry-run", "--config", file)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines() == [
        "geo: 3 records, 102 B in 1 file of json, partitioned by sequins", *["  'peru'\t'Lima'"] * 3
    ]  # fmt: skip
    file.write_text(file.read_text().replace("= 3", "= 4"))
    done = run("publish", "geo", world.out, "--dry-run", "--config", file, "--json")
    assert (done.status, "the version has 3 records, and `min_records` is 4" in done.err) == (3, True)
    told = json.loads(done.out)
    assert (told["first"][0], told["format"], told["version"]) == (["peru", "Lima"], "json", None)
    done = run("publish", "geo", world.out, "--dry-run")
    assert (done.status, "if the nodes have [databases.geo], give --config FILE" in done.err) == (3, True)
    assert world.versions == []


def test_a_table_is_not_published(world, run, tmp_path):
    file = tmp_path / "node.toml"
    file.write_text('[databases.geo]\nformat = "delta"\n')
    done = run("publish", "geo", world.out, "--dry-run", "--config", file)
    assert (done.status, "each of its snapshots is a version: write to that table" in done.err) == (2, True)


def test_too_few_records_are_not_published(world, ask, tmp_path):
    """Nodes would withhold the version, so it is not put there; the count before comes from the receipt."""
    assert ask("publish", "geo", world.out, "--version", "1", **world.methods())[0].status == 0
    (world.out / "part-0").write_bytes(b"france\tParis\n")
    file = tmp_path / "gossipkv.toml"
    file.write_text("min_ratio = 0.9\n")
    done, _ = ask("publish", "geo", world.out, "--config", file, **world.methods())
    assert done.status == 3
    assert "not published: the version has 1 records, version 1 has 2, and `min_ratio` is 0.9" in done.err
    assert world.versions == ["1"]


def test_a_version_that_does_not_come_fails_the_wait(world, ask):
    """A hold, and a build that cannot end, are told."""
    assert ask("publish", "geo", world.out, "--version", "1", **world.methods())[0].status == 0
    (world.out / "part-0").write_bytes(b"france\tParis\n")
    world.hold = "1"
    done, _ = ask("publish", "geo", world.out, "--version", "2", "--wait", **world.methods())
    assert (done.status, "version 1 of geo is held until `gossipkv databases release geo`" in done.err) == (3, True)
    stuck = {"version": "2", "state": "stuck", "waits": ["its disk is full"]}
    verdict = answering(WELL | {"coming": {"geo": stuck}})
    done, _ = ask("publish", "geo", world.out, "--version", "2", "--wait", **world.methods(verdict=verdict))
    assert (done.status, "geo: version 2 does not come: its disk is full" in done.err) == (3, True)


def test_every_node_looks(world, ask):
    """The asked node tells the others' addresses; one that is away looks by itself later."""
    others = [{"node": "a", "address": "127.0.0.1:1", "state": "alive"}, {"node": "b", "address": "x", "state": "dead"}]
    done, _ = ask("publish", "geo", world.out, **world.methods(members=lambda: others))
    assert (done.status, done.err) == (0, "")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("_read", "geo: 1 is not published yet: repeat the command, and it continues"),
        ("_put", "geo: 1 is not published yet: repeat the command, and it continues"),
        (
            "wait_until_served",
            (
                "geo: 1 is published: 2 records, 23 B in 1 file of tsv, partitioned by sequins; nodes go on "
                "loading it; `gossipkv status geo --wait` waits until it serves"
            ),
        ),
    ],
)
def test_an_interruption_says_how_far_the_publication_came(world, ask, monkeypatch, place, words):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"gossipkv.cli.publish.{place}", interrupted)
    done, _ = ask("publish", "geo", world.out, "--version", "1", "--wait", **world.methods())
    assert (done.status, done.out, done.err) == (130, "", f"gossipkv: {words}\n")
    assert world.versions == (["1"] if place == "wait_until_served" else [])
