"""Commands of RESP that the serving loop hands off: scans, and commands about the node and the client.

`resp/commands.pyx` has reads, writes and changes of a connection. Answers leave here as RESP in the connection's
protocol version. The loop writes errors of GossipKV, with the code first.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import msgpack

from gossipkv import __version__
from gossipkv.errors import BadRequest, GossipKVError, Unauthorized
from gossipkv.serving.resp_batches import batches_of, words_of, write_all
from gossipkv.serving.resp_expiry import OK, READERS, WRITERS, RecordWrite, planned
from gossipkv.serving.resp_scan import USUAL_COUNT, ScanReader, Scans, read_pattern
from gossipkv.serving.resp_words import MAX_NUMBER, NEWER, RefusedError, RespLine, RespRefusal, say, whole
from gossipkv.wire.arguments import Arguments
from gossipkv.wire.results import DeferredResult, Later, Packed, ProvenUser

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.environment.seam import Environment
    from gossipkv.serving._serving import Caller as Asker
    from gossipkv.serving.resp_expiry import Step
    from gossipkv.serving.resp_words import Said
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value

    Answer = Value | Packed | DeferredResult | Later
    Method = Callable[[Arguments], Answer]


REDIS_VERSION: Final = "7.0.0"  # Some clients look for the version of Redis whose answers they get.
MAX_WORDS: Final = 1024  # The loop hands off no more, except keys of a write.
MAX_TOLD: Final = 128  # Bytes shown of an unknown command, as in Redis.
NO_DATABASE: Final = (
    "ERR the key has no colon; with SELECT 0, a key is DATABASE:KEY; else SELECT a number of resp_databases"
)
WRONG: Final = RespRefusal("WRONGPASS invalid username-password pair or user is disabled.")
# These commands are authorised by the databases that they read or write.
OF_DATABASES: Final = frozenset({b"scan", b"dbsize", b"getdel", *READERS, *WRITERS})
WRITES_OF_MANY: Final = {b"mset": b"put_many", b"del": b"delete_many", b"unlink": b"delete_many"}


class RespCaller(NamedTuple):
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


def _check_count(name: str, words: int) -> None:
    needed = COMMANDS[name].words
    if words != needed if needed > 0 else words < -needed:
        raise RefusedError(f"ERR wrong number of arguments for '{name}' command")


class MethodCall(NamedTuple):
    """A request to the node's own methods, and the conversion of its result, which may have a token of its own."""

    answer: Answer
    convert: Callable[[Value | Packed], tuple[Said, bytes | None]]


@final
class RespCommands:
    """Answers RESP commands in Python."""

    def __init__(
        self,
        databases: Sequence[str],
        *,
        names: Callable[[], Sequence[str]],
        records: Callable[[str], int | None],
        methods: Mapping[bytes, Method],
        is_table: Callable[[str], bool],
        info: Callable[[], Value],
        environment: Environment,
        access: RespPermissions,
    ) -> None:
        """`databases` can be selected; `names` returns all; `records` estimates the records of a dataset.

        `methods`: those of the wire to `scan`, `get`, `put` and `delete`.
        """
        self._databases = databases
        self._names = names
        self._access = access
        self._records = records
        self._methods, self._is_table = methods, is_table
        self._info_of, self._wall_ms = info, environment.clock.wall_ms
        self._scans = Scans(environment.random)
        self._commands: Mapping[
            bytes, Callable[[RespCaller, Sequence[bytes]], Said | MethodCall | ProvenUser | DeferredResult]
        ] = {
            b"scan": self._scan,
            b"dbsize": self._dbsize,
            b"getdel": self._getdel,
            **{name: partial(self._of_expiry, name) for name in (*READERS, *WRITERS)},
            b"info": self._info,
            b"auth": self._auth,
            b"hello": self._hello,
            b"command": self._command,
            b"client": self._client,
        }

    def answer(self, arguments: Arguments, asker: Asker) -> Value | ProvenUser | DeferredResult | Later:
        """Return the answer to `[connection, protocol, database, client name, command, words, token]`.

        The answer is RESP, or `[RESP, token]`.
        """
        connection, protocol = arguments.whole("connection", MAX_NUMBER), arguments.whole("protocol", NEWER)
        database, called = arguments.whole("database", len(self._databases)), arguments.blob("name")
        name, data = arguments.blob("command"), arguments.blob("words")
        caller = RespCaller(connection, protocol, database, called, arguments.blob("token"), asker)
        arguments.end()
        if name.lower() in WRITES_OF_MANY:
            return DeferredResult(partial(self._write_many, name.lower(), caller, data))
        words = [*islice(words_of(data), MAX_WORDS + 1)]
        if len(words) > MAX_WORDS:
            raise BadRequest(f"the command has more than {MAX_WORDS} words")
        command = self._commands.get(name.lower())
        if command is None:
            return say(_unknown(name, words), protocol)
        if name.lower() not in OF_DATABASES:
            self._access.judge_command(name, asker)
        try:
            _check_count(name.lower().decode(), 1 + len(words))
            reply = command(caller, words)
        except RefusedError as refused:
            reply = RespRefusal(str(refused))
        if isinstance(reply, ProvenUser | DeferredResult):
            return reply
        if isinstance(reply, MethodCall):
            convert = reply.convert
            return _then(reply.answer, lambda result: _packed(*convert(result), protocol))
        return say(reply, caller.protocol)

    # About data

    def _selected(self, caller: RespCaller) -> str | None:
        """Return the selected database; None if keys include the database."""
        return self._databases[caller.database - 1] if caller.database else None

    def _readable(self, caller: RespCaller) -> list[str]:
        """Return the names of all databases that the caller may read; a listing must not reveal other ones."""
        return [name for name in self._names() if self._access.may_read(caller.asker.user, name)]

    def _scan(self, caller: RespCaller, words: Sequence[bytes]) -> Said | MethodCall:
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

        def made(result: Value | Packed) -> tuple[Said, bytes | None]:
            keys, cursor, token = _keys_of(result)
            if pattern.is_whole:
                keys = [key for key in keys if key == page.options.get("prefix", b"")]
            number = self._scans.next(names, reader, page, pattern, cursor)
            return [b"%d" % number, [page.shown_before + key for key in keys]], token

        seen = {"token": caller.token} if caller.token and self._is_table(page.database) else {}
        return MethodCall(self._call(b"scan", page.database, {**page.options, **seen}), made)

    def _call(self, method: bytes, *params: Value) -> Answer:
        return self._methods[method](Arguments(method, msgpack.packb(params)))

    def _ask(self, complete: Completion[Value | Packed], method: bytes, *params: Value) -> None:
        """Ask a table, which answers later, or at once if its replica is here; an error is the answer."""
        try:
            answer = self._call(method, *params)
            if isinstance(answer, Later):
                answer.begin(complete)
            else:
                assert not isinstance(answer, DeferredResult), "tables answer otherwise"
                complete(answer)
        except GossipKVError as error:
            complete(error)

    def _divided(self, caller: RespCaller, word: bytes) -> tuple[str, bytes]:
        """Return the database and the key of a word."""
        selected = self._selected(caller)
        if selected is not None:
            return selected, word
        name, colon, key = word.partition(b":")
        if not colon:
            raise RefusedError(NO_DATABASE)
        return name.decode("ascii", "replace"), key

    async def _write_many(self, name: bytes, caller: RespCaller, data: bytes) -> Value:
        """Answer a write of keys of several tables, or of more keys than one request takes."""
        method = WRITES_OF_MANY[name]
        batches = partial(batches_of, data, partial(self._divided, caller), has_values=method == b"put_many")
        check = partial(self._access.judge_command, name, caller.asker)
        try:
            count, token = await write_all(batches, check, partial(self._call, method), caller.token)
        except RefusedError as refused:
            return say(RespRefusal(str(refused)), caller.protocol)
        return _packed(OK if method == b"put_many" else count, token, caller.protocol)

    def _getdel(self, caller: RespCaller, words: Sequence[bytes]) -> MethodCall:
        """Return the value of a key, and delete it if there is one."""
        database, key = self._divided(caller, words[0])

        def step(value: bytes | None, _expires_at: int | None) -> RecordWrite | Said:
            return None if value is None else RecordWrite(b"delete", (), {}, value)

        return self._changed(b"del", caller, database, key, step)

    def _of_expiry(self, name: bytes, caller: RespCaller, words: Sequence[bytes]) -> MethodCall:
        """Answer a command that reads or writes the expiry of a record."""
        database, key = self._divided(caller, words[0])
        step = planned(name, words[1:], self._wall_ms())
        if isinstance(step, RecordWrite) or name in WRITERS:
            return self._changed(name, caller, database, key, step)
        self._access.judge_command(name, caller.asker, database)
        seen: dict[str, Value] = {"token": caller.token} if caller.token and self._is_table(database) else {}

        def made(result: Value | Packed) -> tuple[Said, bytes | None]:
            value, expires_at, token = _explained(result)
            said = step(value, expires_at)
            assert not isinstance(said, RecordWrite), "a reader writes nothing"
            return said, token

        return MethodCall(self._call(b"get", database, key, {"explain": True, **seen}), made)

    def _changed(
        self, command: bytes, caller: RespCaller, database: str, key: bytes, step: Step | RecordWrite
    ) -> MethodCall:
        """Do a write; a step reads the record before, in a request of its own, so that others may write between."""
        is_read = not isinstance(step, RecordWrite)
        for name in (b"get", command) if is_read else (command,):
            self._access.judge_command(name, caller.asker, database)
        if not self._is_table(database):  # Says what it is instead.
            return MethodCall(self._call(b"delete", database, key), lambda _: (None, None))
        said: list[Said] = [None]

        def write(complete: Completion[Value | Packed], found: RecordWrite | Said, token: bytes) -> None:
            if isinstance(found, RecordWrite):
                said[0] = found.said
                options: dict[str, Value] = {**found.options, "token": token} if token else found.options
                self._ask(complete, found.method, database, key, *found.params, options)
            else:
                said[0] = found
                complete(token)

        def got(complete: Completion[Value | Packed], result: Value | Packed | GossipKVError) -> None:
            assert not isinstance(step, RecordWrite), "nothing was read"
            if isinstance(result, GossipKVError):
                complete(result)
                return
            value, expires_at, token = _explained(result)
            write(complete, step(value, expires_at), token or b"")

        def begin(complete: Completion[Value | Packed]) -> None:
            options: dict[str, Value] = {"token": caller.token} if caller.token else {}
            if isinstance(step, RecordWrite):
                write(complete, step, caller.token)
            else:
                self._ask(partial(got, complete), b"get", database, key, {**options, "explain": True})

        def made(result: Value | Packed) -> tuple[Said, bytes | None]:
            token: Value = msgpack.unpackb(result.data) if isinstance(result, Packed) else result
            return said[0], token if isinstance(token, bytes) else None

        return MethodCall(Later(begin), made)

    def _dbsize(self, caller: RespCaller, _words: Sequence[bytes]) -> Said:
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
        return self._prove(caller, words[-1], RespLine("OK"))

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
        """Answer `HELLO [2 or 3 [AUTH name token] [SETNAME name]]` with a description of the server."""
        at = 1
        while at < len(words) and words[at].lower() != b"auth":
            at += 2
        description: Said = {
            b"server": b"gossipkv",
            b"version": __version__.encode(),
            b"proto": caller.protocol,
            b"id": caller.connection,
            b"mode": b"standalone",
            b"role": b"master",
            b"modules": [],
        }
        if at >= len(words):
            return description
        if at + 2 >= len(words):
            raise RefusedError("ERR syntax error in HELLO option 'auth'")
        return self._prove(caller, words[at + 2], description)

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


def _packed(said: Said, token: bytes | None, protocol: int) -> Value:
    """Return an answer as the loop reads it: RESP, and a table's token if there is one."""
    words = say(said, protocol)
    return [words, token] if token else words


def _explained(result: Value | Packed) -> tuple[bytes | None, int | None, bytes | None]:
    """Return the value of a `get` or None, its expiry or None, and the token if it is of a table."""
    found: Value = msgpack.unpackb(result.data) if isinstance(result, Packed) else result
    match found:
        case [(None | bytes()) as value, origin, dict(explained), *_]:
            expires_at = explained.get("expires_at")
            token = origin if isinstance(origin, bytes) else None
            return value, expires_at if isinstance(expires_at, int) else None, token
    raise AssertionError("a get that explains answers a value, a version or token, and a map")


def _keys_of(result: Value | Packed) -> tuple[list[bytes], bytes | None, bytes | None]:
    """Return the keys of a scan page, the cursor behind it, and the token if it is of a table."""
    found: Value = msgpack.unpackb(result.data) if isinstance(result, Packed) else result
    match found:
        case [list(records), (None | bytes()) as cursor, origin, *_]:
            rows = (record for record in records if isinstance(record, list))
            token = origin if isinstance(origin, bytes) else None
            return [row[0] for row in rows if isinstance(row[0], bytes)], cursor, token
    raise AssertionError("a scan answers records and a cursor")


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


def _converted(
    convert: Callable[[Value | Packed], Value],
    complete: Completion[Value | Packed],
    result: Value | Packed | GossipKVError,
) -> None:
    complete(result if isinstance(result, GossipKVError) else convert(result))


def _then(answer: Answer, convert: Callable[[Value | Packed], Value]) -> Value | DeferredResult | Later:
    if isinstance(answer, DeferredResult):

        async def wait() -> Value:
            result = await answer.result()
            assert not isinstance(result, ProvenUser), "who it is is told by `_prove`"
            return convert(result)

        return DeferredResult(wait)
    if isinstance(answer, Later):

        def begin(complete: Completion[Value | Packed]) -> None:
            answer.begin(partial(_converted, convert, complete))

        return Later(begin)
    return convert(answer)
