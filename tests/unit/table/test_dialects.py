"""Tables by RESP and HTTP in a whole loop: sessions, and the same answers whether writes are gathered or not."""

from __future__ import annotations

import base64
import random
import re
from itertools import permutations
from types import SimpleNamespace

import pytest

from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import RECORD
from gossipkv.replication.stream.peer import ReplicaPeer
from gossipkv.table.session.token import TableSeen, encode
from tests.unit.serving.test_resp import array
from tests.unit.serving.test_rounds import HandStream
from tests.unit.table.record_nodes import CONFIG, TOKEN_KEYS
from tests.unit.table.test_gathered import KEYS, TABLES, drawn_token, drawn_value, made_node, replica_of, timeless

RESP, HTTP = 1, 2
DATE = re.compile(rb"Date: [^\r]*\r\n")
TOKEN = re.compile(rb"GossipKV-Token: ([^\r]*)\r\n")
SEEDS = 12
BURSTS = 12


class Wire:
    """A connection of a dialect to the node's loop."""

    def __init__(self, node, dialect):
        self.node, self.stream = node, HandStream()
        self.stream.room_bytes = 1 << 30
        node.listener.dialect = dialect
        node.listener.waiting.append(self.stream)
        node.round()
        self.read = 0

    def say(self, data):
        """Send bytes, and return what has answered them once the store is synced."""
        self.stream.arrived.append(data)
        self.node.round()
        self.node.settle()
        self.node.look()
        return self.take()

    def take(self):
        data, self.read = DATE.sub(b"", self.stream.sent[self.read :]), len(self.stream.sent)
        return data


@pytest.fixture
def node():
    return made_node()


@pytest.fixture
def redis(node):
    return Wire(node, RESP)


def handed_off(node):
    return node.loop_core.counters()["handed_off"]


def confirm_elsewhere(node, wire, key):
    """Let all other hosts of a key confirm to each other, and return what is answered then."""
    for _ in range(3):
        node.records.pass_s(0.02)
        node.settle()
        for other in node.records.nodes[1:]:
            taken = other.replicas.by_partition[replica_of(node, key).partition]
            for host in taken.hosts:
                if host.assignment != taken.assignment:
                    other.hears(taken, SimpleNamespace(assignment=host.assignment, config=taken.config), taken.synced)
        node.settle()
    return wire.take()


def link_all(node):
    for one, other in permutations(node.records.nodes, 2):
        peer = one.replicas.peers.setdefault(other.uuid, ReplicaPeer(other.uuid, None))
        peer.link, peer.greeted = 1, True


def take_elsewhere(node, wire, key, command):
    """Let another host take a write, and give the local replica back its fast path, without the record."""
    replica = replica_of(node, key)
    link_all(node)
    replica.leave_fast_path()
    replica.is_frozen = True
    said = wire.say(command)
    said += confirm_elsewhere(node, wire, key)
    replica.is_frozen = False
    node.look()
    assert RECORD + key not in node.node.spaces[replica.space]
    return said


def confirm_all(node):
    node.look()
    for replica in [*node.node.replicas.by_partition.values()]:
        node.confirm(replica)
    node.settle()


# RESP -----------------------------------------------------------------------------------------------------------------


def test_a_read_sees_a_write_that_another_node_took(node, redis):
    """The local replica has no such record yet, so it does not answer; another connection it does."""
    assert take_elsewhere(node, redis, b"a01", array(b"SET", b"ranges:a01", b"v")) == b"+OK\r\n"
    assert Wire(node, RESP).say(array(b"GET", b"ranges:a01")) == b"$-1\r\n"
    for command, answer in (
        (array(b"GET", b"ranges:a01"), b"$1\r\nv\r\n"),
        (array(b"MGET", b"ranges:a01", b"ranges:a02"), b"*2\r\n$1\r\nv\r\n$-1\r\n"),
        (array(b"EXISTS", b"ranges:a01"), b":1\r\n"),
        (array(b"GET", b"ranges:h01"), b"$-1\r\n"),
    ):
        assert redis.say(command) == answer
    redis.say(array(b"RESET"))
    assert redis.say(array(b"GET", b"ranges:a01")) == b"$-1\r\n", "the session has ended"


def test_a_read_in_a_pipeline_sees_the_writes_before_it(node, redis):
    """It is read on when they are answered, in the order of the commands."""
    said = redis.say(array(b"SET", b"ranges:a01", b"1") + array(b"GET", b"ranges:a01") + array(b"DEL", b"ranges:a01"))
    for _ in range(3):
        confirm_all(node)
        said += redis.take()
    said += redis.say(array(b"GET", b"ranges:a01"))
    assert said == b"+OK\r\n$1\r\n1\r\n:1\r\n$-1\r\n"


def test_the_loop_reads_what_a_session_has_written(node, redis):
    """It has that itself, of this partition and of others; what is settled is shown no more."""
    for key in (b"a01", b"h01", b"q01"):
        redis.stream.arrived.append(array(b"SET", b"ranges:" + key, b"v"))
        node.round()
        node.settle()
        node.look()
        node.confirm(replica_of(node, key), hosts=1)
        node.settle()
    assert redis.take() == b"+OK\r\n" * 3
    before = handed_off(node)
    for key in (b"a01", b"h01", b"q01", b"a02"):
        assert redis.say(array(b"GET", b"ranges:" + key)) == (b"$-1\r\n" if key == b"a02" else b"$1\r\nv\r\n")
    confirm_all(node)
    assert redis.say(array(b"GET", b"ranges:a01")) == b"$1\r\nv\r\n"
    assert handed_off(node) == before
    assert node.loop_core.counters()["in_flight"] == 0


def test_a_write_is_gathered_whatever_the_session_has_seen_here(node, redis):
    """The local replica covers that; the record has no dependencies for it."""
    for number, key in enumerate((b"a01", b"h01", b"a01", b"a02"), 1):
        redis.stream.arrived.append(array(b"SET", b"ranges:" + key, b"v"))
        node.round()
        node.settle()
        node.look()
        node.confirm(replica_of(node, key), hosts=1)
        node.settle()
        assert (redis.take(), sum(node.begun)) == (b"+OK\r\n", number)


def test_a_write_that_goes_elsewhere_comes_after_what_the_session_has_seen(node, redis):
    """The other host is told, else its clock might give the later write the earlier time."""
    take_elsewhere(node, redis, b"a01", array(b"SET", b"ranges:a01", b"1"))
    before = len(node.begun)
    redis.say(array(b"SET", b"ranges:a01", b"2"))
    assert confirm_elsewhere(node, redis, b"a01") == b"+OK\r\n"
    assert node.begun[before:] == [], "the local replica does not cover the session"
    assert redis.say(array(b"GET", b"ranges:a01")) == b"$1\r\n2\r\n"


def test_a_write_that_was_held_comes_after_what_the_session_has_seen(node, redis):
    """The replica that covered the session has left while the store wrote; the others are not ready for it."""
    redis.say(array(b"SET", b"ranges:a01", b"1"))
    replica = replica_of(node, b"a01")
    node.confirm(replica, hosts=1)
    node.settle()
    assert redis.take() == b"+OK\r\n"
    link_all(node)
    node.node.is_writing = True
    redis.stream.arrived.append(array(b"SET", b"ranges:a01", b"2"))
    node.round()
    replica.leave_fast_path()
    replica.is_frozen = True
    node.node.is_writing = False
    node.begin_writes()
    assert confirm_elsewhere(node, redis, b"a01") == b""
    node.records.pass_s(1.2)
    node.settle()
    assert redis.take().startswith(b"-NOT_READY ")


# HTTP -----------------------------------------------------------------------------------------------------------------


def http(method, key, body=None, token=b"", table=b"ranges"):
    length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
    shown = b"GossipKV-Token: %s\r\n" % base64.b64encode(token) if token else b""
    return b"%s /%s/%s HTTP/1.1\r\nHost: h\r\n%s%s\r\n%s" % (method, table, key, length, shown, body or b"")


def test_a_session_by_http(node):
    """A write is gathered; a read with its token is answered by the loop, and not by a replica that lacks it."""
    wire = Wire(node, HTTP)
    wire.say(http(b"PUT", b"a01", b"v\r\n"))
    confirm_all(node)
    answer = wire.take()
    token = base64.b64decode(TOKEN.search(answer)[1])
    assert (answer.partition(b"\r\n")[0], answer[-4:], node.begun) == (b"HTTP/1.1 204 No Content", b"\r\n\r\n", [1])
    before = handed_off(node)
    assert wire.say(http(b"GET", b"a01", token=token)).endswith(b"\r\n\r\nv\r\n")
    assert wire.say(http(b"GET", b"q01", token=token)).startswith(b"HTTP/1.1 404 ")
    assert handed_off(node) == before
    answer = take_elsewhere(node, wire, b"a02", http(b"PUT", b"a02", b"w"))
    token = base64.b64decode(TOKEN.search(answer)[1])
    assert wire.say(http(b"GET", b"a02")).startswith(b"HTTP/1.1 404 ")
    assert wire.say(http(b"GET", b"a02", token=token)).endswith(b"\r\n\r\nw")
    wire.say(http(b"DELETE", b"a01"))
    confirm_all(node)
    assert wire.take().startswith(b"HTTP/1.1 204 ")
    assert wire.say(http(b"GET", b"a01")).startswith(b"HTTP/1.1 404 ")


def test_a_session_that_no_replica_is_ready_for(node):
    """503 says when to ask again."""
    wire = Wire(node, HTTP)
    replica = replica_of(node, b"a01")
    ahead = clock.of((host.assignment, 99) for host in replica.hosts)
    token = encode({replica.partition[0]: TableSeen(CONFIG, ahead)}, TOKEN_KEYS)
    for request in (http(b"GET", b"a01", token=token), http(b"PUT", b"a01", b"v", token=token)):
        answer = wire.say(request)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nX-GossipKV-Error: NOT_READY\r\nRetry-After: 1\r\n" in answer


# Both ways ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("dialect", [RESP, HTTP])
def test_drawn_commands_get_the_same_answers_and_records_both_ways(dialect, seed):
    assert drawn(dialect, seed, BURSTS) > 0


def drawn(dialect, seed, bursts):
    """Compare both ways over drawn bursts; return how many rows were gathered."""
    draw = random.Random(seed)
    hosts = draw.choice((1, 2, 3))
    one, other = made_node(hosts), made_node(hosts, gathers=False)
    wires = [Wire(node, dialect) for node in (one, other)]
    said = [b"", b""]
    for _ in range(bursts):
        burst = b"".join(drawn_request(draw, dialect, one, said[0]) for _ in range(draw.randrange(1, 9)))
        slots = draw.choice((0, 1, 2, 2, 2))
        for number, (node, wire) in enumerate(zip((one, other), wires, strict=True)):
            said[number] += wire.say(burst)
            for _ in range(9):  # A read waits for the writes before it.
                for replica in [*node.node.replicas.by_partition.values()]:
                    node.confirm(replica, hosts=slots)
                node.settle()
            node.records.pass_s(1.2)
            for _ in range(9):
                node.settle()
                node.records.pass_s(1.2)
            node.look()
            said[number] += wire.take()
        assert said[0] == said[1]
        assert alone(one, dialect) == alone(other, dialect)
    assert other.begun == []
    assert said[0].count(b"HTTP/1.1 ") > bursts if dialect == HTTP else len(said[0]) > 4 * bursts
    return sum(one.begun)


def alone(node, dialect):
    """Return a node's rows; by RESP without dependencies, which a write has that Python was asked for."""
    rows = timeless(node.node.spaces)
    if dialect == RESP:
        for space, of_space in node.node.spaces.items():
            found = {key: record.decode(row) for key, row in of_space.items() if key[:1] == RECORD}
            rows[space] |= {key: each._replace(time=0, dependencies=b"") for key, each in found.items()}
    return rows


def drawn_request(draw, dialect, node, said):
    table, key, value = draw.choice(TABLES).encode(), draw.choice(KEYS), drawn_value(draw)
    if dialect == HTTP:
        given = [base64.b64decode(token) for token in TOKEN.findall(said)][-6:]
        chance, token = draw.random(), b""
        if chance < 0.6 and given:
            token = draw.choice(given) * draw.choice((1, 1, 2))
        elif chance < 0.7:
            token = drawn_token(draw, node, table.decode())
        method = draw.choice((b"PUT", b"PUT", b"GET", b"DELETE", b"HEAD"))
        return http(method, key, value if method == b"PUT" else None, token, table)
    name = table + b":" + key
    other = table + b":" + draw.choice(KEYS)
    commands = [
        (b"SET", name, value), (b"SET", name, value), (b"GET", name), (b"GET", other), (b"DEL", name),
        (b"DEL", name, other), (b"MGET", name, other), (b"MSET", name, value, other, value), (b"MSET", name, value),
        (b"EXISTS", name),
    ]  # fmt: skip
    return array(*draw.choice(commands))
