"""Session tokens of requests and answers, and their compaction.

An entry is *settled* once every assigned replica has acknowledged it (`replication.maintenance.tombstone_gc`). No
request needs to wait for a settled entry, so written tokens omit it. The config id of the map takes its place: by an
older map there may be one more replica, which lacks the write. A pseudo entry, LEFT_OUT, tells the oldest config id of
such omissions. Entries of dropped tables, and of assignments that the map does not name, are omitted as well.

A node knows the settled entries of its own partitions. For a long token it first asks other nodes (`token_survey`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import TooLarge
from gossipkv.placement.partition import LEFT_OUT
from gossipkv.replication.maintenance.tombstone_gc import settled
from gossipkv.replication.replica import clock, record
from gossipkv.table.records.router import together
from gossipkv.table.session.readiness import UNSEEN
from gossipkv.table.session.token import (
    ENTRY_BYTES,
    NOTHING,
    TableSeen,
    decode,
    encode,
    encode_body,
    left_out,
    merged,
    only,
    seen_in,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica.token_keys import TokenKeys
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.records.router import PartitionRoute, Router
    from gossipkv.table.session.token import Token

RETRY_S: Final = 1.0  # Interval between surveys of one table.
REPORTED_S: Final = 60.0  # Answers expire then: merged answers are only as new as the oldest one.
MAX_ASKED: Final = 8  # Groups of partitions per survey, those with most entries first.
MAX_READY: Final = 1024
MAX_NAMED: Final = 8  # Nodes that an error names at most.


@final
class TokenCompactor:
    """Reads, compacts and writes the tokens of this node's requests."""

    def __init__(self, routing: Router, participant: MetadataParticipant, max_token: int) -> None:
        self._routing = routing
        self._service, self._poll = participant.service, participant.poll
        self._max_token = max_token
        self._reported: Token = NOTHING  # The settled clocks that other nodes reported.
        self._ready: dict[
            tuple[bytes, int, bytes], bytes
        ] = {}  # Tokens of a single entry: most reads give the same few.
        self._ready_keys: TokenKeys | None = None  # The keys that sealed them.
        self._asked_at: dict[bytes, float] = {}  # The time of the last survey, by table.
        self._reported_since: dict[bytes, float] = {}  # The time of the oldest report in `_reported`, by table.

    def read(self, data: bytes) -> Token:
        """Decode the token of a request. Raises BadRequest, NotReady."""
        return decode(data, self._service.token_keys) if data else NOTHING

    def write(self, token: Token, *seen: Token) -> bytes:
        """Encode the token of a session with that token that has seen more, without settled entries."""
        if not token and len(seen) == 1 and len(seen[0]) == 1:
            ((table, (config, entry)),) = seen[0].items()
            origin = int.from_bytes(entry[:8], "big") if len(entry) == ENTRY_BYTES else 0
            replica = self._service.replicating().replicas.of_origin.get(origin)
            if replica is not None:
                return self._write_entry(table, config, entry, replica)
        return encode(self._without_settled(merged(token, *seen)), self._service.token_keys)

    def write_read(self, token: Token, replica: Replica, data: bytes | None) -> bytes:
        """Encode the token of a session with that token after it has read a replica's record; None: there is none."""
        table, config, entry = replica.partition[0], replica.taken_config, b""
        if data is not None:
            entry = record.dot(data)
            is_former = int.from_bytes(entry[:8], "big") not in replica.assigned
            if token or is_former or record.dependencies(data):
                return self.write(token, seen_in(table, config, (data,)))
        elif token:
            return self.write(token, {table: TableSeen(config, b"")})
        return self._write_entry(table, config, entry, replica)

    def _write_entry(self, table: bytes, config: int, entry: bytes, replica: Replica) -> bytes:
        """Encode the token of a session that has seen one entry of a replica's present assignments, or none."""
        is_settled = not entry
        if entry:
            replication = self._service.replication
            assert replication is not None, "the replica is one of its own"
            seen = settled_of(replication.replicas, replica)
            if is_settled := clock.covers(seen.clock, entry):  # The config id takes the place of the entry.
                config, entry = max(config, seen.config), clock.named(seen.clock, (LEFT_OUT,))
        keys = self._service.token_keys
        if keys is not self._ready_keys:
            self._ready_keys, self._ready = keys, {}
        ready = self._ready.get((table, config, entry)) if is_settled else None
        if ready is None:
            ready = encode({table: TableSeen(config, entry)}, keys)
            if is_settled:
                self._ready = self._ready if len(self._ready) < MAX_READY else {}
                self._ready[table, config, entry] = ready
        return ready

    def to_node(self, token: Token) -> bytes:
        """Encode a token's body for another node, without settled entries."""
        return encode_body(self._without_settled(token)) if token else b""

    def kept(self, token: Token) -> bytes:
        """Encode a token as dependencies of a record; LEFT_OUT goes, since no reader of the record has seen that."""
        left = only(self._without_settled(token), lambda _, origin, __: origin != LEFT_OUT) if token else NOTHING
        return encode_body(left)

    def _without_settled(self, token: Token) -> Token:
        replication = self._service.replicating()
        replicas, left = replication.replicas, dict[bytes, TableSeen]()
        for table, seen in token.items():
            if table not in replication.maps and self._poll.has_ended(table):
                self._forget(table)
                continue
            config, omitted, kept = seen.config, b"", list[tuple[int, int]]()
            for origin, count in clock.entries(seen.clock):
                replica = replicas.of_origin.get(origin)
                whole = self._reported.get(table, UNSEEN) if replica is None else settled_of(replicas, replica)
                if origin == LEFT_OUT or count > clock.counter(whole.clock, origin):
                    kept.append((origin, count))
                else:  # The config id takes the place of the entry.
                    config = max(config, whole.config)
                    omitted = clock.merge(omitted, clock.named(whole.clock, (LEFT_OUT,)))
            left[table] = TableSeen(config, clock.merge(clock.of(kept), omitted)) if omitted else seen
        return left

    def _forget(self, table: bytes) -> None:
        """Forget a dropped table."""
        self._reported = {other: seen for other, seen in self._reported.items() if other != table}
        self._asked_at.pop(table, None)
        self._reported_since.pop(table, None)

    def _without_ended(self, token: Token) -> Token:
        """Drop entries that a map at least as new does not name: they have ended, and all replicas have them."""
        routes = {table: route for table, route in self._routing.routes(token) if route.config >= token[table].config}
        ended = {table: TableSeen(route.config, left_out(token[table].config)) for table, route in routes.items()}
        kept = {table: {LEFT_OUT, *route.origins()} for table, route in routes.items()}
        left = only(token, lambda table, origin, _: table not in routes or origin in kept[table])
        return merged(left, {table: ended[table] for table in ended if left[table].clock != token[table].clock})

    def compacted(self, token: Token) -> Token:
        """Return a long token without ended and settled entries, as far as this node knows these."""
        return self._without_settled(self._without_ended(token))

    def to_ask(self, token: Token) -> list[tuple[bytes, Sequence[PartitionRoute]]]:
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

    def hear(self, table: bytes, seen: TableSeen) -> None:
        """Take what another node reports as settled."""
        now = self._service.replicating().now()
        if now >= self._reported_since.setdefault(table, now) + REPORTED_S:
            self._reported_since[table] = now
            self._reported = {other: kept for other, kept in self._reported.items() if other != table}
        self._reported = merged(self._reported, {table: seen})
        self._service.note_reports(table)

    def surveyed(self, token: Token) -> Token:
        """Return a token after its survey, without settled entries. Raises TooLarge."""
        token = self._without_settled(token)
        if size(token) > self._max_token:
            down = self._routing.down(self._nodes_of(token))
            nodes = ", ".join(down[:MAX_NAMED]) or "none"
            raise TooLarge(
                f"the session's token would need {size(token):,} bytes for writes that are not on all replicas yet; "
                f"the limit is {self._max_token:,}; replicas that are down: {nodes}",
                {"limit": self._max_token, "size": size(token), "down": [*down[:MAX_NAMED]]},
            )
        return token

    def _nodes_of(self, token: Token) -> set[bytes]:
        """Return the hosts of all partitions that the token names."""
        nodes: set[bytes] = set()
        for table, route in self._routing.routes(token):
            origins = route.origins()
            for origin, _ in clock.entries(token[table].clock):
                if origin in origins:
                    nodes |= set(origins[origin].hosts)
        return nodes


def settled_of(replicas: ReplicaSet, replica: Replica) -> TableSeen:
    """Return the clock up to which all replicas of a partition have the writes of its present assignments.

    Former assignments are excluded: after a split several partitions name them. They go when no map names them.
    """
    if isinstance(replica.settled, TableSeen):
        return replica.settled
    whole = clock.named(settled(replicas, replica), replica.assigned)
    seen = replica.settled = TableSeen(replica.config, clock.merge(whole, left_out(replica.config)))
    return seen
