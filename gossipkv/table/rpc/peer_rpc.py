"""The methods that other nodes call to decide on tables.

register            [request]                                           an acceptor's reply
                    [request, stores seen, offer …]                     [an acceptor's reply, stores seen]
metadata_hold       [register, offer …]                                 [store, root] once the offer is held
metadata_pages      [register, [name, …]]                               [page or nil, …]
metadata_transact   [register, [operation, …], timeout_ms]              [[id, outcome, code, message], …]
metadata_look       [register]                                          nil, once a quorum was read
metadata_known      [register, {config, wait_ms}]                       the node's hint, once the config id is reached
metadata_head       [register]                                          the whole known head; empty if unknown
metadata_invite     [cluster id]                                        the id of the store with which the node decides
metadata_describe   []                                                  the node's description of itself
table_sizes         [table id]                       [[partition, bytes, rows, requests/s], …] of replicas, packed
table_kept          [table id, first key, end or nil]                   quarantined replicas with these keys
table_divide        [table id, partition]                               true if the division was requested
metadata_discover   [node, table id, config, [[partition, first key, end or nil], …]]   SERVE, LOAD or UNLOAD for each

An offer has the pages of a value to be accepted, or is absent: source, base or nil, root, config, [page, …].
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, final

import msgpack
import trio

from gossipkv.errors import BadRequest, GossipKVError, NotReady, UnknownDatabase, UnsupportedFormat
from gossipkv.register.configuration import UUID_BYTES
from gossipkv.register.messages import REGISTER_BYTES, decode_request
from gossipkv.register.metadata.discovery import discover
from gossipkv.register.metadata.ledger import Offer
from gossipkv.register.metadata.operations import decode_operation
from gossipkv.register.metadata.pages import (
    MAX_CONFIG,
    MAX_OPERATIONS,
    MAX_PAGE_BYTES,
    NAME_BYTES,
    name_of,
)
from gossipkv.register.metadata.tree import ChangedPages
from gossipkv.replication.replica.keys import KeyBounds
from gossipkv.settings.tables import MAX_DECISION_MS
from gossipkv.table.rpc.force_join import kept_here
from gossipkv.wire.results import DeferredResult, Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.register.metadata.known import KnownMap
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value

    Method = Callable[[Arguments], Value | DeferredResult | Later]

MAX_PAGES: Final = 1024  # Pages of one transaction.
MAX_ID: Final = (1 << 64) - 1
MAX_STORED: Final = 1 << 17  # Partitions in one `metadata_discover`.


@final
class PeerMethods:
    """The methods for other nodes."""

    def __init__(self, participant: MetadataParticipant) -> None:
        self._participant, self._service = participant, participant.service
        self._directory, self._words = participant.directory, participant.words
        self.methods: dict[bytes, Method] = {
            b"register": self._register,
            b"metadata_hold": self._hold,
            b"metadata_pages": self._pages,
            b"metadata_transact": self._transact,
            b"metadata_look": self._look,
            b"metadata_known": self._hint,
            b"metadata_head": self._head,
            b"metadata_invite": self._invite,
            b"metadata_describe": self._describe,
            b"table_sizes": self._sizes,
            b"table_kept": self._kept,
            b"table_divide": self._divide,
            b"metadata_discover": self._discover,
        }

    def _register(self, arguments: Arguments) -> Later | DeferredResult:
        request, seen = arguments.blob("request"), arguments.blob_or_nil("session token", optional=True)
        offer = None if arguments.is_over else _offer(arguments)
        arguments.end()
        metadata, _ = self._service.taking_part()
        with _formats_told():
            asked = decode_request(request)
        believed = seen
        if seen is not None and not self._words.counts(seen):
            metadata.registers.check_been(seen)
            believed = None
        if offer is not None:
            metadata.append(asked.register, offer)

        def told(reply: bytes) -> Value:
            return reply if seen is None else [reply, metadata.registers.tell(asked.register)]

        async def answer() -> Value:
            with _formats_told():
                return told(await metadata.answer(request, believed))

        def begin(complete: Completion[Value]) -> None:
            with _formats_told():
                metadata.registers.answer_soon(
                    request,
                    believed,
                    lambda reply: complete(reply if isinstance(reply, GossipKVError) else told(reply)),
                )

        # Without a task, the record is appended with the offer's pages, so that one sync covers both.
        return Later(begin) if metadata.lacking(asked) is None else DeferredResult(answer)

    def _hold(self, arguments: Arguments) -> DeferredResult:
        register, offer = _blob(arguments, "register", REGISTER_BYTES), _offer(arguments)
        arguments.end()
        metadata, _ = self._service.taking_part()

        async def hold() -> Value:
            return [*await metadata.hold(register, offer)]

        return DeferredResult(hold)

    def _pages(self, arguments: Arguments) -> Value:
        register, names = _blob(arguments, "register", REGISTER_BYTES), arguments.keys("names", NAME_BYTES)
        arguments.end()
        metadata, _ = self._service.taking_part()
        return [*metadata.pages(register, names)]

    def _transact(self, arguments: Arguments) -> DeferredResult:
        register, sent = _blob(arguments, "register", REGISTER_BYTES), arguments.keys("operations", MAX_PAGE_BYTES)
        timeout_ms = arguments.whole("timeout_ms", MAX_DECISION_MS)
        arguments.end()
        if not 1 <= len(sent) <= MAX_OPERATIONS:
            raise BadRequest(f"a request has 1 to {MAX_OPERATIONS} operations, not {len(sent)}")
        operations = [decode_operation(packed) for packed in sent]
        metadata, _ = self._service.taking_part()

        async def transact() -> Value:
            answers = await metadata.transact(register, operations, timeout_ms / 1000)
            return [[answer.operation, int(answer.outcome), answer.code, answer.message] for answer in answers]

        return DeferredResult(transact)

    def _look(self, arguments: Arguments) -> DeferredResult:
        register = _blob(arguments, "register", REGISTER_BYTES)
        arguments.end()
        metadata, _ = self._service.taking_part()

        async def look() -> None:
            await metadata.quorum_read(register)

        return DeferredResult(look)

    def _hint(self, arguments: Arguments) -> Value | DeferredResult:
        register, options = _blob(arguments, "register", REGISTER_BYTES), arguments.options("config", "wait_ms")
        config, wait_ms = (options.number("config", most=MAX_CONFIG), options.number("wait_ms", most=MAX_DECISION_MS))
        if not config or not wait_ms:
            return self._service.known_of(register)
        metadata, _ = self._service.taking_part()

        async def wait() -> Value:
            with trio.move_on_after(wait_ms / 1000), contextlib.suppress(UnknownDatabase):
                await metadata.heads.reached(register, config)
            return self._service.known_of(register)

        return DeferredResult(wait, may_end=True)

    def _head(self, arguments: Arguments) -> Value:
        register = _blob(arguments, "register", REGISTER_BYTES)
        arguments.end()
        metadata, _ = self._service.taking_part()
        known_map = metadata.known.get(register)
        return b"" if known_map is None or known_map.head.ended else known_map.encode()

    def _invite(self, arguments: Arguments) -> DeferredResult:
        cluster_id = arguments.blob("cluster id")
        arguments.end()
        return DeferredResult(partial(self._participant.invited, cluster_id))

    def _describe(self, arguments: Arguments) -> Value:
        arguments.end()
        return self._directory.described()

    def _sizes(self, arguments: Arguments) -> DeferredResult:
        table = _blob(arguments, "table", REGISTER_BYTES)
        arguments.end()
        load_stats = self._service.controllers().load_stats

        async def measure() -> Value:
            packed: bytes = msgpack.packb(await load_stats.rows(table))
            return packed

        return DeferredResult(measure, may_end=True)

    def _divide(self, arguments: Arguments) -> DeferredResult:
        table, partition = _blob(arguments, "table", REGISTER_BYTES), arguments.whole("partition", MAX_ID)
        arguments.end()
        return DeferredResult(partial(self._service.controllers().splitter.divide, table, partition))

    def _kept(self, arguments: Arguments) -> Value:
        table = _blob(arguments, "table", REGISTER_BYTES)
        bounds = KeyBounds(arguments.blob("first key"), arguments.blob_or_nil("end"))
        arguments.end()
        return kept_here(self._service.replicating(), table, bounds)

    def _discover(self, arguments: Arguments) -> DeferredResult:
        node, table = _blob(arguments, "node", UUID_BYTES), _blob(arguments, "table", REGISTER_BYTES)
        config, rows = arguments.whole("config", MAX_CONFIG), arguments.rows("partitions", MAX_STORED)
        arguments.end()
        stored: dict[int, tuple[bytes, bytes | None]] = {}
        for row in rows:
            match row:
                case [int(partition), bytes(start), None | bytes() as end]:
                    stored[partition] = start, end
                case _:
                    raise BadRequest("metadata_discover: a partition must be [id, first key, end or nil]")
        metadata, _ = self._service.taking_part()

        async def tell() -> Value:
            known_map: KnownMap | None = metadata.known.get(table)
            if known_map is None or known_map.head.config < config:
                known_map = await metadata.quorum_read(table)
            if known_map.head.config < config or metadata.is_behind(table):
                raise NotReady(f"this node knows config {known_map.head.config} of the map, and there is a newer one")
            found: list[Value] = []
            for part in discover(metadata.tree(table), node, stored):
                targets: list[Value] = [[target.node, target.partition, target.assignment] for target in part.targets]
                found.append([part.partition, part.key, part.assignment, part.duty.value, targets])
            return [known_map.head.config, found]

        return DeferredResult(tell, may_end=True)


@contextlib.contextmanager
def _formats_told() -> Iterator[None]:
    """Raise BadRequest for a format of a request or record that this node cannot read."""
    try:
        yield
    except UnsupportedFormat as error:
        raise BadRequest(error.message, error.details) from error


def _offer(arguments: Arguments) -> Offer:
    source, base = _blob(arguments, "source", UUID_BYTES), arguments.blob_or_nil("base")
    root, config = _blob(arguments, "root", NAME_BYTES), arguments.whole("config", MAX_CONFIG)
    pages = arguments.keys("pages", MAX_PAGE_BYTES)
    if len(pages) > MAX_PAGES:
        raise BadRequest(f"a change has at most {MAX_PAGES} pages, not {len(pages)}")
    return Offer(source, base, ChangedPages(root, {name_of(page): page for page in pages}), config)


def _blob(arguments: Arguments, what: str, size_bytes: int) -> bytes:
    value = arguments.blob(what)
    if len(value) != size_bytes:
        raise BadRequest(f"{arguments.method}: the {what} must be {size_bytes} bytes, not {len(value)}")
    return value
