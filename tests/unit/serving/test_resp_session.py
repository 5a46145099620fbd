"""The session of a RESP connection: the tokens that its requests show, with Python's answers given by hand."""

from __future__ import annotations

import msgpack
import pytest

from gossipkv.placement.partition import LEFT_OUT
from gossipkv.serving.published import publish
from tests.oracle.token import encoded
from tests.unit.serving.driven import make_core, make_version
from tests.unit.serving.test_resp import array
from tests.world._world import Driver

CLUSTER = bytes(16)
MAX_TOKEN = 65536
CARTS, ORDERS = b"c" * 16, b"o" * 16


def token(*entries, table=CARTS, config=5):
    return encoded({table: (config, dict(entries))}, CLUSTER)


class Talk:
    """A connection of a node that has a dataset `db` and no part of a table."""

    def __init__(self, tmp_path):
        core = make_core()
        core.publish(publish([(make_version(tmp_path, "db", "v1", {b"k": b"v"}), True)]).table())
        self.driver = Driver(core)
        self.handle = self.driver.open(1, listener=1)
        self.waiting = []

    def say(self, *commands):
        """Send commands at once; return what answered them so far."""
        assert self.driver.wants_input(self.handle)
        self.waiting += self.driver.feed(self.handle, b"".join(array(*command.split()) for command in commands), 1)
        return self.read()

    def read(self):
        said = self.driver.take_output(self.handle, 1 << 30, 1)
        if not self.driver.should_close(self.handle):
            self.waiting += self.driver.run(1)
            said += self.driver.take_output(self.handle, 1 << 30, 1)
        return said

    def asked(self, number=0):
        """Return a waiting request: its method and the token that it shows."""
        _, _, method, params = self.waiting[number]
        *_, last = msgpack.unpackb(params, strict_map_key=False)
        if method == b"resp":
            return "resp", last
        return method.decode(), last["token"] if isinstance(last, dict) else b""

    def answer(self, result, number=0, *, fails=False):
        """Answer a waiting request, and read what that says."""
        _, msgid, _, _ = self.waiting.pop(number)
        assert self.driver.reply(
            self.handle, msgid, msgpack.packb([1, msgid, *([result, None] if fails else [None, result])])
        )
        return self.read()

    def did(self, command, result, *, fails=False):
        """Do a command that makes one request; return the token that it showed."""
        self.say(command)
        ((_, shown),) = [self.asked(number) for number in range(len(self.waiting))]
        self.answer(result, fails=fails)
        return shown


@pytest.fixture
def talk(tmp_path):
    return Talk(tmp_path)


def test_a_read_shows_what_was_written_and_read(talk):
    """The answer to a request that showed the session replaces it."""
    one, two, three = token((1, 7)), token((1, 7), (2, 3)), token((2, 3), (LEFT_OUT, 9))
    assert talk.did(b"SET carts:a 1", one) == b""
    assert talk.did(b"GET carts:a", [b"1", two]) == one
    assert talk.did(b"MGET carts:a carts:b", [[b"1", None], three]) == two
    assert talk.did(b"SET carts:a 2", three) == three
    assert talk.did(b"TTL carts:a", [b"1", one, {"node": "n1"}]) == three
    assert talk.did(b"PTTL carts:a", [b"1", b"", {"node": "n1"}]) == one


@pytest.mark.parametrize("command", [b"SET carts:a 1 EX 9", b"SETEX carts:a 9 1", b"PSETEX carts:a 9000 1"])
def test_a_set_with_a_lifetime_shows_the_session_too(talk, command):
    """Such writes are pipelined like others."""
    one = token((1, 7))
    talk.did(b"SET carts:a 0", one)
    talk.say(command, command.replace(b":a", b":b"))
    for (_, _, method, params), key in zip(talk.waiting, [b"a", b"b"], strict=True):
        assert (method, msgpack.unpackb(params)) == (b"put", [b"carts", key, b"1", {"ttl_ms": 9000, "token": one}])
    assert len(talk.waiting) == 2


def test_what_is_settled_by_a_map_that_this_node_does_not_know_is_shown(talk):
    """By an older map there may be a replica without it."""
    settled = token((LEFT_OUT, 9))
    assert talk.did(b"GET carts:a", [b"1", settled]) == b""
    assert talk.did(b"GET carts:a", [b"1", settled]) == settled


def test_a_read_waits_for_the_writes_before_it(talk):
    """A write does not; a command that is no read neither."""
    assert talk.say(b"SET carts:a 1", b"SET carts:b 1", b"PING", b"GET carts:a", b"PING") == b""
    assert [talk.asked(number)[0] for number in range(len(talk.waiting))] == ["put", "put"]
    assert talk.answer(token((2, 1)), 1) == b""
    assert len(talk.waiting) == 1
    assert talk.answer(token((1, 1))) == b"+OK\r\n+OK\r\n+PONG\r\n"
    method, shown = talk.asked()
    assert (method, shown) == ("get", token((1, 1)) + token((2, 1)))
    assert talk.answer([b"1", shown]) == b"$1\r\n1\r\n+PONG\r\n"


@pytest.mark.parametrize("write", [b"SET carts:a 1", b"MSET carts:a 1", b"DEL carts:a", b"GETDEL carts:a"])
@pytest.mark.parametrize("read", [
    b"GET carts:a", b"MSET carts:a 2", b"MGET carts:a carts:b", b"EXISTS carts:a", b"STRLEN carts:a", b"SCAN 0",
    b"GETDEL carts:a",
])  # fmt: skip
@pytest.mark.parametrize("fails", [False, True])
def test_no_read_or_mset_overtakes_a_write(talk, write, read, fails):
    """Also a write that fails is waited for."""
    talk.say(write, read)
    assert len(talk.waiting) == 1
    done = [b"+OK\r\n", b""] if talk.asked()[0] == "resp" else b""
    said = talk.answer(["UNKNOWN", "m", {}] if fails else done, fails=fails)
    assert said.startswith(b"-UNKNOWN m" if fails else (b":1", b"+OK"))
    assert len(talk.waiting) == 1


def test_pipelined_reads_join_what_they_have_seen(talk):
    """The first answer replaces what all of them showed; none of the others takes a write away."""
    first, second, third = (token((number, 1)) for number in (1, 2, 3))
    talk.did(b"SET carts:a 1", first)
    talk.say(b"GET carts:a", b"GET carts:b", b"GET carts:c")
    assert [talk.asked(number)[1] for number in range(3)] == [first] * 3
    talk.answer([b"1", third], 2)
    talk.answer([b"1", second], 1)
    talk.answer([b"1", first])
    assert set(pieces(talk.did(b"GET carts:a", [b"1", b""]))) == {first, second, third}


def pieces(shown):
    """Return the tokens of one entry."""
    size = len(token((1, 1)))
    return [shown[at : at + size] for at in range(0, len(shown), size)]


def test_of_each_origin_the_last_write_is_shown(talk):
    """The session of one that only writes does not grow."""
    talk.say(*[b"SET carts:%d 1" % number for number in range(20)], b"SET orders:a 1")
    for number in range(20):
        talk.answer(token((1, number + 1)))
    talk.answer(token((1, 4), table=ORDERS))
    assert set(pieces(talk.did(b"GET carts:a", [b"1", b""]))) == {token((1, 20)), token((1, 4), table=ORDERS)}


def test_a_write_waits_for_the_reads_before_it(talk):
    """Another node could answer them after the write."""
    talk.say(b"GET carts:a", b"GET carts:b", b"SET carts:a 2", b"DEL carts:c")
    assert [talk.asked(number)[0] for number in range(len(talk.waiting))] == ["get", "get"]
    talk.answer([b"1", token((1, 1))], 1)
    assert [talk.asked(number)[0] for number in range(len(talk.waiting))] == ["get"]
    talk.answer([b"1", token((1, 1))])
    assert [talk.asked(number)[0] for number in range(len(talk.waiting))] == ["put", "delete"]


def test_each_part_of_a_command_is_seen(talk):
    """The session sees what the parts next to one that failed have seen."""
    talk.say(b"MGET carts:a orders:a carts:b")
    assert [msgpack.unpackb(params)[1] for _, _, _, params in talk.waiting] == [[b"a", b"b"], [b"a"]]
    talk.answer([[b"1"], token((3, 1), table=ORDERS)], 1)
    assert talk.answer(["UNAVAILABLE", "m", {}], fails=True) == b"-UNAVAILABLE m\r\n"
    assert talk.did(b"GET orders:a", [b"1", b""]) == token((3, 1), table=ORDERS)


def test_a_page_of_a_scan_is_part_of_the_session(talk):
    """Python is shown the session, and tells the next token."""
    talk.did(b"SET carts:a 1", token((1, 1)))
    assert talk.did(b"SCAN 0", [b"*0\r\n", token((2, 2))]) == token((1, 1))
    assert talk.did(b"SCAN 0", b"*0\r\n") == token((2, 2))


def test_a_dataset_is_shown_nothing(talk):
    """It has versions instead."""
    talk.did(b"SET carts:a 1", token((1, 1)))
    assert talk.say(b"GET db:k", b"MGET db:k db:none") == b"$1\r\nv\r\n*2\r\n$1\r\nv\r\n$-1\r\n"
    assert talk.did(b"GET carts:a", [b"1", b""]) == token((1, 1))


@pytest.mark.parametrize("command", [b"SELECT 0", b"HELLO 3", b"AUTH x"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_session_ends_with_a_reset(talk, command, fails):
    """It holds no rights, so another user may go on with it; and so does one whose `AUTH` failed."""
    talk.did(b"SET carts:a 1", token((1, 1)))
    talk.say(command)
    if talk.waiting:
        talk.answer(["UNAUTHORIZED", "m", {}] if fails else b"+OK\r\n", fails=fails)
    assert talk.did(b"GET carts:a", [b"1", token((1, 1))]) == token((1, 1))
    talk.say(b"RESET")
    assert talk.did(b"GET carts:a", [b"1", b""]) == b""


@pytest.mark.parametrize(("code", "stays"), [("WRITE_LOST", False), ("NOT_READY", True), ("UNKNOWN", True)])
def test_a_session_that_depends_on_a_lost_write_is_told_once(talk, code, stays):
    """No later read could be answered."""
    talk.did(b"SET carts:a 1", token((1, 1)))
    assert talk.did(b"GET carts:a", [code, "m", {}], fails=True) == token((1, 1))
    assert talk.did(b"GET carts:a", [b"1", b""]) == (token((1, 1)) if stays else b"")


@pytest.mark.parametrize("code", ["BAD_REQUEST", "NOT_READY"])
def test_a_session_whose_key_was_removed_is_told_once(talk, code):
    talk.did(b"SET carts:a 1", token((1, 1)))
    assert talk.did(b"GET carts:a", [code, "m", {"option": "token"}], fails=True) == token((1, 1))
    assert talk.did(b"GET carts:a", [b"1", b""]) == b""


@pytest.mark.parametrize("odd", [b"token", b"", token((1, 1))[:-1], token((1, 1)) + b"\1", b"\1\0\0\0\0abcd"])
def test_what_is_no_token_is_not_kept(talk, odd):
    """A later release may have another form."""
    talk.did(b"SET carts:a 1", odd)
    assert talk.did(b"GET carts:a", [b"1", odd]) == b""


def test_a_session_that_is_too_long_ends_with_its_connection(talk):
    """Its reads could not be promised to see its writes any more."""
    talk.say(*[b"SET carts:%d 1" % number for number in range(70)])
    for number in range(70):
        if talk.driver.should_close(talk.handle):
            break
        talk.answer(token(*((1000 * number + entry, 1) for entry in range(1, 61))))
    assert (number - 1) * 1000 < MAX_TOKEN < (number + 1) * 1000
