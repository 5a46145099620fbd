"""Commands of RESP that the serving loop hands off: scans, and commands about the node and the client.

`resp/commands.pyx` has reads, writes and changes of a connection. Answers leave here as RESP in the connection's
protocol version. The loop writes errors of GossipKV, with the code first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import msgpack
import trio

from gossipkv import __version__
from gossipkv.errors import BadRequest, Unauthorized
from gossipkv.serving.resp_expiry import OK, WRITERS, RecordWrite, planned
from gossipkv.serving.resp_scan import USUAL_COUNT, ScanReader, Scans, read_pattern
from gossipkv.serving.resp_words import MAX_NUMBER, NEWER, RefusedError, RespLine, RespRefusal, say, whole
from gossipkv.wire.arguments import Arguments
from gossipkv.wire.results import DeferredResult, ProvenUser

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from gossipkv.environment.seam import Environment
    from gossipkv.serving._serving import Caller as Asker
    from gossipkv.serving.resp_words import Said
    from gossipkv.wire.results import Later, Packed
    from gossipkv.wire.rpc import Value

    Answer = Value | Packed | DeferredResult | Later
    Method = Callable[[Arguments], Answer]


REDIS_VERSION: Final = "7.0.0"  # Some clients look for the version of Redis whose answers they get.
LONGEST_WORD: Final = 1 << 32
MAX_WORDS: Final = 1024  # Commands with a list of keys may have more.
BATCH_KEYS: Final = 1000  # Python takes some 10 µs for each, and serves others between batches.
MAX_TOLD: Final = 128  # Bytes shown of an unknown command, as in Redis.
NO_DATABASE: Final = (
    "ERR the key has no colon; with SELECT 0, a key is DATABASE:KEY; else SELECT a number of resp_databases"
)
WRONG: Final = RespRefusal("WRONGPASS invalid username-password pair or user is disabled.")
WRITES_OF_MANY: Final = {b"mset": b"put_many", b"del": b"delete_many", b"unlink": b"delete_many"}


@final
@dataclass(slots=True)
class RespCaller:
    """A caller: the connection's number, protocol, selected database and name, its session, and the core's caller."""

    connection: int
    protocol: int
    database: int
    name: bytes
    token: bytes  # The clocks of tables that the connection's session has seen.
    asker: Asker


class RespPermissions(Protocol):
    """The permissions of users."""

    def may_read(self, user: int, database: str) -> bool: ...

    # Both raise Unauthorized.
    def judge_command(self, command: bytes, caller: Asker, database: str | None = None) -> None: ...
    def prove(self, token: bytes, caller: Asker) -> ProvenUser | DeferredResult: ...


class ListedCommand(NamedTuple):
    """A command as described to clients: number of words (negative for a minimum), and positions of its keys."""

    words: int
    flags: tuple[str, ...]
    first: int
    last: int
    step: int
    summary: str


_READ, _WRITE, _OWN = ("readonly",), ("write",), ("fast",)
COMMANDS: Final = {
    "get": ListedCommand(2, _READ, 1, 1, 1, "Returns the value of a key."),
    "mget": ListedCommand(-2, _READ, 1, -1, 1, "Returns the values of keys, of one version of each database."),
    "exists": ListedCommand(-2, _READ, 1, -1, 1, "Returns how many of the keys exist."),
    "strlen": ListedCommand(2, _READ, 1, 1, 1, "Returns the length of a value in bytes."),
    "getrange": ListedCommand(4, _READ, 1, 1, 1, "Returns a part of a value."),
    "substr": ListedCommand(4, _READ, 1, 1, 1, "Returns a part of a value; the old name of GETRANGE."),
    "type": ListedCommand(2, _READ, 1, 1, 1, "Returns string if the key exists, else none."),
    "ttl": ListedCommand(2, _READ, 1, 1, 1, "Returns the seconds until a record expires; -1: never; -2: no such key."),
    "pttl": ListedCommand(2, _READ, 1, 1, 1, "Returns the same as TTL in milliseconds."),
    "expiretime": ListedCommand(2, _READ, 1, 1, 1, "Returns the time of expiry in seconds since 1970; -1, -2 as TTL."),
    "pexpiretime": ListedCommand(2, _READ, 1, 1, 1, "Returns the same as EXPIRETIME in milliseconds."),
    "scan": ListedCommand(-2, _READ, 0, 0, 0, "Returns a page of keys in key order; takes MATCH PREFIX* and COUNT."),
    "dbsize": ListedCommand(1, _READ, 0, 0, 0, "Returns the approximate number of records of the datasets."),
    "getdel": ListedCommand(2, _WRITE, 1, 1, 1, "Returns the value of a key of a table, and deletes the key."),
    "set": ListedCommand(-3, _WRITE, 1, 1, 1, "Puts a record into a table; takes EX, PX, EXAT, PXAT or KEEPTTL."),
    "setex": ListedCommand(4, _WRITE, 1, 1, 1, "Puts a record that expires after some seconds."),
    "psetex": ListedCommand(4, _WRITE, 1, 1, 1, "Does the same as SETEX in milliseconds."),
    "expire": ListedCommand(-3, _WRITE, 1, 1, 1, "Lets a record expire after some seconds; takes NX, XX, GT, LT."),
    "pexpire": ListedCommand(-3, _WRITE, 1, 1, 1, "Does the same as EXPIRE in milliseconds."),
    "expireat": ListedCommand(-3, _WRITE, 1, 1, 1, "Lets a record expire at a time, in seconds since 1970."),
    "pexpireat": ListedCommand(-3, _WRITE, 1, 1, 1, "Does the same as EXPIREAT in milliseconds."),
    "persist": ListedCommand(2, _WRITE, 1, 1, 1, "Lets a record never expire."),
    "mset": ListedCommand(-3, _WRITE, 1, -1, 2, "Puts records into tables."),
    "del": ListedCommand(-2, _WRITE, 1, -1, 1, "Deletes records of tables; returns the number of keys in the command."),
    "unlink": ListedCommand(-2, _WRITE, 1, -1, 1, "Does the same as DEL."),
    "select": ListedCommand(2, _OWN, 0, 0, 0, "Selects keys DATABASE:KEY (0), or the n-th of resp_databases."),
    "hello": ListedCommand(-1, _OWN, 0, 0, 0, "Selects the protocol, 2 or 3; returns facts about the server."),
    "ping": ListedCommand(-1, _OWN, 0, 0, 0, "Returns PONG, or the argument."),
    "echo": ListedCommand(2, _OWN, 0, 0, 0, "Returns the argument."),
    "client": ListedCommand(-2, _OWN, 0, 0, 0, "Has the subcommands SETNAME, GETNAME, ID and SETINFO."),
    "command": ListedCommand(-1, _OWN, 0, 0, 0, "Lists these commands; has the subcommands COUNT, INFO and DOCS."),
    "auth": ListedCommand(-2, _OWN, 0, 0, 0, "Shows a token: the token alone, or any name and the token."),
    "info": ListedCommand(-1, _OWN, 0, 0, 0, "Returns facts and counters of the node."),
    "reset": ListedCommand(1, _OWN, 0, 0, 0, "Resets the connection to its first state."),
    "quit": ListedCommand(-1, _OWN, 0, 0, 0, "Ends the connection."),
}  # fmt: skip


def _unknown(name: bytes, words: Sequence[bytes]) -> RespRefusal:
    shown_words = ""
    for word in words:
        if len(shown_words) >= MAX_TOLD:
            break
        shown_words += f"'{word[: MAX_TOLD - len(shown_words)].decode(errors='replace')}' "
    shown = name[:MAX_TOLD].decode(errors="replace")
    return RespRefusal(f"ERR unknown command '{shown}', with args beginning with: {shown_words}")


def _check_count(name: bytes, words: Sequence[bytes]) -> None:
    """Raise RefusedError if the command has too few words, too many, or a key without its value."""
    listed, count = COMMANDS[name.decode()], 1 + len(words)
    if count != listed.words if listed.words > 0 else count < -listed.words or len(words) % (listed.step or 1):
        raise RefusedError(f"ERR wrong number of arguments for '{name.decode()}' command")


class DatabaseNames(Protocol):
    """The names of datasets and tables."""

    def all(self) -> Sequence[str]:
        """Return the names of all datasets and tables."""

    def is_table(self, name: str) -> bool:
        """Return True if a request for that name is for a table."""


@final
class RespCommands:
    """Answers RESP commands in Python."""

    def __init__(
        self,
        databases: Sequence[str],
        *,
        names: DatabaseNames,
        records: Callable[[str], int | None],
        methods: Mapping[bytes, Method],
        value_of: Callable[[Answer], Awaitable[Value]],
        info: Callable[[], Value],
        environment: Environment,
        access: RespPermissions,
    ) -> None:
        """`databases` can be selected; `records` estimates the records of a dataset.

        `methods`: those of the wire to read and to write; `value_of` awaits their results.
        """
        self._databases = databases
        self._names = names
        self._access = access
        self._records = records
        self._methods, self._value_of = methods, value_of
        self._info_of, self._wall_ms = info, environment.clock.wall_ms
        self._scans = Scans(environment.random)
        # Commands about data are authorised by the databases that they read or write.
        self._of_data: Mapping[bytes, Callable[[RespCaller, Sequence[bytes]], Awaitable[Said]]] = {
            b"scan": self._scan,
            b"dbsize": self._dbsize,
            **{name: partial(self._write, name) for name in WRITERS},
            **{name: partial(self._write_many, name) for name in WRITES_OF_MANY},
        }
        self._others: Mapping[bytes, Callable[[RespCaller, Sequence[bytes]], Said | ProvenUser | DeferredResult]] = {
            b"info": self._info,
            b"auth": self._auth,
            b"hello": self._hello,
            b"command": self._command,
            b"client": self._client,
        }

    def answer(self, arguments: Arguments, asker: Asker) -> Value | ProvenUser | DeferredResult:
        """Return the answer to `[connection, protocol, database, name, [words], token]`: RESP, or `[RESP, token]`."""
        connection, protocol = arguments.whole("connection", MAX_NUMBER), arguments.whole("protocol", NEWER)
        database, called = arguments.whole("database", len(self._databases)), arguments.blob("name")
        command, *words = arguments.keys("words", LONGEST_WORD) or [b""]
        caller = RespCaller(connection, protocol, database, called, arguments.blob("token"), asker)
        arguments.end()
        name = command.lower()
        if len(words) > MAX_WORDS and name not in WRITES_OF_MANY:
            raise BadRequest(f"the command has {len(words)} words, more than {MAX_WORDS}", {"limit": MAX_WORDS})
        if name in self._of_data:
            return DeferredResult(partial(self._answer, name, caller, words))
        if name not in self._others:
            return say(_unknown(command, words), protocol)
        self._access.judge_command(name, asker)
        try:
            _check_count(name, words)
            said = self._others[name](caller, words)
        except RefusedError as refused:
            said = RespRefusal(str(refused))
        return said if isinstance(said, ProvenUser | DeferredResult) else say(said, protocol)

    async def _answer(self, name: bytes, caller: RespCaller, words: Sequence[bytes]) -> Value:
        """Return the answer to a command about data."""
        seen, said = caller.token, None
        try:
            _check_count(name, words)
            said = await self._of_data[name](caller, words)
        except RefusedError as refused:
            said = RespRefusal(str(refused))
        return say(said, caller.protocol) if caller.token is seen else [say(said, caller.protocol), caller.token]

    # About data

    def _selected(self, caller: RespCaller) -> str | None:
        """Return the selected database; None if keys include the database."""
        return self._databases[caller.database - 1] if caller.database else None

    def _readable(self, caller: RespCaller) -> list[str]:
        """Return the names of all databases that the caller may read; a listing must not reveal other ones."""
        return [name for name in self._names.all() if self._access.may_read(caller.asker.user, name)]

    async def _scan(self, caller: RespCaller, words: Sequence[bytes]) -> Said:
        if len(words) % 2 == 0:
            raise RefusedError("ERR syntax error")
        options = {word.lower(): value for word, value in zip(words[1::2], words[2::2], strict=True)}
        if not options.keys() <= {b"match", b"count", b"type"}:
            raise RefusedError("ERR syntax error")
        if not words[0].isdigit():
            raise RefusedError("ERR invalid cursor")
        count = whole(options.get(b"count", b"%d" % USUAL_COUNT))
        if count == 0:
            raise RefusedError("ERR syntax error")
        pattern, selected = read_pattern(options.get(b"match", b"*")), self._selected(caller)
        names, reader = self._readable(caller), ScanReader(caller.asker.user, selected, caller.asker.address)
        page = self._scans.page(names, reader, whole(words[0]), pattern, count)
        if page is None or options.get(b"type", b"string").lower() != b"string":
            return [b"0", []]
        self._access.judge_command(b"scan", caller.asker, page.database)

        match await self._ask(caller, b"scan", page.database, page.options):
            case [list(records), (None | bytes()) as cursor, *_]:
                found = [row[0] for row in records if isinstance(row, list) and isinstance(row[0], bytes)]
            case answer:
                raise AssertionError(f"a scan answers records and a cursor, not {answer!r}")
        keys = [key for key in found if not pattern.is_whole or key == page.options.get("prefix", b"")]
        number = self._scans.next(names, reader, page, pattern, cursor)
        return [b"%d" % number, [page.shown_before + key for key in keys]]

    def _call(self, method: bytes, *params: Value) -> Answer:
        return self._methods[method](Arguments(method, msgpack.packb(params)))

    async def _ask(self, caller: RespCaller, method: bytes, *params: Value) -> Value:
        """Ask a database: `params` are its name, those of the method, and options; return the result.

        A table is asked within the session, which has seen the result then.
        """
        database, *others, options = params
        assert isinstance(database, str)
        assert isinstance(options, dict)
        if caller.token and self._names.is_table(database):
            options = {**options, "token": caller.token}
        result = await self._value_of(self._call(method, database, *others, options))
        origin = result[2 if method == b"scan" else 1] if isinstance(result, list) else result
        if isinstance(origin, bytes) and origin:  # A dataset has the name of a version there.
            caller.token = origin
        return result

    def _divided(self, caller: RespCaller, word: bytes) -> tuple[str, bytes]:
        """Return the database and the key of a word."""
        selected = self._selected(caller)
        if selected is not None:
            return selected, word
        name, colon, key = word.partition(b":")
        if not colon:
            raise RefusedError(NO_DATABASE)
        return name.decode("ascii", "replace"), key

    async def _write_many(self, name: bytes, caller: RespCaller, words: Sequence[bytes]) -> Said:
        """Write keys of several tables in batches, one after the other, so the last value of a key counts.

        All are checked before the first one is written, so that no limit or missing right refuses a part of a command.
        """
        method, step = WRITES_OF_MANY[name], COMMANDS[name.decode()].step
        for is_checked in (False, True):
            for begin in range(0, len(words), step * BATCH_KEYS):
                batch: dict[str, list[Value]] = {}
                for at in range(begin, min(begin + step * BATCH_KEYS, len(words)), step):
                    table, key = self._divided(caller, words[at])
                    batch.setdefault(table, []).append(key if step == 1 else [key, words[at + 1]])
                for table, rows in batch.items():
                    if is_checked:
                        await self._ask(caller, method, table, rows, {})
                    else:
                        self._access.judge_command(name, caller.asker, table)
                        self._call(method, table, rows)  # Checks the rows; they are not written unless it is awaited.
                await trio.lowlevel.checkpoint()
        return OK if step > 1 else len(words)

    async def _write(self, name: bytes, caller: RespCaller, words: Sequence[bytes]) -> Said:
        """Write a record; a step reads it before, in a request of its own, so that others may write between."""
        database, key = self._divided(caller, words[0])
        step = planned(name, words[1:], self._wall_ms())
        for command in (name,) if isinstance(step, RecordWrite) else (b"get", name):
            self._access.judge_command(command, caller.asker, database)
        if not self._names.is_table(database):
            await self._ask(caller, b"delete", database, key, {})  # The refusal says what it is instead.
        said = step if isinstance(step, RecordWrite) else step(*await self._found(caller, database, key))
        if isinstance(said, RecordWrite):
            await self._ask(caller, said.method, database, key, *said.params, said.options)
            return said.said
        return said

    async def _found(self, caller: RespCaller, database: str, key: bytes) -> tuple[bytes | None, int | None]:
        """Return the value of a record and its expiry; None: there is none."""
        match await self._ask(caller, b"get", database, key, {"explain": True}):
            case [(None | bytes()) as value, _, {**explained}]:
                expires_at = explained.get("expires_at")
                return value, expires_at if isinstance(expires_at, int) else None
            case answer:
                raise AssertionError(f"a get that explains answers a value, its origin and a map, not {answer!r}")

    async def _dbsize(self, caller: RespCaller, _words: Sequence[bytes]) -> Said:
        selected = self._selected(caller)
        if selected is not None:
            self._access.judge_command(b"dbsize", caller.asker, selected)
        counts = [self._records(name) for name in (self._readable(caller) if selected is None else [selected])]
        if counts == [None]:
            return RespRefusal(f"ERR DBSIZE supports only datasets that serve, and {selected} is no such dataset")
        return sum(count or 0 for count in counts)

    # About the node

    def _auth(self, caller: RespCaller, words: Sequence[bytes]) -> Said | ProvenUser | DeferredResult:
        """Answer `AUTH token` or `AUTH name token`; only the token counts."""
        match words:
            case [token] | [_, token]:
                return self._prove(caller, token, OK)
        raise RefusedError("ERR syntax error")

    def _prove(self, caller: RespCaller, token: bytes, answer: Said) -> Said | ProvenUser | DeferredResult:
        """Prove the token, and answer `answer` on success."""

        def welcome(proven: object) -> ProvenUser:
            assert isinstance(proven, ProvenUser), proven
            return ProvenUser(proven.user, say(answer, caller.protocol))

        try:
            proof = self._access.prove(token, caller.asker)
        except Unauthorized:
            return WRONG
        if isinstance(proof, ProvenUser):
            return welcome(proof)

        async def wait() -> Value | ProvenUser:
            try:
                return welcome(await proof.result())
            except Unauthorized:
                return say(WRONG, caller.protocol)

        return DeferredResult(wait)

    def _hello(self, caller: RespCaller, words: Sequence[bytes]) -> Said | ProvenUser | DeferredResult:
        """Answer `HELLO` with a description of the server; the loop passes on the token of `AUTH name token` alone."""
        description: Said = {
            b"server": b"gossipkv",
            b"version": __version__.encode(),
            b"proto": caller.protocol,
            b"id": caller.connection,
            b"mode": b"standalone",
            b"role": b"master",
            b"modules": [],
        }
        return self._prove(caller, words[0], description) if words else description

    def _info(self, _caller: RespCaller, _words: Sequence[bytes]) -> Said:
        """Return all sections at once, whatever section is named: each figure of `info` that is a single word."""
        figures = self._info_of()
        assert isinstance(figures, dict)
        counters = figures["counters"]
        assert isinstance(counters, dict)
        server = {f"gossipkv_{name}": figures[name] for name in ("version", "cluster", "node", "epoch")}
        lines = ["# Server", f"redis_version:{REDIS_VERSION}", "redis_mode:standalone", "loading:0", *_lines(server)]
        lines += ["# Replication", "role:master", "connected_slaves:0"]
        lines += ["# Stats", f"uptime_in_seconds:{int(str(figures['uptime_s']).partition('.')[0])}", *_lines(counters)]
        return "".join(f"{line}\r\n" for line in lines).encode()

    def _command(self, _caller: RespCaller, words: Sequence[bytes]) -> Said:
        match [word.lower() for word in words]:
            case [b"count"]:
                return len(COMMANDS)
            case [b"docs", *asked]:
                return {
                    name.encode(): {b"summary": listed.summary.encode(), b"group": b"generic"}
                    for name, listed in COMMANDS.items()
                    if not asked or name.encode() in asked
                }
            case [] | [b"info"]:
                return [_described(name) for name in COMMANDS]
            case [b"info", *asked]:
                return [_described(name.decode(errors="replace")) for name in asked]
        return _unknown_part("COMMAND", words[0])

    def _client(self, caller: RespCaller, words: Sequence[bytes]) -> Said:
        match [word.lower() for word in words]:
            case [b"getname"]:
                return caller.name or None
            case [b"id"]:
                return caller.connection
            case [b"setinfo", b"lib-name" | b"lib-ver", _]:
                return RespLine("OK")
        return _unknown_part("CLIENT", b"".join(words[:1]))


def _described(name: str) -> Said:
    listed = COMMANDS.get(name)
    if listed is None:
        return None
    flags: list[Said] = [RespLine(flag) for flag in listed.flags]
    return [name.encode(), listed.words, flags, listed.first, listed.last, listed.step, [], [], [], []]


def _unknown_part(command: str, part: bytes) -> RespRefusal:
    shown = part[:MAX_TOLD].decode(errors="replace")
    return RespRefusal(f"ERR unknown subcommand '{shown}'. Try COMMAND DOCS {command}.")


def _lines(figures: Mapping[str, Value]) -> list[str]:
    return [f"{name}:{value}" for name, value in figures.items() if isinstance(value, int | float | str)]
