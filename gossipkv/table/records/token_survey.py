"""Surveys for long tokens: a node asks the hosts of partitions which entries are settled.

A table is asked about at most once a second, the partitions with most entries first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.errors import GossipKVError, ProtocolError
from gossipkv.table.records.forward import HostRequest, RecordRequest, held
from gossipkv.table.records.router import packed_ids, unpacked_ids
from gossipkv.table.records.token_compaction import settled_of
from gossipkv.table.session.readiness import UNSEEN, WantedClock, wanted_of
from gossipkv.table.session.token import NOTHING, TableSeen, decode_body, encode_body, merged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.table.records.forward import RecordServices, T
    from gossipkv.table.session.token import Token
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value


def settled_here(services: RecordServices, arguments: Arguments) -> Value:
    """`table_settled [table id, partitions]`: the settled clock of these partitions, as a token body."""
    table, partitions = arguments.blob("table"), unpacked_ids(arguments.blob("partitions"))
    wanted_of(arguments, 0.0)  # Every request between hosts ends with these arguments.
    return encode_body({table: _settled_among(services.service.replicating().replicas, table, partitions)})


@final
class SettledSurvey(RecordRequest[TableSeen]):
    """The survey for one long token; `complete` gets the token without settled entries, or TooLarge."""

    def __init__(self, request: RecordRequest[T], token: Token, complete: Completion[Token]) -> None:
        self.services, self.replication = request.services, request.services.service.replicating()
        self.local, self.wanted, self.table = False, WantedClock(NOTHING, 0.0, request.wanted.waits), b""
        self._request, self._token, self._complete = request, token, complete
        self._unanswered = 1

    @property
    def deadline(self) -> float:  # type: ignore[override]  # It changes if the client leaves.
        """The deadline of the client's request."""
        return self._request.deadline

    def begin(self) -> None:
        """Ask the hosts of the partitions with most entries."""
        groups = self.services.tokens.to_ask(self._token)
        self._unanswered += len(groups)
        for table, places in groups:
            _SettledQuestion(self, table, [place.partition for place in places], places[0].hosts).begin()
        self._one_done()

    def part_done(self, part: HostRequest[TableSeen], result: TableSeen | GossipKVError) -> None:
        """Take an answer; a later survey asks again for what is missing."""
        if not isinstance(result, GossipKVError):
            self.services.tokens.hear(part.table, result)
        self._one_done()

    def _one_done(self) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            try:
                token = self.services.tokens.surveyed(self._token)
            except GossipKVError as error:
                self._complete(error)
            else:
                self._complete(token)


@final
class _SettledQuestion(HostRequest[TableSeen]):
    """The question what is settled of partitions that have the same hosts."""

    method = "table_settled"

    def __init__(
        self, request: SettledSurvey, table: bytes, partitions: Sequence[int], nodes: tuple[bytes, ...]
    ) -> None:
        super().__init__(request, nodes)
        self.table, self._partitions = table, partitions

    def _what(self) -> str:
        return "the settled writes"

    def _params(self) -> list[Value]:
        return [self.table, packed_ids(self._partitions)]

    def _parsed(self, answer: Value) -> TableSeen:
        if not isinstance(answer, bytes):
            raise ProtocolError("settled writes must be the body of a token")
        return decode_body(answer).get(self.table, UNSEEN)

    def encoded(self, result: TableSeen) -> Value:
        """Return the body of a token."""
        return encode_body({self.table: result})

    def _here(self) -> None:
        self.here_done(_settled_among(self.request.replication.replicas, self.table, self._partitions))


def _settled_among(replicas: ReplicaSet, table: bytes, partitions: Sequence[int]) -> TableSeen:
    """Return the merged settled clock of local replicas. Raises NotServed: one is not here."""
    here = [settled_of(replicas, held(replicas, table, partition)) for partition in partitions]
    return merged(*({table: seen} for seen in here)).get(table, UNSEEN)
