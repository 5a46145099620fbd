"""Session tokens of requests and answers, and their compaction.

An entry is *settled* once every assigned replica has acknowledged it (`replication.maintenance.tombstone_gc`). No
request needs to wait for a settled entry, so written tokens omit it. The config id of the map takes its place: by an
older map there may be one more replica, which lacks the write. A pseudo entry, LEFT_OUT, tells the oldest config id of
such omissions. Entries of dropped tables, and of assignments that the map does not name, are omitted as well.

A node knows the settled entries of its own partitions. For a long token it first asks other nodes (`table_settled`),
at most once a second for each table.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import GossipKVError, ProtocolError, TooLarge
from gossipkv.placement.partition import LEFT_OUT
from gossipkv.replication.maintenance.tombstone_gc import settled
from gossipkv.replication.replica import clock
from gossipkv.table.records.forward import ForwardRequest, held
from gossipkv.table.records.route import packed_ids, together, unpacked_ids
from gossipkv.table.session.readiness import UNSEEN, WantedClock, wanted_of
from gossipkv.table.session.token import (
    NOTHING,
    PART,
    TableSeen,
    decode,
    decode_body,
    encode,
    encode_body,
    left_out,
    merged,
    only,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.replication.shell import OnAnswer
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.records.forward import Forwarder
    from gossipkv.table.records.route import PartitionRoute
    from gossipkv.table.records.router import Router
    from gossipkv.table.session.readiness import ReplicaReadiness
    from gossipkv.table.session.token import Token
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import OnResult
    from gossipkv.wire.rpc import Value

LONG_BYTES: Final = 1 << 10  # Tokens above this size are compacted before their request.
RETRY_S: Final = 1.0  # Interval between surveys of one table.
REPORTED_S: Final = 60.0  # Answers expire then: merged answers are only as new as the oldest one.
MAX_ASKED: Final = 8  # Groups of partitions per survey, those with most entries first.
MAX_NAMED: Final = 8  # Nodes that an error names at most.


@final
class TokenCompactor:
    """Reads, compacts and writes the tokens of this node's requests."""

    def __init__(
        self, routing: Router, forwarding: Forwarder, participant: MetadataParticipant, max_token: int
    ) -> None:
        self._routing = routing
        self._forwarding = forwarding
        self._service, self._poll = participant.service, participant.poll
        self._max_token = max_token
        self._reported: Token = NOTHING  # The settled clocks that other nodes reported.
        self._asked_at: dict[bytes, float] = {}  # The time of the last survey, by table.
        self._reported_since: dict[bytes, float] = {}  # The time of the oldest report in `_reported`, by table.

    def read(self, data: bytes) -> Token:
        """Decode the token of a request. Raises BadRequest if it is malformed."""
        return decode(data, self._service.register) if data else NOTHING

    def write(self, *tokens: Token) -> bytes:
        """Encode the token of an answer, without settled entries."""
        return encode(self._without_settled(merged(*tokens)), self._service.register)

    def to_node(self, token: Token) -> bytes:
        """Encode a token's body for another node, without settled entries."""
        return encode_body(self._without_settled(token)) if token else b""

    def kept(self, token: Token) -> bytes:
        """Encode a token as dependencies of a record; LEFT_OUT goes, since no reader of the record has seen that."""
        left = only(self._without_settled(token), lambda _, origin, __: origin != LEFT_OUT) if token else NOTHING
        return encode_body(left)

    def _without_settled(self, token: Token) -> Token:
        replication = self._service.replicating()
        replicas = replication.replicas
        for table in [other for other in token if other not in replication.maps and self._poll.has_ended(other)]:
            token = {other: seen for other, seen in token.items() if other != table}
            self._reported = {other: seen for other, seen in self._reported.items() if other != table}
            self._asked_at.pop(table, None)
            self._reported_since.pop(table, None)
        by: dict[bytes, TableSeen] = {}  # By table: the config and the LEFT_OUT entry that replace omitted entries.

        def keep(table: bytes, origin: int, count: int) -> bool:
            replica = replicas.of_origin.get(origin)
            config, whole = self._reported.get(table, UNSEEN) if replica is None else _settled(replicas, replica)
            if origin == LEFT_OUT or count > clock.counter(whole, origin):
                return True
            had = by.get(table, UNSEEN)
            by[table] = TableSeen(max(config, had.config), clock.merge(had.clock, clock.named(whole, (LEFT_OUT,))))
            return False

        return merged(only(token, keep), by)

    def _without_ended(self, token: Token) -> Token:
        """Drop entries that a map at least as new does not name: they have ended, and all replicas have them."""
        routes = {table: route for table, route in self._routing.routes(token) if route.config >= token[table].config}
        ended = {table: TableSeen(route.config, left_out(token[table].config)) for table, route in routes.items()}
        kept = {table: {LEFT_OUT, *route.origins()} for table, route in routes.items()}
        left = only(token, lambda table, origin, _: table not in routes or origin in kept[table])
        return merged(left, {table: ended[table] for table in ended if left[table].clock != token[table].clock})

    def begin(self, token: Token, deadline: float, do: Callable[[Token], object], on_result: OnResult) -> None:
        """Call `do` with the token, after a survey if the token is long; then errors of `do` go to `on_result`."""
        if not is_short(token):
            token = self._without_ended(token)
        if is_short(token) or is_short(token := self._without_settled(token)):
            do(token)
            return
        asking = _SettledSurvey(partial(self._go_on, token, do), on_result)
        for table, places in self._to_ask(token):
            partitions = [place.partition for place in places]
            asking.left += 1
            self._forwarding.begin(
                ForwardRequest(
                    what="what is settled",
                    nodes=places[0].hosts,
                    here=partial(self._give_here, table, partitions),
                    method="table_settled",
                    params=[table, packed_ids(partitions)],
                    size_bytes=0,
                    deadline=deadline,
                    on_done=partial(self._answered, table, asking),
                    wanted=WantedClock(NOTHING, 0.0),
                )
            )
        asking.one_done()

    def _to_ask(self, token: Token) -> list[tuple[bytes, Sequence[PartitionRoute]]]:
        """Return the groups of partitions with most entries, each with its table."""
        now = self._service.replicating().now()
        groups: list[tuple[int, bytes, Sequence[PartitionRoute]]] = []
        for table, route in self._routing.routes(token):
            if now < self._asked_at.get(table, -RETRY_S) + RETRY_S:
                continue
            self._asked_at[table] = now
            origins = route.origins()
            found = Counter(place for origin, _ in clock.entries(token[table].clock) if (place := origins.get(origin)))
            groups += ((sum(found[place] for place in group), table, group) for group in together(found))
        groups.sort(key=lambda group: -group[0])
        return [(table, group) for _, table, group in groups[:MAX_ASKED]]

    def _answered(
        self, table: bytes, asking: _SettledSurvey, result: Value, error: GossipKVError | None, node: bytes
    ) -> None:
        del node
        if error is None and isinstance(result, bytes):
            now = self._service.replicating().now()
            if now >= self._reported_since.setdefault(table, now) + REPORTED_S:
                self._reported_since[table] = now
                self._reported = {other: seen for other, seen in self._reported.items() if other != table}
            with contextlib.suppress(ProtocolError):  # A later survey asks again.
                self._reported = merged(self._reported, {table: decode_body(result).get(table, UNSEEN)})
        asking.one_done()

    def _go_on(self, token: Token, do: Callable[[Token], object]) -> None:
        token = self._without_settled(token)
        if size(token) > self._max_token:
            down = self._routing.down(self._nodes_of(token))
            who = ", ".join(down[:MAX_NAMED]) or "no node"
            raise TooLarge(
                f"the session has seen more than a token holds that is not on all replicas yet; {who} of them is down",
                {"limit": self._max_token, "size": size(token), "down": [*down[:MAX_NAMED]]},
            )
        do(token)

    def _nodes_of(self, token: Token) -> set[bytes]:
        """Return the hosts of all partitions that the token names."""
        nodes: set[bytes] = set()
        for table, route in self._routing.routes(token):
            origins = route.origins()
            for origin, _ in clock.entries(token[table].clock):
                if origin in origins:
                    nodes |= set(origins[origin].hosts)
        return nodes

    # -- for other nodes ---------------------------------------------------------------------------------------------

    def settled_here(self, arguments: Arguments) -> Value:
        """`table_settled [table id, partitions]`: the settled clock of these partitions, as a token body."""
        table, partitions = arguments.blob("table"), unpacked_ids(arguments.blob("partitions"))
        wanted_of(arguments, 0.0)  # Every request between hosts ends with these arguments.
        return self._settled(table, partitions)

    def _give_here(self, table: bytes, partitions: Sequence[int], on_answer: OnAnswer) -> None:
        on_answer(self._settled(table, partitions), None)

    def _settled(self, table: bytes, partitions: Sequence[int]) -> bytes:
        replicas = self._service.replicating().replicas
        here = [held(replicas, table, partition) for partition in partitions]
        return encode_body(merged(*({table: _settled(replicas, replica)} for replica in here)))


@final
class _SettledSurvey:
    """The survey for one long token."""

    def __init__(self, do: Callable[[], object], on_result: OnResult) -> None:
        self.left = 1
        self._do = do
        self._on_result = on_result

    def one_done(self) -> None:
        """Count an answer, or the end of asking; after the last one, go on with the request."""
        self.left -= 1
        if not self.left:
            try:
                self._do()
            except GossipKVError as error:
                self._on_result(error)


class Sessions(NamedTuple):
    """The session services that the methods share."""

    readiness: ReplicaReadiness
    compactor: TokenCompactor


def _settled(replicas: ReplicaSet, replica: Replica) -> TableSeen:
    """Return the clock up to which all replicas of a partition have the writes of its present assignments.

    Former assignments are excluded: after a split several partitions name them. They go when no map names them.
    """
    whole = clock.named(settled(replicas, replica), replica.assigned)
    return TableSeen(replica.config, clock.merge(whole, left_out(replica.config)))


def is_short(token: Token) -> bool:
    """Return True if a token needs no compaction."""
    return size(token) <= LONG_BYTES


def size(token: Token) -> int:
    """Return the size of a token's body in bytes."""
    return sum(PART.size + len(seen.clock) for seen in token.values())
