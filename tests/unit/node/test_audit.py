"""Each operation is logged with its caller, its object and its result; reads and writes of records are not."""

from __future__ import annotations

from random import Random
from unittest.mock import MagicMock

import msgpack
import pytest
import trio

from gossipkv.access.rights import METHODS, OPERATIONS, Right
from gossipkv.access.users import digest_of, parse
from gossipkv.errors import Conflict, Unavailable
from gossipkv.node.access import PROVEN, Access
from gossipkv.node.methods import Handlers
from gossipkv.serving.loop import Caller
from gossipkv.wire.results import DeferredResult, Later, ProvenUser
from tests.unit.access.callers import LOCALHOST, STRANGER
from tests.world.logs import capture_logs

USERS = f'[anna]\nmay = ["operate", "write:*"]\ntoken = "sha256:{digest_of(b"secret").hex()}"\n'


class Node:
    """A node whose methods give one result, and its clock."""

    def __init__(self, result, users=USERS):
        self.now = 0.0
        self.access = Access(users and parse(users, "users"), proves=False, now=lambda: self.now)
        methods = dict.fromkeys(METHODS, lambda _arguments: result() if callable(result) else result)
        self.handlers = Handlers(methods, {}, self.access, MagicMock(), Random(1), writer=MagicMock())

    def call(self, method, *params, token=b"secret", user=None):
        """Return the events that a request logs."""
        if user is None:
            known = self.access.prove(token, STRANGER)
            user = known.user if isinstance(known, ProvenUser) else 0
        name = method.encode()
        with capture_logs() as logs:
            answer = self.handlers.answer(name, msgpack.packb(params), Caller(1 << 32, 0, user, LOCALHOST))
            if isinstance(answer, DeferredResult):
                trio.run(self.handlers.complete, name, answer)
            elif isinstance(answer, Later):
                self.handlers.begin(name, answer, lambda _: None)
        return [{**line} for line in logs if line["event"] == "operated"]


def fail(error):
    raise error


async def later(value):
    await trio.lowlevel.checkpoint()
    if isinstance(value, Exception):
        raise value
    return value


WAYS = {
    "at once": lambda value: (lambda: fail(value)) if isinstance(value, Exception) else value,
    "deferred": lambda value: DeferredResult(lambda: later(value)),
    "calls back": lambda value: Later(lambda complete: complete(value)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("value", "result", "reason"),
    [
        ({"table": "7"}, "done", None),
        ({"node": "n1", "changed": False}, "unchanged", None),
        ({"state": "cancelled"}, "cancelled", None),
        (Conflict("there is a table at s3://anna:pass@b"), "CONFLICT", "there is a table at s3://***@b"),
    ],
)
def test_an_operation_is_logged_with_its_result(way, value, result, reason):
    """The line has the user, the address, the method, its parameters and options, and the result."""
    made = Node(WAYS[way](value)).call("create_table", "carts", {"replication": 3, "timeout_ms": 9})
    assert [{name: line[name] for name in line if name != "log_level"} for line in made] == [{
        "event": "operated", "user": "anna", "address": "127.0.0.1", "method": "create_table", "object": "carts",
        "options": "replication=3", "result": result, "reason": reason,
    }]  # fmt: skip


@pytest.mark.parametrize(
    ("params", "named", "options"),
    [
        ((None, "n1", "n6"), "- n1 n6", ""),
        ((None, ["n1", "n2"]), "- n1,n2", ""),
        (("s3://anna:secret@b/x?sig=secret",), "s3://***@b/x?***", ""),
        (("t", {"start": b"\xff", "operation": b"1" * 20}), "t", "start=\\xff"),
        ((b"k" * 5000,), "k" * 1000 + "...", ""),
        (("s3://anna:" + "secret" * 200 + "@b/x",), "s3://***...", ""),
        (("/" * 990 + "s3://anna:secret@b/x",), "/" * 990 + "s3://***...", ""),
    ],
)
def test_the_object_is_for_people(params, named, options):
    """Secrets of URLs are masked, and long keys cut."""
    (line,) = Node({}).call("metadata_replace", *params)
    assert (line["object"], line["options"]) == (named, options)


def test_who_has_no_name():
    """Without users, and for a node, the line says so."""
    assert Node({}, users=None).call("hold", "geo", "v1", user=0)[0]["user"] == "nobody"
    assert Node({}).call("hold", "geo", "v1", user=PROVEN)[0]["user"] == "a node"


def test_what_is_no_operation():
    """Reads, single writes, and refused requests, which `refused` tells, are not logged."""
    node = Node({})
    assert all(node.call(method.decode(), "t") == [] for method in METHODS.keys() - OPERATIONS)
    assert all(node.call(method.decode(), "t") == [] for method in METHODS if METHODS[method] == Right.WRITE and
               method not in OPERATIONS)  # fmt: skip
    assert [node.call(method.decode(), "t", user=0) for method in OPERATIONS] == [[]] * len(OPERATIONS)


def test_an_operation_of_many_requests():
    """A range that is deleted page by page is logged at its first page and at its last, and once a minute between."""
    answers = iter([[9, b"c", b""], [9, b"c", b""], [9, b"c", b""], [9, None, b""]])
    node = Node(lambda: next(answers))
    told = [node.call("delete_range", "t", {"prefix": b"a"})]
    told.append(node.call("delete_range", "t", {"prefix": b"a", "cursor": b"c"}))
    node.now = 61.0
    told += [node.call("delete_range", "t", {"prefix": b"a", "cursor": b"c"}) for _ in range(2)]
    assert [[line["result"] for line in lines] for lines in told] == [["running"], [], ["running"], ["done"]]


def test_a_request_that_cannot_begin():
    def begin(_complete):
        raise Unavailable("the store is closed")

    (line,) = Node(Later(begin)).call("delete_range", "t", {"prefix": b"a"})
    assert (line["result"], line["reason"]) == ("UNAVAILABLE", "the store is closed")


async def test_a_request_that_is_cancelled():
    """The node may have done it or not."""
    node = Node(DeferredResult(trio.sleep_forever))
    with capture_logs() as logs:
        answer = node.handlers.answer(b"drop_table", msgpack.packb(["t"]), Caller(1 << 32, 0, PROVEN, LOCALHOST))
        with trio.move_on_after(0):
            await node.handlers.complete(b"drop_table", answer)
    assert [line["result"] for line in logs] == ["cancelled"]
