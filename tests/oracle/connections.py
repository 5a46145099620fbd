"""All connections of a node in plain Python: their answers, backpressure, memory, timeouts and counters.

Written from docs/users/wire.md and the invariants at the top of `connection/connections.pyx`. A connection parses its
input again from the first byte of a message, keeps everything in plain lists, and decides nothing early.

The bytes of an answer matter, because limits count them: results are packed by msgpack, and `wording` holds the
errors.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgpack

from tests.oracle import msgpack_scanner
from tests.oracle.connection import Conversation, Databases

if TYPE_CHECKING:
    from collections.abc import Callable

Wording = dict[str, list[object]]  # By reason: `[code, message, details]`; by protocol: `[bytes written]`.


# The reasons of the scanner's refusals, and the counter of each.
FRAMES = {
    "size": "frames_too_large",
    "depth": "frames_too_deep",
    "elements": "frames_too_many_elements",
    "extension": "frames_malformed",
    "reserved": "frames_malformed",
}


def pack(msgid: int, error: object, result: object) -> bytes:
    """Return a response; names in the response are text, and only values are bytes."""
    return msgpack.packb([1, msgid, error, result])


def limited(code: object, message: object, limit: int, size: int | None = None) -> list[object]:
    """Return the error of a limit, whose message and details name the limit and, if it is known, the size."""
    words = str(message).partition(" (limit ")[0]
    if size is None:
        return [code, f"{words} (limit {limit})", {"limit": limit}]
    return [code, f"{words} (limit {limit}, given {size})", {"limit": limit, "size": size}]


# The grace of a silent connection in a crowd, the interval between two scans for such connections, the most at once.
PROOF_MS, LOOK_MS, MAX_SENT_AWAY = 10_000, 500, 64
LEAVE_MS = 500  # How long a peer that sends no more waits for its next answer.


@dataclass(frozen=True)
class Limits:
    max_frame: int
    max_depth: int
    max_elements: int
    max_in_flight: int
    max_in_flight_total: int
    max_queued: int
    max_held: int
    max_connections: int
    max_connections_per_address: int
    frame_timeout_ms: int
    output_timeout_ms: int
    idle_timeout_ms: int


@dataclass
class Connection(Conversation):
    """One connection; `out` has the answers of this turn, before they join the output for the peer."""

    node: Node = field(kw_only=True)
    handle: int = field(kw_only=True)
    address: bytes = field(kw_only=True)
    begun_ms: int = field(kw_only=True)
    input: bytes = b""
    output: bytes = b""
    out: bytes = b""
    finishing: bool = False
    reason: str = "by_peer"
    doomed: bool = False
    held: bool = False
    runnable: bool = False
    active_ms: int = 0
    partial_ms: int | None = None
    blocked_ms: int | None = None

    # Results of a message

    def answer(self, msgid: int, result: object) -> None:
        """Pack a result as the node does: the version is text."""
        counts = self.node.counts
        if isinstance(result, list) and isinstance(result[-1], dict):
            value, version, explained = result
            counts.update(gets=1, keys_read=1)
            who = {key.decode(): node.decode() for key, node in explained.items()}
            result = [value, version.decode(), who]
        elif isinstance(result, list):
            *found, version = result
            many = isinstance(found[0], list)
            if len(found) == 2:
                counts.update(scans=1, scan_slices=1, partitions_searched=1, records_scanned=len(found[0]))
            else:
                counts["get_manys" if many else "gets"] += 1
                counts["keys_read"] += len(found[0]) if many else 1
            result = [*found, version.decode()]
        else:
            counts["pings"] += 1
            result = result.decode()
        self.out += pack(msgid, None, result)

    def error(self, msgid: int, code: str, why: str) -> None:
        """Answer with the node's words; the code is this oracle's."""
        words = self.node.wording[why]
        assert words[0] == code
        self.node.counts["duplicate_ids"] += why == "id in flight"
        self.node.counts["bad_requests"] += why == "no request"
        self.out += pack(msgid, words, None)

    def turn_away(self, protocol: str) -> None:
        (words,) = self.node.wording[protocol]
        assert isinstance(words, bytes)
        self.out += words

    def hand_off(self, msgid: int, method: bytes, params: bytes) -> None:
        """Hand a request off; it is in flight until its reply, and refused when too many are in flight in all."""
        if self.node.in_flight >= self.node.limits.max_in_flight_total:
            self.node.counts["overloaded"] += 1
            code, message, _ = self.node.wording["overloaded"]
            self.out += pack(msgid, limited(code, message, self.node.limits.max_in_flight_total), None)
            return
        if not self.node.make_room(self, len(method) + len(params) - len(self.input)):
            self.doom("memory")
            return
        self.in_flight.add(msgid)
        self.node.counts["handed_off"] += 1
        self.node.handed_off.append((self.handle, msgid, method, params))

    # Conditions

    def has_room(self) -> bool:
        limits = self.node.limits
        return len(self.in_flight) < limits.max_in_flight and len(self.output) + len(self.out) < limits.max_queued

    def reads(self) -> bool:
        return not (self.finishing or self.doomed or self.held) and self.has_room()

    def over(self) -> bool:
        return self.doomed or (self.finishing and not (self.held or self.in_flight or self.output))

    # Events

    def doom(self, reason: str) -> None:
        if not self.doomed:
            self.doomed, self.reason = True, reason

    def finish(self, reason: str) -> None:
        if not self.finishing:
            self.finishing, self.reason = True, reason

    def keep(self, data: bytes) -> bool:
        """Keep more input, if the node has room for the bytes."""
        if not self.node.make_room(self, len(data)):
            self.doom("memory")
            return False
        self.input += data
        return True

    def receive(self, data: bytes) -> None:
        self.node.counts["bytes_received"] += len(data)
        self.active_ms = self.node.now_ms
        if self.input:
            if not self.keep(data):
                return
            consumed = self.look(self.input)
            self.input = b"" if self.ended else self.input[consumed:]
        else:
            consumed = self.look(data)
            rest = b"" if self.ended or self.doomed else data[consumed:]
            if rest and not self.keep(rest):
                return
        self.settle(consumed)

    def resume(self) -> None:
        consumed = self.look(self.input)
        self.input = b"" if self.ended else self.input[consumed:]
        self.settle(consumed)

    def look(self, data: bytes) -> int:
        """Process whole messages while there is room, and return their size."""
        at, self.held = 0, False
        while at < len(data) and self.ended is None:
            if not self.has_room() or self.doomed:
                self.held = True
                break
            size = msgpack_scanner.scan(data[at:], **self.limits)
            if size is None:
                break
            before = self.notifications
            if isinstance(size, tuple):
                self.node.counts[FRAMES[size[0]]] += 1
                self.refuse(data[at : at + size[1]], size[0])
                break
            self.message(data[at : at + size])
            self.node.counts["notifications_ignored"] += self.notifications - before
            at += size
        if self.ended is not None:
            self.finish(self.ended)
        return at

    def settle(self, consumed: int) -> None:
        if self.held or self.ended or not self.input:
            self.partial_ms = None
        elif consumed or self.partial_ms is None:
            self.partial_ms = self.node.now_ms
        if self.held:
            full = len(self.in_flight) >= self.node.limits.max_in_flight
            own = "paused_for_hand_offs" if full else "paused_for_output"
            self.node.counts[own] += not self.has_room()

    def hold(self) -> None:
        """Queue the answers of this turn for the peer, if the node has room for them."""
        out, self.out = self.out, b""
        if out and not self.doomed:
            if not self.node.make_room(self, len(out)):
                self.doom("memory")
            else:
                self.output += out
                self.blocked_ms = self.node.now_ms if self.blocked_ms is None else self.blocked_ms
        self.taken(0)

    def taken(self, size: int) -> None:
        if size:
            self.output = self.output[size:]
            self.blocked_ms = self.active_ms = self.node.now_ms
        if not self.output:
            self.blocked_ms = None
        if self.held and self.has_room() and not self.runnable:
            self.runnable = True
            self.node.runnable.append(self)

    def expire(self) -> None:
        limits, now = self.node.limits, self.node.now_ms
        if self.partial_ms is not None and now - self.partial_ms > limits.frame_timeout_ms:
            self.doom("frame_timeout")
        elif self.has_left() and now - self.active_ms > LEAVE_MS:
            self.doom("by_peer")
        elif self.blocked_ms is not None and now - self.blocked_ms > limits.output_timeout_ms:
            self.doom("output_timeout")
        elif self.is_idle() and now - self.active_ms > limits.idle_timeout_ms > 0:
            self.doom("idle")
        elif self.is_unproven() and self.node.is_crowded() and now - self.begun_ms > PROOF_MS:
            self.doom("unproven")

    def has_left(self) -> bool:
        """Return True if the peer sends no more, and may be gone, while its requests are in flight."""
        return self.finishing and self.reason == "by_peer" and len(self.in_flight) > 0

    def is_unproven(self) -> bool:
        """Return True if the connection has sent no whole request and still may."""
        return not (self.spoken or self.in_flight or self.finishing or self.doomed)

    def is_idle(self) -> bool:
        """Return True if no request and no output is pending."""
        return not self.in_flight and self.blocked_ms is None


@dataclass
class Node:
    """Connections by their handles, which the other side of the comparison has chosen."""

    databases: Databases
    limits: Limits
    wording: Wording
    now_ms: int = 0
    in_vain_ms: int = -500
    connections: dict[int, Connection] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    handed_off: list[tuple[int, int, bytes, bytes]] = field(default_factory=list)
    runnable: deque[Connection] = field(default_factory=deque)

    @property
    def held_bytes(self) -> int:
        return sum(len(one.input) + len(one.output) for one in self.connections.values())

    @property
    def in_flight(self) -> int:
        return sum(len(one.in_flight) for one in self.connections.values())

    def held_by(self, one: Connection) -> int:
        """Return the bytes held, with handed-off requests that Python has not taken yet."""
        waiting = sum(len(name) + len(params) for at, _, name, params in self.handed_off if at == one.handle)
        return len(one.input) + len(one.output) + waiting

    def make_room(self, asking: Connection, size: int) -> bool:
        """Return True if so many more bytes fit; a connection that holds more than that is closed for the room."""
        while sum(map(self.held_by, self.connections.values())) + size > self.limits.max_held:
            largest = max(self.connections.values(), key=self.held_by)
            if self.held_by(largest) <= self.held_by(asking) + size:
                return False
            largest.doom("memory")
            largest.input = largest.output = b""
            self.handed_off = [one for one in self.handed_off if one[0] != largest.handle]
        return True

    def counters(self) -> dict[str, int]:
        """Return every counter that is not 0, and the present gauges."""
        now = {
            "connections": len(self.connections),
            "in_flight": self.in_flight,
            "held_bytes": self.held_bytes,
        }
        return {name: count for name, count in {**self.counts, **now}.items() if count}

    def may_open(self, address: bytes) -> bool:
        neighbours = sum(one.address == address for one in self.connections.values())
        if neighbours >= self.limits.max_connections_per_address:
            outcome = "connections_refused_by_address"
        elif len(self.connections) >= self.limits.max_connections:
            outcome = "connections_refused"
        else:
            outcome = "connections_accepted"
        self.counts[outcome] += 1
        if outcome == "connections_refused":
            self.make_way(None)
        return outcome == "connections_accepted"

    def open(self, handle: int, address: bytes) -> None:
        limits = {
            "max_size": self.limits.max_frame,
            "max_depth": self.limits.max_depth,
            "max_elements": self.limits.max_elements,
        }
        self.connections[handle] = Connection(
            self.databases,
            limits,
            node=self,
            handle=handle,
            address=address,
            begun_ms=self.now_ms,
            active_ms=self.now_ms,
        )
        most = self.limits.max_connections
        if len(self.connections) + min(most // 10 + 1, MAX_SENT_AWAY) > most:
            self.make_way(self.connections[handle])

    def is_crowded(self) -> bool:
        return len(self.connections) > self.limits.max_connections * 80 // 100

    def make_way(self, newcomer: Connection | None) -> None:
        """Close the older half of the silent connections of the address that has most connections."""
        if self.now_ms - self.in_vain_ms < LOOK_MS:
            return
        found = [one for one in self.connections.values() if one.is_unproven() and one is not newcomer]
        if not found:
            self.in_vain_ms = self.now_ms
            return
        found.sort(key=lambda one: one.handle & 0xFFFFFFFF)
        counts = Counter(one.address for one in self.connections.values())
        busiest = max((one.address for one in found), key=lambda address: counts[address])
        oldest = sorted((one for one in found if one.address == busiest), key=lambda one: one.begun_ms)
        for one in oldest[: min(MAX_SENT_AWAY, (len(oldest) + 1) // 2)]:
            one.doom("unproven")

    def take_hand_offs(self) -> list[tuple[int, int, bytes, bytes]]:
        taken, self.handed_off = self.handed_off, []
        return taken

    def feed(self, handle: int, data: bytes) -> None:
        one = self.connections[handle]
        if data:
            one.receive(data)
            one.hold()

    def run(self) -> None:
        """Parse held input that may proceed, that of each connection once."""
        for _ in range(len(self.runnable)):
            one = self.next_runnable()
            if one is not None:
                one.resume()
                one.hold()

    def next_runnable(self) -> Connection | None:
        while self.runnable:
            one = self.runnable.popleft()
            one.runnable = False
            if self.connections.get(one.handle) is one and one.held and not one.doomed:
                return one
        return None

    def take_output(self, handle: int, limit: int) -> bytes:
        one = self.connections[handle]
        data = one.output[:limit]
        self.counts["bytes_sent"] += len(data)
        if data:
            one.taken(len(data))
        return data

    def reply(self, handle: int, msgid: int, frame: bytes) -> bool:
        """Answer a handed-off request, if the request is still in flight."""
        one = self.connections.get(handle)
        if one is None or msgid not in one.in_flight:
            self.counts["replies_dropped"] += 1
            return False
        one.in_flight.remove(msgid)
        self.counts["replies"] += 1
        one.active_ms = self.now_ms
        if len(frame) > self.limits.max_frame:
            code, message, _ = self.wording["reply too large"]
            assert code == "TOO_LARGE"
            self.counts["replies_too_large"] += 1
            frame = pack(msgid, limited(code, message, self.limits.max_frame, len(frame)), None)
        one.out = frame
        one.hold()
        return True

    def may_reply(self, handle: int) -> bool:
        one = self.connections.get(handle)
        return one is None or one.doomed or len(one.output) < self.limits.max_queued

    def each(self, act: Callable[[Connection], None]) -> None:
        for one in self.connections.values():
            act(one)

    def close(self, handle: int) -> None:
        one = self.connections.pop(handle)
        self.counts[f"closed_{one.reason}"] += 1

    def publish(self, databases: Databases) -> None:
        self.databases = databases
        for one in self.connections.values():
            one.databases = databases
