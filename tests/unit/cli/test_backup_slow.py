"""`backup` and `restore` against a fake node: the questions, the output, and the end of an interrupted job."""

import json

import pytest

from gossipkv.cli import backup
from gossipkv.errors import BadRequest, Conflict
from tests.unit.cli.asked_node import answering, raising

NAME = "2026-11-28-170000-abcd"
RUNNING = {"state": "running", "table": "carts", "done": 1, "total": 4, "records": 7, "bytes": 100}
SUMMARY = {"backup": NAME, "tables": ["carts", "log"], "since": None, "bytes": 3 << 20, "new_bytes": 1 << 20}


WHOLE = {"backups": [NAME], "damaged": {}, "files": 9, "bytes": 3 << 20}


def test_a_backup_is_asked_for_until_it_is_done(ask):
    done = {"state": "done", **SUMMARY, "records": 12345}
    told, asked = ask(
        "backup", "create", "/b", "--table", "carts", "--table", "log", backup=answering(RUNNING, RUNNING, done)
    )
    assert (told.status, told.out) == (0, f"{NAME}: 12,345 records of carts, log in /b\n")
    assert [method for method, _ in asked] == ["backup"] * 3
    assert len({json.dumps(params, default=bytes.hex) for _, params in asked}) == 1
    _, (place, options) = asked[0]
    assert (place, options["tables"], options["wait_ms"], len(options["operation"])) == (
        "/b",
        ["carts", "log"],
        1000,
        20,
    )
    assert "since" not in options


def test_the_result_as_json(ask):
    told, asked = ask(
        "backup", "create", "s3://b/x", "--since", NAME, "--json", backup=answering({"state": "done", **SUMMARY})
    )
    assert json.loads(told.out) == SUMMARY
    assert asked[0][1][1]["since"] == NAME


def test_a_partial_backup_says_what_it_lacks(ask):
    lacks = {"carts": [{"shard": 3}, {"shard": 5}], "log": [{"start": b"a", "end": None}]}
    done = {"state": "done", **SUMMARY, "records": 1, "missing": lacks}
    told, asked = ask("backup", "create", "/b", "--partial", backup=answering(done))
    assert (told.status, asked[0][1][1]["partial"]) == (0, True)
    words = f"gossipkv: {NAME} is partial: it lacks "
    assert told.err == f"{words}shard 3, shard 5 of carts\n{words}the keys from 'a' of log\n"
    told, _ = ask("backup", "list", "/b", backup_list=answering([done]))
    assert told.out.endswith(", without shard 3, shard 5 of carts; the keys from 'a' of log\n")
    answer = {"state": "done", **WHOLE, "missing": {NAME: lacks}}
    told, _ = ask("backup", "verify", "/b", backup_verify=answering(answer))
    assert (told.status, words in told.err) == (0, True)
    told, _ = ask("restore", "/b", restore=answering({**done, "tables": {"carts": "carts"}}))
    assert (told.status, words in told.err) == (0, True)


def test_backups_are_listed(ask):
    later = {**SUMMARY, "backup": "later", "since": NAME, "tables": []}
    told, _ = ask("backup", "list", "/b", backup_list=answering([SUMMARY, later]))
    assert told.out.splitlines() == [
        f"{NAME}\tcarts, log\t1.0 MiB of its own, 3.0 MiB in all",
        f"later\tno table\t1.0 MiB of its own, 3.0 MiB in all, since {NAME}",
    ]


def test_a_backup_is_verified(ask):
    told, _ = ask("backup", "verify", "/b", backup_verify=answering(RUNNING, {"state": "done", **WHOLE}))
    assert told.out == f"{NAME}: 9 files, 3.0 MiB: all whole\n"


def test_a_damaged_backup_is_named(ask):
    damaged = {"state": "done", **WHOLE, "damaged": {NAME: "MANIFEST: damaged at byte 7"}}
    told, asked = ask("backup", "verify", "/b", "--newest", backup_verify=answering(damaged))
    assert (told.status, asked[0][1][1]["newest"]) == (3, True)
    assert f"{NAME} is damaged: MANIFEST: damaged at byte 7" in told.err
    told, _ = ask("backup", "list", "/b", backup_list=answering([{"backup": NAME, "damaged": "why"}]))
    assert told.out == f"{NAME}\tdamaged: why\n"
    answer = {"expired": [], "bytes": 0, "damaged": [NAME]}
    told, asked = ask("backup", "expire", "/b", "--keep", "1", "--take-over", backup_expire=answering(answer))
    assert asked[0][1] == ["/b", {"keep": 1, "take_over": True}]
    assert f"{NAME} is damaged" in told.err


def test_backups_expire(ask):
    told, asked = ask(
        "backup", "expire", "/b", "--keep", "3", backup_expire=answering({"expired": ["x"], "bytes": 1 << 20})
    )
    assert (told.out, asked[0][1]) == ("/b: 1 removed, 1.0 MiB\n", ["/b", {"keep": 3}])
    for wrong in ((), ("x", "--keep", "1")):
        told, asked = ask("backup", "expire", "/b", *wrong)
        assert (told.status, asked) == (2, [])
        assert "give either the backups to remove, or --keep N" in told.err


def test_a_restore(ask):
    done = {"state": "done", "backup": NAME, "tables": {"new": "carts"}, "records": 5, "bytes": 9, "holds": {}}
    told, asked = ask("restore", "/b", "--table", "carts", "--as", "new", restore=answering(RUNNING, done))
    assert (told.status, told.out) == (0, f"{NAME}: 5 records in new\n")
    assert (asked[0][1][1]["as"], asked[0][1][1]["tables"]) == ("new", ["carts"])


@pytest.mark.parametrize(("error", "status"), [(Conflict("there is a table carts"), 3), (BadRequest("no backup"), 2)])
def test_an_error_of_the_node(ask, error, status):
    told, _ = ask("restore", "/b", restore=raising(error))
    assert told.status == status
    assert error.message in told.err


def test_an_interrupted_backup_is_cancelled(ask, monkeypatch):
    """Ctrl-C ends the job at the node, too."""
    asks = backup.ask_map

    def interrupted(client, method, *params):
        asks(client, method, *params)
        raise KeyboardInterrupt

    monkeypatch.setattr(backup, "ask_map", interrupted)
    told, asked = ask("backup", "create", "/b", backup=answering(RUNNING, {"state": "cancelled"}))
    assert told.status not in {0, 3}
    (_, first), (_, last) = asked
    assert last == ["/b", {"operation": first[1]["operation"], "cancel": True}]
