"""The methods that other nodes call to decide on tables.

register            [request]                                           an acceptor's reply
                    [request, stores seen]                              [an acceptor's reply, stores seen]
map_changes         [[register, generation, sequence, ballot], …], wait_ms   the maps that are newer here
map_page            register, start                                     a page of a map
metadata_transact   [register, [operation, …], timeout_ms]              [[id, outcome, code, message], …]
metadata_look       [register]                                          nil, once a quorum was read
metadata_invite     [cluster id]                                        the id of the store with which the node decides
metadata_describe   []                                                  the node's description of itself
table_sizes         [table id]                       [[partition, bytes, rows, requests/s], …] of replicas, packed
table_kept          [table id, first key, end or nil]                   quarantined replicas with these keys
table_divide        [table id, partition]                               true if the division was requested

`register/maps.py` has the answers of `map_changes` and `map_page`.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, final

import msgpack

from gossipkv.errors import BadRequest, GossipKVError, UnsupportedFormat
from gossipkv.register.maps import position_of
from gossipkv.register.messages import REGISTER_BYTES, decode_request
from gossipkv.register.metadata.operations import MAX_OPERATION_BYTES, MAX_OPERATIONS, decode_operation
from gossipkv.replication.replica.keys import KeyBounds
from gossipkv.settings.tables import MAX_DECISION_MS
from gossipkv.table.rpc.force_join import kept_here
from gossipkv.wire.results import DeferredResult, Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value

    Method = Callable[[Arguments], Value | DeferredResult | Later]

MAX_POSITIONS: Final = 1 << 16  # Maps in one question.
MAX_ID: Final = (1 << 64) - 1


@final
class PeerMethods:
    """The methods for other nodes."""

    def __init__(self, participant: MetadataParticipant) -> None:
        self._participant, self._service = participant, participant.service
        self._directory, self._words = participant.directory, participant.words
        self.methods: dict[bytes, Method] = {
            b"register": self._register,
            b"map_changes": self._changes,
            b"map_page": self._page,
            b"metadata_transact": self._transact,
            b"metadata_look": self._look,
            b"metadata_invite": self._invite,
            b"metadata_describe": self._describe,
            b"table_sizes": self._sizes,
            b"table_kept": self._kept,
            b"table_divide": self._divide,
        }

    def _register(self, arguments: Arguments) -> Later | DeferredResult:
        request, seen = arguments.blob("request"), arguments.blob_or_nil("session token", optional=True)
        arguments.end()
        metadata, _ = self._service.taking_part()
        with _formats_told():
            asked = decode_request(request)
        believed = seen
        if seen is not None and not self._words.counts(seen):
            metadata.registers.check_been(seen)
            believed = None

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

        return Later(begin) if metadata.lacking(asked) is None else DeferredResult(answer)

    def _changes(self, arguments: Arguments) -> DeferredResult:
        rows, wait_ms = arguments.rows("positions", MAX_POSITIONS), arguments.whole("wait_ms", MAX_DECISION_MS)
        arguments.end()
        positions = dict(position_of(row) for row in rows)
        metadata, _ = self._service.taking_part()
        return DeferredResult(partial(metadata.maps.changes, positions, wait_ms / 1000), may_end=True)

    def _page(self, arguments: Arguments) -> Value:
        register, start = _blob(arguments, "register", REGISTER_BYTES), arguments.blob("start")
        arguments.end()
        metadata, _ = self._service.taking_part()
        return metadata.maps.page(register, start)

    def _transact(self, arguments: Arguments) -> DeferredResult:
        register, sent = _blob(arguments, "register", REGISTER_BYTES), arguments.keys("operations", MAX_OPERATION_BYTES)
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


@contextlib.contextmanager
def _formats_told() -> Iterator[None]:
    """Raise BadRequest for a format of a request or record that this node cannot read."""
    try:
        yield
    except UnsupportedFormat as error:
        raise BadRequest(error.message, error.details) from error


def _blob(arguments: Arguments, what: str, size_bytes: int) -> bytes:
    value = arguments.blob(what)
    if len(value) != size_bytes:
        raise BadRequest(f"{arguments.method}: the {what} must be {size_bytes} bytes, not {len(value)}")
    return value
