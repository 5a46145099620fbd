"""The methods of a node, as a table, and the answers to their errors.

A method takes its arguments and returns its result, or raises one of our errors.  It runs to its end within the serving
task, so it must not block.  A method that has to wait returns a `DeferredResult`, which the node runs as a task, or a
`Later`, which calls back.

Every other exception is a defect: the client gets INTERNAL with an id, and the log gets the traceback under that id.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, final

import msgpack

from gossipkv.errors import (
    WRITES_ARE,
    BadRequest,
    GossipKVError,
    Internal,
    LocalError,
    NotReady,
    StorageError,
    Unauthorized,
    Unavailable,
    UnknownDatabase,
    UnknownMethod,
    to_wire,
)
from gossipkv.log import Log
from gossipkv.node.access import PROVEN, shown
from gossipkv.node.peers import hello
from gossipkv.node.verdicts import LAST_S
from gossipkv.serving.loop import Caller, Refused, Welcome
from gossipkv.serving.resp import RespCommands
from gossipkv.settings.databases import NAMES, is_name
from gossipkv.wire.arguments import Arguments, name_of
from gossipkv.wire.results import DeferredResult, Later, Packed, ProvenUser

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from gossipkv.dataset.library import Library
    from gossipkv.errors import Detail
    from gossipkv.node.access import Access
    from gossipkv.node.gossip import Gossiping
    from gossipkv.node.names import Names
    from gossipkv.node.verdicts import NodeVerdicts
    from gossipkv.serving.reads import Reads
    from gossipkv.table.peers.words import Words
    from gossipkv.table.rpc.dispatch import TableMethods
    from gossipkv.table.store import TableStore
    from gossipkv.wire.rpc import Value

    Method = Callable[[Arguments], Value | Packed | DeferredResult | Later]
    OfCaller = Callable[[Arguments, Caller], Value | Packed | ProvenUser | DeferredResult | Later]

# A packer keeps its buffer, which saves most of the cost of packing a small result; larger buffers are dropped.
LARGE_BYTES = 1024 * 1024

WRITES = (b"put", b"delete", b"put_many")

FEW_ENTRIES = 250  # Entries of the tree that are listed in one turn of the task; longer lists take several turns.


@final
class Handlers:
    """Answers the requests that the serving loop hands off."""

    def __init__(
        self,
        datasets: Library,
        reads: Reads,
        cluster: Gossiping,
        tables: TableStore,
        access: Access,
        *,
        deciding: TableMethods,
        words: Words,
        names: Names,
        info: Callable[[], Value],
        serves: Callable[[str, bytes, str], Value],
        report: Callable[[], Awaitable[Value]],
        verdicts: NodeVerdicts,
        random: random.Random,
        resp_databases: Sequence[str] = (),
        prove: Callable[[bytes | None], bool] = lambda _: False,
    ) -> None:
        """Begin; `serves` answers a member's direct question, given database, identity and asker; `report` makes one.

        `prove` raises Unauthorized unless the current caller is the node of that uuid, or for None any node.
        """
        self.errors: Counter[str] = Counter()  # Counts by code.
        self._datasets, self._cluster, self._names = datasets, cluster, names
        self._tables, self._access, self._prove = tables, access, prove
        self._tell_info, self._serves_what, self._make_report = info, serves, report
        self._verdicts, self._random = verdicts, random
        self._unanswered = reads.unanswered
        self._packer = _make_packer()
        self._log = Log("gossipkv.node")
        self._methods: dict[bytes, Method] = {
            b"ping": self._ping,
            b"info": self._info,
            b"databases": self._databases,
            b"get": partial(self._read, reads.get),
            b"get_many": partial(self._read, reads.get_many),
            b"scan": partial(self._read, reads.scan),
            b"report": self._report,
            b"verdict": self._verdict,
            b"refresh": self._refresh,
            **dict.fromkeys((b"hold", b"release"), self._order),
            b"backup": self._backup,
            b"serves": self._serves,
            b"whose": access.whose,
            b"gossip": self._gossip,
            b"members": self._members,
            b"children": self._children,
            b"entries": self._entries,
            b"partition_map": self._partition_map,
            **deciding.methods,
            b"create_table": partial(self._named, self._names.check_free),
            **dict.fromkeys(WRITES, partial(self._named, self._names.check_takes_puts)),
        }
        self._deciding, self._words = deciding, words
        resp = RespCommands(
            resp_databases,
            names=names.all,
            records=reads.records,
            scan=self._methods[b"scan"],
            info=info,
            random=random,
            access=access,
        )
        self._of_callers: dict[bytes, OfCaller] = {
            b"auth": access.auth,
            b"hello": self._hello,
            b"status": self._status,
            b"resp": resp.answer,
        }

    def answer(
        self, method: bytes | None, params: bytes, caller: Caller
    ) -> bytes | Refused | Welcome | DeferredResult | Later:
        """Return the result as MessagePack, an error, or a request that takes time: to `complete` or to `begin`.

        Never raises.  Without a method, the parameters are the report of a read that no other node has answered.
        """
        if method is None:
            return self._refuse(b"get", self._unanswered(params))
        try:
            arguments = Arguments(method, params)
            of_caller, own = self._of_callers.get(method), self._methods.get(method, _unknown)
            if method != b"resp" and (of_caller is not None or own is not _unknown):
                self._access.judge(arguments, caller)
            result = own(arguments) if of_caller is None else of_caller(arguments, caller)
            if isinstance(result, DeferredResult | Later):
                return result
            return self._pack(result)
        except Exception as error:  # noqa: BLE001  # Every defect becomes an answer and a log line.
            return self._refuse(method, error)

    async def complete(self, method: bytes, waiting: DeferredResult) -> bytes | Refused | Welcome:
        """Return the result of a `DeferredResult`, or the error.  Raises nothing but cancellation."""
        try:
            return self._pack(await waiting.result())
        except Exception as error:  # noqa: BLE001  # The rule of `answer` holds here.
            return self._refuse(method, error)

    def begin(self, method: bytes, later: Later, on_answer: Callable[[bytes | Refused], None]) -> None:
        """Begin a `Later`; `on_answer` is called once with its result or error.  Never raises."""
        is_answered = False

        def on_result(result: Value | Packed | GossipKVError) -> None:
            nonlocal is_answered
            assert not is_answered, "a request is answered once"
            is_answered = True
            try:
                answer = self._refuse(method, result) if isinstance(result, GossipKVError) else self._packed(result)
            except Exception as error:  # noqa: BLE001  # The rule of `answer` holds here.
                answer = self._refuse(method, error)
            on_answer(answer)

        try:
            later.begin(on_result)
        except Exception as error:  # noqa: BLE001  # The rule of `answer` holds here.
            answer = self._refuse(method, error)
            if not is_answered:
                is_answered = True
                on_answer(answer)

    def _refuse(self, method: bytes, error: Exception) -> Refused:
        if isinstance(error, StorageError):  # The disk failed, which is no defect.
            error = Unavailable(error.message, error.details)
        if not isinstance(error, GossipKVError) or isinstance(error, LocalError):
            return self._internal_error(method, error)
        try:
            refused = Refused(self._packed(to_wire(error)), ends=method == b"hello" and isinstance(error, Unauthorized))
        except (TypeError, ValueError, OverflowError) as defect:  # The error itself cannot be encoded.
            return self._internal_error(method, defect)
        self.errors[error.code] += 1
        return refused

    def _internal_error(self, method: bytes, defect: Exception) -> Refused:
        incident = f"{self._random.getrandbits(64):016x}"
        self._log.error("internal_error", id=incident, method=name_of(method), exc_info=defect)
        internal = Internal(f"a defect in the node; its log has the traceback under {incident}", {"id": incident})
        self.errors[internal.code] += 1
        return Refused(self._packed(to_wire(internal)))

    def _pack(self, value: Value | Packed | ProvenUser) -> bytes | Welcome:
        return Welcome(value.user, self._packed(value.result)) if isinstance(value, ProvenUser) else self._packed(value)

    def _packed(self, value: Value | Packed) -> bytes:
        if isinstance(value, Packed):
            return value.data
        packed: bytes = self._packer.pack(value)
        if len(packed) > LARGE_BYTES:
            self._packer = _make_packer()
        return packed

    # The methods

    def _ping(self, arguments: Arguments) -> Value:
        arguments.end()
        return "pong"

    def _info(self, arguments: Arguments) -> Value:
        arguments.end()
        return self._tell_info()

    def _databases(self, arguments: Arguments) -> Value | DeferredResult:
        arguments.end()
        return DeferredResult(self._names.databases_with_others) if self._deciding.shut else self._names.databases()

    def _partition_map(self, arguments: Arguments) -> Value | DeferredResult:
        database, _ = arguments.text("database"), arguments.options("start", "limit")
        if self._datasets.known(database):
            return {**self._datasets.partition_map(database)}
        arguments.rewind()
        return self._deciding.partition_map(arguments)

    def _read(self, read: Method, arguments: Arguments) -> Value | Packed | DeferredResult | Later:
        database = arguments.text("database")
        arguments.rewind()
        return self._deciding.read(arguments) if self._names.is_table(database) else read(arguments)

    def _named(self, check: Callable[[str], None], arguments: Arguments) -> Value | Packed | DeferredResult | Later:
        """Call a method of a table, if `check` accepts its name."""
        check(arguments.text("table"))
        arguments.rewind()
        return self._deciding.methods[arguments.method.encode()](arguments)

    def _status(self, arguments: Arguments, caller: Caller) -> Value | DeferredResult:
        may_read = partial(self._access.is_reader, caller.user)
        options = arguments.options("local", "database", "bitmaps")
        local, bitmaps = options.flag("local"), options.flag("bitmaps")
        database = options.text("database")
        is_dataset = database is not None and self._datasets.known(database)
        self._check_named(database)
        has_none = database and not is_dataset
        how = partial(self._datasets.status, local=local, bitmaps=bitmaps, may_read=may_read)
        statuses = {} if has_none else how(database)
        more = {"isolated": self._cluster.isolated(), "silent": self._cluster.silence is not None}

        def merged(tables: Mapping[str, Mapping[str, Detail]]) -> Value:
            found = {**tables, **statuses}  # A dataset that is not refused takes precedence.
            entries = {name: entry for name, entry in found.items() if isinstance(entry, dict)}
            return {name: {**entry, **more} for name, entry in self._names.with_disputes(entries).items()}

        async def tell() -> Value:
            return merged(await self._deciding.status(database))

        return merged({}) if is_dataset or not self._deciding.tables() else DeferredResult(tell)

    def _report(self, arguments: Arguments) -> DeferredResult:
        """Answer `report`, which a member asks that makes a verdict."""
        arguments.end()
        return DeferredResult(self._make_report, shared_by=("report",))

    def _verdict(self, arguments: Arguments) -> DeferredResult:
        options = arguments.options("database", "last")
        database, is_last = options.text("database"), options.flag("last")
        self._check_named(database)

        async def tell() -> Value:
            made = await (self._verdicts.make(fresh_s=LAST_S) if is_last else self._verdicts.make())
            if database is not None:
                made = made.about(database, is_table=self._names.is_table(database))
            return made.to_map()

        return DeferredResult(tell, shared_by=("verdict", database, is_last))

    def _refresh(self, arguments: Arguments) -> DeferredResult:
        database = arguments.text_or_nil("database")
        arguments.end()
        self._check_writes("builds")

        async def look() -> Value:
            seen = await self._datasets.rescan(database)
            if database is not None and database not in seen:
                self._check_known(database)
            return {name: list(versions) for name, versions in seen.items()}

        return DeferredResult(look, shared_by=("refresh", database))

    def _check_writes(self, verb: str) -> None:
        silence = self._cluster.silence
        if silence is not None:
            raise NotReady(f"this node is silent, and {verb} nothing until it can write: {silence}")

    def _order(self, arguments: Arguments) -> DeferredResult:
        """Answer `hold [database, version, {options}]` or `release [database, {options}]`."""
        database = arguments.text("database")
        version = arguments.text("version") if arguments.method == "hold" else None
        is_here = arguments.options("local").flag("local")
        if version is not None and not is_name(version):
            raise BadRequest(f"{version[:80]!r} is no name of a version: {NAMES}")
        if self._names.is_table(database):
            raise BadRequest(f"{database} is a table, which has no versions", {"database": database})
        self._check_known(database)
        self._check_writes("holds")

        async def order() -> Value:
            return {**await self._datasets.order(database, version, here=is_here)}

        return DeferredResult(order)

    def _backup(self, arguments: Arguments) -> DeferredResult:
        directory = PurePath(arguments.directory("directory"))
        arguments.end()

        async def copy() -> Value:
            return {**await self._tables.backup(directory)}

        return DeferredResult(copy)

    # Methods of the cluster

    def _hello(self, arguments: Arguments, caller: Caller) -> Value | ProvenUser:
        fields = arguments.map("hello")
        arguments.end()
        mine, theirs, prover = self._cluster.hello, hello.of_fields(fields), self._cluster.prover
        is_proven = self._prove(theirs.uuid)
        mine.check(theirs)
        if prover is not None:
            try:
                mine, has_key = prover.answer(mine, theirs, b"%d %d" % (caller.pump, caller.handle))
            except Unauthorized:
                self._access.note_refused(shown(caller.address), "hello")
                raise
            is_proven = is_proven or has_key
        self._words.hear(theirs.uuid, theirs.word)
        answer = mine._replace(seen=self._words.tell_seen(theirs.uuid)).to_map()
        return ProvenUser(PROVEN, answer) if is_proven else answer

    def _serves(self, arguments: Arguments) -> Value:
        database, wire_id, asker = arguments.text("database"), arguments.blob("identity"), arguments.text("node")
        arguments.end()
        return self._serves_what(database, wire_id, asker)

    def _gossip(self, arguments: Arguments) -> Value:
        request = arguments.blob("request")
        arguments.end()
        self._prove(None)
        return self._cluster.reply(request)

    def _members(self, arguments: Arguments) -> Value:
        arguments.end()
        return [*self._cluster.members()]

    def _children(self, arguments: Arguments) -> Value:
        path = arguments.path("path")
        return [*self._cluster.children(path, everything=arguments.options("all").flag("all"))]

    def _entries(self, arguments: Arguments) -> Value | DeferredResult:
        path = arguments.path("path")
        everything = arguments.options("all").flag("all")
        keys = self._cluster.keys(path, everything=everything)
        if len(keys) <= FEW_ENTRIES:
            return [*self._cluster.entries(path, keys, everything=everything)]

        async def list_them() -> Value:
            return [*await self._cluster.many_entries(path, keys, everything=everything)]

        return DeferredResult(list_them, shared_by=("entries", path, everything))

    def _check_named(self, database: str | None) -> None:
        """Refuse a name of neither a dataset nor a table; None is accepted."""
        if database is not None and not self._deciding.has(database):
            self._check_known(database)

    def _check_known(self, database: str) -> None:
        if not self._datasets.known(database):
            self._names.check_not_refused(database)
            raise UnknownDatabase(f"no database {database} here or at the source", {"database": database})


def _unknown(arguments: Arguments) -> Value:
    name = arguments.method
    instead = f": {WRITES_ARE}" if name in {"set", "del"} else ""  # Other stores call their writes by these names.
    raise UnknownMethod(f"there is no method {name} here{instead}", {"method": name})


def _make_packer() -> msgpack.Packer:
    # File names may be any bytes.  Bytes that are not UTF-8 are surrogates in Python, and go out as escapes.
    return msgpack.Packer(unicode_errors="backslashreplace")
