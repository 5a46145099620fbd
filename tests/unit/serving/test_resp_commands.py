"""Python's commands in RESP: scans by cursor, and questions of clients about the node and themselves."""

from __future__ import annotations

import random
import re
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import BadRequest, GossipKVError, Unauthorized, Unavailable, Unknown, WriteLost
from gossipkv.serving.loop import Caller
from gossipkv.serving.resp import COMMANDS, RespCommands
from gossipkv.serving.resp_scan import MAX_CURSORS, ScanReader, Scans, read_pattern
from gossipkv.settings.tables import MIN_EXPIRES_MS
from gossipkv.table.rpc.local_calls import value_of
from gossipkv.wire.arguments import Arguments
from gossipkv.wire.results import DeferredResult, Later, Packed
from tests.unit.access.callers import LOCALHOST, STRANGER, open_access

RECORDS = {
    "carts": [b"k%d" % number for number in range(7)],
    "geo": sorted(b"%s%d" % (letter, number) for letter in (b"a", b"b", b"*") for number in range(9)),
    "numbers": [],
}
INFO = {"version": "1.2", "cluster": "c", "node": "n", "epoch": 3, "uptime_s": 4.5, "counters": {"gets": 7}, "more": {}}


def scan(arguments: Arguments) -> Packed | DeferredResult | Later:
    """Return a page as datasets and tables do: at once, later, or by a callback."""
    database = arguments.text("database")
    options = arguments.options("limit", "prefix", "cursor")
    prefix, after = options.blob("prefix") or b"", options.blob("cursor") or b""
    limit = options.number("limit")
    assert limit is not None
    found = [key for key in RECORDS[database] if key.startswith(prefix) and key > after]
    cursor = found[limit - 1] if len(found) > limit else None
    result = [[[key, b"value"] for key in found[:limit]], cursor, "v1"]
    if database == "carts":
        return Later(lambda on_result: on_result(result))
    if database == "numbers":

        async def wait() -> object:
            return result

        return DeferredResult(wait)
    return Packed(msgpack.packb(result))


NOW_MS = 1_800_000_000_000
EXPIRES_MS = NOW_MS + 61_501


def get(arguments: Arguments) -> Later | list[object]:
    """Read a key: of the table its value is its last byte; a token says what was shown."""
    database, key = arguments.text("database"), arguments.blob("key")
    options = arguments.options("token", "explain")
    shown = options.blob("token") or b""
    assert options.flag("explain")
    value = None if key == b"none" else key[-1:]
    if database != "carts":
        return [value, "v1", {"node": "n1"}]
    if key == b"lost":
        raise WriteLost("gone")
    explained = {"node": "n1"} | ({"expires_at": EXPIRES_MS} if key == b"brief" else {})
    if key == b"here":
        return [value, b"r" + shown, explained]
    return Later(lambda on_result: on_result(Packed(msgpack.packb([value, b"r" + shown, explained]))))


def put(arguments: Arguments) -> Later:
    """Put a record: the token says its value, its expiry and what was shown."""
    table, _, value = arguments.text("table"), arguments.blob("key"), arguments.blob("value")
    options = arguments.options("token", "ttl_ms", "expires_at")
    assert table == "carts"
    expiry = [b"%s%d" % (name[:1].encode(), options.number(name)) for name in ("ttl_ms", "expires_at")
              if options.number(name) is not None]  # fmt: skip
    token = b" ".join([value, *expiry, options.blob("token") or b""])
    return Later(lambda on_result: on_result(token))


def delete(arguments: Arguments) -> Later:
    database, key = arguments.text("database"), arguments.blob("key")
    if database != "carts":
        raise BadRequest(f"{database} is a dataset", {"database": database})
    token = arguments.options("token").blob("token") or b""
    failed = Unknown("too few have it") if key == b"unknown" else None
    return Later(lambda on_result: on_result(failed or b"d" + token))


def make() -> RespCommands:
    return RespCommands(
        ("geo", "carts", "numbers"),
        names=SimpleNamespace(all=lambda: [*RECORDS], is_table=lambda name: name in {"carts", "orders"}),
        records=lambda name: len(RECORDS[name]) if name != "carts" else None,
        methods={b"scan": scan, b"get": get, b"put": put, b"delete": delete},
        value_of=value_of,
        info=lambda: INFO,
        environment=SimpleNamespace(random=random.Random(1), clock=SimpleNamespace(wall_ms=lambda: NOW_MS)),
        access=open_access(),
    )


def told(
    commands: RespCommands,
    *words: bytes,
    protocol: int = 2,
    database: int = 0,
    name: bytes = b"",
    token: bytes = b"",
    asker=STRANGER,
) -> object:
    answer = commands.answer(Arguments(b"resp", msgpack.packb([7, protocol, database, name, words, token])), asker)
    found: list[object] = []
    if isinstance(answer, Later):
        answer.begin(found.append)
    elif isinstance(answer, DeferredResult):
        with pytest.raises(StopIteration) as ended:
            answer.result().send(None)
        found.append(ended.value.value)
    else:
        return answer
    return found[0]


def scanned(commands: RespCommands, *words: bytes, database: int = 0) -> list[bytes]:
    keys: list[bytes] = []
    cursor = b"0"
    while True:
        lines = told(commands, b"SCAN", cursor, *words, database=database).split(b"\r\n")
        assert lines[0] == b"*2"
        cursor, found = lines[2], lines[5:-1:2]
        assert lines[3] == b"*%d" % len(found)
        assert int(cursor) < 1 << 63
        keys += found
        if cursor == b"0":
            return keys


ALL = [f"{name}:{key.decode()}".encode() for name, keys in RECORDS.items() for key in keys]


@given(
    st.integers(1, 30), st.sampled_from([b"*", b"g*", b"geo:*", b"geo:a*", b"geo:\\**", b"geo:a1", b"x*", b"carts:k1*"])
)
def test_all_keys_of_all_databases(count, pattern):
    """Each matching key comes once, in order, with its database in front."""
    plain = pattern.decode().replace("\\*", "[*]")
    wanted = [key for key in ALL if fnmatchcase(key.decode(), plain)]
    assert scanned(make(), b"MATCH", pattern, b"COUNT", b"%d" % count) == wanted


@given(st.integers(1, 30))
def test_the_keys_of_a_database(count):
    """In a selected database keys have no prefix."""
    for number, name in enumerate(("geo", "carts", "numbers"), 1):
        assert scanned(make(), b"count", b"%d" % count, database=number) == RECORDS[name]
    assert scanned(make(), b"MATCH", b"b*", database=1) == [b"b%d" % number for number in range(9)]
    assert scanned(make(), b"TYPE", b"string", database=2) == RECORDS["carts"]
    assert scanned(make(), b"TYPE", b"list", database=2) == []


def test_a_cursor_that_is_not_known():
    """A cursor of another node and a forgotten one are errors; a known one can be repeated."""
    commands = make()
    (cursor,) = told(commands, b"SCAN", b"0", database=1).split(b"\r\n")[2:3]
    again = told(commands, b"SCAN", cursor, database=1)
    assert told(commands, b"SCAN", cursor, database=1).split(b"\r\n")[4:] == again.split(b"\r\n")[4:]
    with pytest.raises(BadRequest, match="begin again with cursor 0"):
        told(make(), b"SCAN", b"77", database=1)
    for _ in range(MAX_CURSORS):
        told(commands, b"SCAN", b"0", database=1)
    with pytest.raises(BadRequest, match="begin again with cursor 0"):
        told(commands, b"SCAN", cursor, database=1)


def begun(commands: RespCommands, **by: object) -> bytes:
    """Return the cursor behind a first page."""
    (cursor,) = told(commands, b"SCAN", b"0", **by).split(b"\r\n")[2:3]
    return cursor


ANA = Caller(1 << 32 | 7, 0, 2, LOCALHOST)
BOB = Caller(1 << 32 | 8, 0, 3, LOCALHOST)


def test_a_cursor_is_of_a_user_and_of_a_database():
    """A cursor works on any connection and from any address of its user; others cannot use it."""
    commands = make()
    cursor = begun(commands, asker=ANA, database=1)
    for asker, database in ((BOB, 1), (STRANGER, 1), (ANA, 2), (ANA, 0)):
        with pytest.raises(BadRequest, match="begin again with cursor 0"):
            told(commands, b"SCAN", cursor, asker=asker, database=database)
    elsewhere = Caller(2 << 32 | 9, 1, ANA.user, 0x0A000001)
    assert told(commands, b"SCAN", cursor, asker=elsewhere, database=1) != b"*2\r\n$1\r\n0\r\n*0\r\n"


def test_who_begins_many_scans_ends_nobody_elses():
    """Cursors of the address that has most are forgotten first."""
    commands = make()
    others = {
        address: begun(commands, asker=Caller(1 << 32, 0, address % 3, address), database=1) for address in range(9)
    }
    hasty = [begun(commands, asker=ANA, database=1) for _ in range(MAX_CURSORS + 100)]
    late = begun(commands, asker=Caller(1 << 32, 0, 3, 77), database=1)
    for address, cursor in {**others, 77: late}.items():
        user = 3 if address == 77 else address % 3
        told(commands, b"SCAN", cursor, asker=Caller(1 << 32, 0, user, address), database=1)
    with pytest.raises(BadRequest, match="begin again with cursor 0"):
        told(commands, b"SCAN", hasty[0], asker=ANA, database=1)
    told(commands, b"SCAN", hasty[-1], asker=ANA, database=1)


@pytest.mark.parametrize("pattern", [b"a*b", b"?", b"[ab]*", b"**", b"*a"])
def test_patterns_that_keys_in_order_do_not_answer(pattern):
    """Only prefixes are accepted."""
    with pytest.raises(BadRequest, match="PREFIX"):
        read_pattern(pattern)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([b"0", b"MATCH"], b"-ERR syntax error\r\n"),
        ([b"0", b"COUNT", b"0"], b"-ERR syntax error\r\n"),
        ([b"0", b"COUNT", b"x"], b"-ERR value is not an integer or out of range\r\n"),
        ([b"0", b"COUNT", b"9" * 20], b"-ERR value is not an integer or out of range\r\n"),
        ([b"9" * 20], b"-ERR value is not an integer or out of range\r\n"),
        ([b"0", b"LIMIT", b"1"], b"-ERR syntax error\r\n"),
        ([b"x"], b"-ERR invalid cursor\r\n"),
        ([], b"-ERR wrong number of arguments for 'scan' command\r\n"),
    ],
)
def test_scans_that_are_wrong(words, said):
    """The error has Redis' words."""
    assert told(make(), b"SCAN", *words) == said


def test_a_page_that_fails():
    """The error is passed on unchanged."""

    def refuse(_arguments: Arguments) -> Later:
        return Later(lambda on_result: on_result(Unavailable("nobody")))

    commands = make()
    commands._methods = {b"scan": refuse}
    with pytest.raises(Unavailable, match="nobody"):
        told(commands, b"SCAN", b"0")


def test_what_clients_ask():
    """Questions about clients and the node are answered in both protocols."""
    commands = make()
    assert told(commands, b"CLIENT", b"GETNAME") == b"$-1\r\n"
    assert told(commands, b"CLIENT", b"GETNAME", name=b"me", protocol=3) == b"$2\r\nme\r\n"
    assert told(commands, b"client", b"id") == b":7\r\n"
    assert told(commands, b"CLIENT", b"SETINFO", b"LIB-NAME", b"redis-py") == b"+OK\r\n"
    assert told(commands, b"CLIENT", b"KILL").startswith(b"-ERR unknown subcommand 'KILL'")
    assert told(commands, b"DBSIZE") == told(commands, b"DBSIZE", database=1) == b":27\r\n"
    assert (
        told(commands, b"DBSIZE", database=2)
        == b"-ERR DBSIZE supports only datasets that serve, and carts is no such dataset\r\n"
    )
    assert told(commands, b"COMMAND", b"COUNT") == b":%d\r\n" % len(COMMANDS)
    assert told(commands, b"COMMAND", b"DOCS", b"get", protocol=3).startswith(
        b"%1\r\n$3\r\nget\r\n%2\r\n$7\r\nsummary\r\n"
    )
    assert told(commands, b"COMMAND", b"INFO", b"get", b"nope").startswith(
        b"*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n"
    )
    assert told(commands, b"COMMAND", b"INFO", b"nope") == b"*1\r\n$-1\r\n"
    assert told(commands, b"COMMAND").startswith(b"*%d\r\n" % len(COMMANDS))
    assert told(commands, b"COMMAND", b"LIST").startswith(b"-ERR unknown subcommand 'LIST'")
    assert b"gossipkv_cluster:c\r\n" in told(commands, b"INFO", b"server")
    assert b"\r\ngets:7\r\n" in told(commands, b"INFO")
    assert told(commands, b"HELLO", protocol=3).startswith(b"%7\r\n$6\r\nserver\r\n$8\r\ngossipkv\r\n")
    assert told(commands, b"HELLO").startswith(b"*14\r\n$6\r\nserver\r\n")


@pytest.mark.parametrize("name", [b"LPUSH", b"lpush", b"\xff\r\n", b"x" * 300])
def test_commands_that_nobody_knows(name):
    """The error has Redis' words: the name and the beginning of the arguments."""
    said = told(make(), name, b"a" * 100, b"b" * 100, b"c")
    shown = name[:128].decode(errors="replace").replace("\r", " ").replace("\n", " ")
    assert said.decode() == (
        f"-ERR unknown command '{shown}', with args beginning with: '{'a' * 100}' '{'b' * 25}' \r\n"
    )


def test_words_that_are_missing_or_too_many():
    """Each command checks the argument count that `COMMAND` reports; only MessagePack-RPC clients can get here."""
    commands = make()
    assert told(commands).startswith(b"-ERR unknown")
    checked = set()
    for name, listed in COMMANDS.items():
        for count in [*range(1, abs(listed.words)), *([listed.words + 1] if listed.words > 0 else [])]:
            said = told(commands, name.encode(), *[b"x"] * (count - 1))
            if not said.startswith(b"-ERR unknown command"):  # The loop answers it, and has checked its words.
                assert said == b"-ERR wrong number of arguments for '%s' command\r\n" % name.encode()
                checked.add(name)
    assert checked >= {"mset", "del", "expire", "getdel", "scan", "auth"}
    assert told(commands, b"AUTH", b"me", b"token", b"more").startswith(b"-ERR syntax error")


def test_the_page_has_every_command():
    """`docs/users/redis.md` and `COMMAND` have the same commands."""
    page = Path("docs/users/redis.md").read_text()
    (rows,) = re.findall(r"\| command \| here \|\n\|---\|---\|\n((?:\|.*\n)+)", page)
    named = {name.lower() for row in rows.splitlines() for name in re.findall(r"`([A-Z]+)`", row.split("|")[1])}
    assert named == {*COMMANDS}


def test_cursors_are_few():
    """The number of cursors is limited, however many scans begin."""
    scans = Scans(random.Random(1))
    pattern = read_pattern(b"*")
    readers = [ScanReader(0, "geo", address) for address in range(3)]
    page = scans.page(["geo"], readers[0], 0, pattern, 10)
    assert page is not None
    numbers = [scans.next(["geo"], readers[at % 3], page, pattern, b"cursor") for at in range(3 * MAX_CURSORS)]
    assert len(scans._kept) == MAX_CURSORS == scans._of_addresses.total()
    assert len({*numbers}) == len(numbers)


@pytest.mark.parametrize(("database", "prefix"), [(0, b"carts:"), (2, b"")])
def test_getdel_reads_and_then_deletes_within_the_session(database, prefix):
    """The delete shows the token of the read; nothing is deleted where nothing was."""
    commands = make()
    ask = partial(told, commands, database=database, token=b"t")
    assert ask(b"GETDEL", prefix + b"ana") == [b"$1\r\na\r\n", b"drt"]
    assert ask(b"GETDEL", prefix + b"here") == [b"$1\r\ne\r\n", b"drt"]
    assert ask(b"getdel", prefix + b"none") == [b"$-1\r\n", b"rt"]
    assert told(commands, b"getdel", b"carts:none", protocol=3) == [b"_\r\n", b"r"]


@pytest.mark.parametrize(("words", "said", "written"), [
    # A SET without KEEPTTL reads nothing, so the put shows the connection's session.
    (b"SET a v EX 10", "OK", b"v e%d t" % (NOW_MS + 10_000)), (b"set a v px 10", "OK", b"v e%d t" % (NOW_MS + 10)),
    (b"SET a v EXAT 1800000001", "OK", b"v e%d t" % (NOW_MS + 1000)),
    (b"SET a v PXAT 5", "OK", b"v e%d t" % MIN_EXPIRES_MS), (b"SETEX a 10 v", "OK", b"v e%d t" % (NOW_MS + 10_000)),
    (b"PSETEX a 10 v", "OK", b"v e%d t" % (NOW_MS + 10)), (b"SET brief v KEEPTTL", "OK", b"v e%d rt" % EXPIRES_MS),
    (b"SET a v keepttl", "OK", b"v t0 rt"), (b"SET none v KEEPTTL", "OK", b"v rt"),
    # A read and a put of the same value; nothing is written if nothing is to be done.
    (b"EXPIRE a 10", 1, b"a e%d rt" % (NOW_MS + 10_000)), (b"PEXPIRE a 10", 1, b"a e%d rt" % (NOW_MS + 10)),
    (b"EXPIREAT a 1800000001", 1, b"a e%d rt" % (NOW_MS + 1000)),
    (b"PEXPIREAT a 1800000000001", 1, b"a e%d rt" % (NOW_MS + 1)), (b"EXPIRE a -1", 1, b"a e%d rt" % (NOW_MS - 1000)),
    (b"PEXPIREAT a 0", 1, b"a e%d rt" % MIN_EXPIRES_MS), (b"EXPIRE none 10", 0, b"rt"),
    (b"EXPIRE a 10 NX", 1, b"a e%d rt" % (NOW_MS + 10_000)), (b"EXPIRE brief 10 NX", 0, b"rt"),
    (b"EXPIRE a 10 XX", 0, b"rt"), (b"EXPIRE brief 10 xx LT", 1, b"f e%d rt" % (NOW_MS + 10_000)),
    (b"EXPIRE brief 10 GT", 0, b"rt"), (b"EXPIRE brief 99 gt", 1, b"f e%d rt" % (NOW_MS + 99_000)),
    (b"EXPIRE a 10 GT", 0, b"rt"), (b"EXPIRE brief 99 LT", 0, b"rt"),
    (b"EXPIRE a 10 LT", 1, b"a e%d rt" % (NOW_MS + 10_000)),
    (b"EXPIRE here 10", 1, b"e e%d rt" % (NOW_MS + 10_000)),
    (b"PERSIST brief", 1, b"f t0 rt"), (b"PERSIST a", 0, b"rt"), (b"PERSIST none", 0, b"rt"),
])  # fmt: skip
def test_an_expiry_is_written(words, said, written):
    """Each answer is that of Redis; a write shows the token of the read before it."""
    parts = words.split()
    line = b"+OK\r\n" if said == "OK" else b":%d\r\n" % said
    assert told(make(), *parts, database=2, token=b"t") == [line, written]


@pytest.mark.parametrize(("words", "said"), [
    (b"SET k v EX", "ERR syntax error"), (b"SET k v EX 1 PX 1", "ERR syntax error"),
    (b"SET k v KEEPTTL EX 1", "ERR syntax error"), (b"SET k v FOR 1", "ERR syntax error"),
    (b"SET k v EX 1 NX", "ERR syntax error: SET takes no NX, XX or GET here, since nothing is compared"),
    (b"SET k v EX 0", "ERR invalid expire time in 'set' command"),
    (b"SET k v PXAT -5", "ERR invalid expire time in 'set' command"),
    (b"SETEX k 0 v", "ERR invalid expire time in 'setex' command"),
    (b"PSETEX k 9223372036854775807 v", "ERR invalid expire time in 'psetex' command"),
    (b"EXPIRE k 9223372036854775807", "ERR invalid expire time in 'expire' command"),
    (b"EXPIRE k -9223372036854775807", "ERR invalid expire time in 'expire' command"),
    (b"EXPIRE k 9223372036854775808", "ERR value is not an integer or out of range"),
    (b"SET k v EX 1.5", "ERR value is not an integer or out of range"),
    (b"EXPIRE k 07", "ERR value is not an integer or out of range"),
    (b"EXPIRE k 1 ZZ", "ERR Unsupported option ZZ"),
    (b"EXPIRE k 1 NX GT", "ERR NX and XX, GT or LT options at the same time are not compatible"),
    (b"EXPIRE k 1 gt LT", "ERR GT and LT options at the same time are not compatible"),
])  # fmt: skip
def test_an_expiry_that_redis_refuses(words, said):
    """Nothing is read or written; the words are those of Redis."""
    assert told(make(), *words.split(), database=2) == f"-{said}\r\n".encode()


def test_the_expiry_of_a_dataset():
    """Its records never expire."""
    commands = make()
    for words in ((b"EXPIRE", b"geo:a1", b"9"), (b"SET", b"geo:a1", b"v", b"EX", b"9"), (b"PERSIST", b"geo:a1")):
        with pytest.raises(BadRequest, match="geo is a dataset"):
            told(commands, *words)


@pytest.mark.parametrize(("words", "error"), [
    ((b"expire", b"carts:lost", b"9"), "WRITE_LOST"),
    ((b"getdel", b"carts:lost"), "WRITE_LOST"), ((b"getdel", b"carts:unknown"), "UNKNOWN"),
])  # fmt: skip
def test_what_fails_within_getdel_is_the_answer(words, error):
    """The code comes from the step that failed."""
    with pytest.raises(GossipKVError) as failed:
        told(make(), *words)
    assert failed.value.code == error


def test_getdel_elsewhere():
    """A dataset says what it is; a key without its database is refused."""
    with pytest.raises(BadRequest, match="geo is a dataset"):
        told(make(), b"getdel", b"geo:a")
    assert told(make(), b"getdel", b"a").startswith(b"-ERR the key has no colon; with SELECT 0")
    assert told(make(), b"getdel").startswith(b"-ERR wrong number of arguments for 'getdel'")


def test_a_scan_shows_the_session_to_tables_alone():
    """A dataset has versions instead."""
    shown = []

    def seeing(arguments):
        database, options = arguments.text("database"), arguments.options("limit", "prefix", "cursor", "token")
        shown.append((database, options.blob("token")))
        return Later(lambda on_result: on_result([[], None, b"s" if database == "carts" else "v1"]))

    commands = make()
    commands._methods = {b"scan": seeing}
    assert told(commands, b"scan", b"0", database=2, token=b"t") == [b"*2\r\n$1\r\n0\r\n*0\r\n", b"s"]
    assert told(commands, b"scan", b"0", database=1, token=b"t") == b"*2\r\n$1\r\n0\r\n*0\r\n"
    assert shown == [("carts", b"t"), ("geo", None)]


# Writes of many keys ------------------------------------------------------------------------------------------------


class Tables:
    """Two tables whose writes are done later, and a log of them."""

    def __init__(self, rights=None):
        self.rows: dict[bytes, dict[bytes, bytes]] = {b"carts": {}, b"orders": {}}
        self.shown: list[bytes] = []
        self.fails_at = -1
        self.commands = make()
        self.commands._methods = {b"put_many": self.write, b"delete_many": self.write}
        self.commands._access = rights or self.commands._access

    def write(self, arguments: Arguments) -> Later:
        table = arguments.text("table").encode()
        if table not in self.rows:
            raise BadRequest(f"{table.decode()} is a dataset")
        rows = arguments.rows("rows", 1000)
        if any(len(row if isinstance(row, bytes) else row[0]) > 9 for row in rows):
            raise BadRequest("a key of at most 9 bytes")
        token = arguments.options("token").blob("token") or b""

        def begin(on_result) -> None:
            self.shown.append(token)
            if len(self.shown) == self.fails_at:
                on_result(Unavailable("nobody"))
                return
            for row in rows:
                if isinstance(row, bytes):
                    self.rows[table].pop(row, None)
                else:
                    self.rows[table][row[0]] = row[1]
            on_result(Packed(msgpack.packb(b"token%d" % len(self.shown))))

        return Later(begin)

    async def do(self, *words: bytes, token: bytes = b"", database: int = 0) -> object:
        params = msgpack.packb([7, 2, database, b"", words, token])
        answer = self.commands.answer(Arguments(b"resp", params), STRANGER)
        assert isinstance(answer, DeferredResult)
        return await answer.result()


@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 5000])
async def test_many_keys_are_written_in_their_order(count):
    """Each batch shows the token of the one before; the last value of a key counts."""
    tables = Tables()
    keys = [(b"carts:%d" if number % 3 else b"orders:%d") % (number % 1500) for number in range(count)]
    values = {key: b"%d" % number for number, key in enumerate(keys)}
    words = [word for number, key in enumerate(keys) for word in (key, b"%d" % number)]
    assert await tables.do(b"MSET", *words, token=b"seen") == [b"+OK\r\n", b"token%d" % len(tables.shown)]
    assert {name + b":" + key: value for name, rows in tables.rows.items() for key, value in rows.items()} == values
    assert tables.shown == [b"seen", *(b"token%d" % number for number in range(1, len(tables.shown)))]
    told = await tables.do(b"UNLINK", *keys[: count // 2], *keys[: count // 2 + 1], token=b"seen")
    assert told == [b":%d\r\n" % (count // 2 * 2 + 1), b"token%d" % len(tables.shown)]
    assert sum(map(len, tables.rows.values())) == len({*keys} - {*keys[: count // 2 + 1]})


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ([b"MSET", *[b"carts:a", b"1"] * 2500, b"geo:a", b"1"], "geo is a dataset"),
        ([b"MSET", *[b"carts:a", b"1"] * 2500, b"orders:too-long-here", b"1"], "a key of at most 9 bytes"),
        ([b"MSET", *[b"carts:a", b"1"] * 2500, b"carts:b"], "wrong number of arguments for 'mset' command"),
        ([b"MSET", *[b"carts:a", b"1"] * 2500, b"colon", b"1"], "no colon"),
        ([b"DEL", *[b"carts:a"] * 2500, b"geo:a"], "geo is a dataset"),
    ],
)
async def test_no_part_is_written_if_one_is_refused(words, match):
    tables = Tables()
    try:
        said = await tables.do(*words)
    except BadRequest as error:
        said = error.message.encode()
    assert match.encode() in said
    assert tables.shown == []


async def test_no_part_is_written_without_the_right_to_all():
    class Rights:
        def judge_command(self, command, _caller, database):
            if (command, database) != (b"mset", "carts"):
                raise Unauthorized("not allowed")

    tables = Tables(Rights())
    with pytest.raises(Unauthorized):
        await tables.do(b"MSET", b"carts:a", b"1", b"orders:a", b"1")
    assert tables.shown == []


async def test_a_batch_that_fails_ends_the_command():
    tables = Tables()
    tables.fails_at = 2
    with pytest.raises(Unavailable, match="nobody"):
        await tables.do(b"DEL", *[b"carts:a"] * 5000)
    assert len(tables.shown) == 2


def test_only_writes_have_many_words():
    with pytest.raises(BadRequest, match="1025 words, more than 1024"):
        told(make(), b"SCAN", *[b"0"] * 1025)
