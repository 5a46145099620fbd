"""A node's forwarded reads in plain Python: the peers that may be asked, and the answer that a client must get.

Written from docs/development/forwarding.md. The oracle draws no lots: a test tells it which peer the node has asked,
and it checks that this peer was allowed. After each event it says which reads must have asked a peer by now.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgpack

from tests.oracle import msgpack_scanner

ALIVE, SUSPECT, DEAD = 0, 1, 2
PAUSE_MS = 1
DEFAULT_MS = 1000  # For a read whose client gives no timeout.
REFUSALS = {"NOT_SERVED", "NOT_READY", "UNKNOWN_VERSION", "CORRUPT", "OVERLOADED", "INTERNAL", "BAD_REQUEST"}


@dataclass
class Peer:
    state: int = ALIVE
    slow: bool = False
    connected: bool = True
    holds: bool = True
    arriving: object = None  # The read whose answer has arrived in part.
    heard_ms: int = 0  # Time of the last byte of that answer.


@dataclass
class Read:
    whole_ms: int
    limit_ms: int
    is_part: bool
    pause_ms: int = PAUSE_MS
    due_ms: float = 0
    resting: bool = False
    restless: bool = True  # The read has to ask a peer now.
    rounds: int = 1
    tried: dict[int, str] = field(default_factory=dict)  # Peers of this round, with the outcome of each.
    perhaps: set[int] = field(default_factory=set)  # Unconnected peers of equal rank: the lot may have met them.
    awaited: set[int] = field(default_factory=set)  # Peers that were asked at any time and have not answered.
    hopeful: set[int] = field(default_factory=set)  # Peers that were not dead when they were asked.
    last: int = -1  # The peer asked last, until it is silent; only its refusal moves a part on.

    def report(self) -> dict[int, str]:
        """Return the peers that were asked, with the outcome of each."""
        return {**dict.fromkeys(self.awaited, "silent"), **self.tried}


class Relay:
    """The reads of one node, by names that the test gives them."""

    def __init__(self, peers: int, *, whole_ms: int, stage_ms: int) -> None:
        self.peers = {column: Peer() for column in range(peers)}
        self.whole_ms = whole_ms
        self.stage_ms = stage_ms
        self.now_ms = 1
        self.reads: dict[object, Read] = {}
        self.unanswered: dict[int, dict[object, bool]] = {column: {} for column in range(peers)}  # False: abandoned.

    def begin(self, name: object, timeout_ms: int | None = None, *, is_part: bool = False) -> None:
        """Start a client's read, alone or as a part of a batch."""
        limit_ms = self.now_ms + (max(DEFAULT_MS, self.whole_ms) if timeout_ms is None else timeout_ms)
        self.reads[name] = Read(min(self.now_ms + self.whole_ms, limit_ms), limit_ms, is_part)

    def candidates(self, name: object) -> set[int]:
        """Return the next peers: those of the least rank that were not asked in this round and owe no answer."""
        read = self.reads[name]
        open_to = {
            column: (peer.slow, peer.state)
            for column, peer in self.peers.items()
            if peer.holds and column not in read.tried and column not in read.awaited
        }
        least = min(open_to.values(), default=None)
        return {column for column, rank in open_to.items() if rank == least}

    def asked(self, column: int, name: object) -> None:
        """Record that the node has asked this peer and skipped earlier ones without a connection."""
        read = self.reads[name]
        assert read.restless, "it had nobody to ask now"
        while column not in self.candidates(name):
            self.pass_over(name, column)
        assert self.peers[column].connected, "there is no connection"
        read.perhaps |= {other for other in self.candidates(name) if not self.peers[other].connected}
        read.restless = False
        read.tried[column] = "asked"
        read.last = column
        read.awaited.add(column)
        (read.hopeful.add if self.peers[column].state < DEAD else read.hopeful.discard)(column)
        read.due_ms = min(self.now_ms + self.stage_ms, read.whole_ms)
        self.unanswered[column][name] = True

    def pass_over(self, name: object, wanted: int | None = None) -> bool:
        """Skip earlier peers that have, or had, no connection; return True if there was one."""
        read, candidates = self.reads[name], self.candidates(name)
        passed = {column for column in candidates if column in read.perhaps or not self.peers[column].connected}
        if wanted is not None:
            assert passed, f"{wanted} was asked out of turn"
            assert passed == candidates, f"{wanted} was asked before its turn"
        for column in passed:
            read.tried[column] = "not connected"
        return bool(passed)

    def settled(self) -> None:
        """Check that a read that has not asked had no peer left, and let the read rest."""
        for name, read in self.reads.items():
            while read.restless and self.pass_over(name):
                pass
            if read.restless:
                assert not self.candidates(name), "there was somebody to ask"
                read.restless, read.resting = False, True
                read.due_ms = min(self.now_ms + read.pause_ms, read.whole_ms)
                read.pause_ms = min(2 * read.pause_ms, self.stage_ms)

    def heard(self, column: int, name: object) -> None:
        self.peers[column].arriving, self.peers[column].heard_ms = name, self.now_ms

    def answered(self, column: int, name: object) -> bool:
        """A value or a miss has come; return True if this is the client's answer."""
        self.peers[column].slow, self.peers[column].arriving = False, None
        if not self.unanswered[column].pop(name):
            return False
        self.end(name)
        return True

    def refused(self, column: int, name: object, code: str) -> bool:
        """An error has come; return True if this is the client's answer."""
        self.peers[column].slow = False
        if not self.unanswered[column].pop(name):
            return False
        if code == "TOO_LARGE":
            self.end(name)
            return True
        self.peers[column].slow = code == "OVERLOADED"
        known = code in {"NOT_SERVED", "NOT_READY", "UNKNOWN_VERSION", "CORRUPT", "OVERLOADED"}
        self.move_on(column, name, code if known else "refused")
        return False

    def move_on(self, column: int, name: object, outcome: str) -> None:
        """Record the outcome; the read asks the next peer at once, unless the read rests."""
        read = self.reads[name]
        read.awaited.discard(column)
        if read.is_part and column != read.last:
            return  # The part is already with another peer.
        read.tried[column] = outcome
        if self.now_ms >= read.whole_ms:
            read.due_ms = self.now_ms
        else:
            read.restless = not read.resting

    def lost(self, column: int, nonsense: object = None) -> None:
        """The connection has ended; `nonsense` names the read whose answer was malformed."""
        self.peers[column].connected, self.peers[column].arriving = False, None
        names, self.unanswered[column] = self.unanswered[column], {}
        for name, awaited in names.items():
            if awaited:
                self.move_on(column, name, "nonsense" if name == nonsense else "lost")

    def joined(self, column: int) -> None:
        if self.peers[column].connected:
            self.lost(column)
        self.peers[column].connected, self.peers[column].slow = True, False

    def gone(self, name: object) -> None:
        self.end(name)

    def end(self, name: object) -> None:
        del self.reads[name]
        for names in self.unanswered.values():
            if name in names:
                names[name] = False

    def tick(self) -> dict[object, Read]:
        """Let a millisecond pass; return the failed reads, whose report goes to Python."""
        self.now_ms += 1
        failed: dict[object, Read] = {}
        for name, read in list(self.reads.items()):
            if self.now_ms < read.due_ms:
                continue
            heard_ms = max(
                (self.peers[column].heard_ms for column in read.awaited if self.peers[column].arriving == name),
                default=-self.stage_ms,
            )
            if self.now_ms < min(read.limit_ms, heard_ms + self.stage_ms):
                read.whole_ms = min(max(read.whole_ms, heard_ms + self.whole_ms), read.limit_ms)
                read.due_ms = min(heard_ms + self.stage_ms, read.limit_ms)
            elif self.now_ms >= read.limit_ms or (self.now_ms >= read.whole_ms and not read.awaited & read.hopeful):
                failed[name] = read
                self.end(name)
            elif self.now_ms >= read.whole_ms:  # Asked peers may answer until the limit.
                read.resting = True
                read.due_ms = min(self.now_ms + self.stage_ms, read.limit_ms)
            elif read.resting:
                read.resting, read.restless, read.rounds = False, True, read.rounds + 1
                # A peer that refuses a part late counts as asked in this round.
                read.tried = dict.fromkeys(read.awaited, "silent") if read.is_part else {}
                read.perhaps = set()
            else:
                for column in {read.last} if read.is_part else read.awaited:
                    self.peers[column].slow = True
                    read.tried[column] = "silent"
                read.last, read.restless = -1, True
        return failed


def judge(
    stream: bytes, asked: int, version: str, limits: dict[str, int], keys: int | None = None
) -> tuple[str, bytes]:
    """Classify a peer's bytes after one get: "waits", "ends", "refuses", or "answers" with the bytes.

    `keys` is the number of keys, if a part was asked for. The result is also "ends" if bytes follow the answer; the
    bytes of the answer are then returned.
    """
    size = msgpack_scanner.scan(stream, **limits)
    if size is None:
        return "waits", b""
    if not isinstance(size, int):
        return "ends", b""
    frame, rest = stream[:size], stream[size:]
    told, answer = judge_frame(frame, asked, version, limits, keys)
    if told != "ends" and rest and msgpack_scanner.scan(rest, **limits) is not None:
        told = "ends"
    return told, answer


def judge_frame(frame: bytes, asked: int, version: str, limits: dict[str, int], keys: int | None) -> tuple[str, bytes]:
    message = decode(frame)
    if not isinstance(message, list) or len(message) != 4 or [type(part) for part in message[:2]] != [int, int]:
        return "ends", b""
    error, result = message[2:]
    if error is None:
        as_asked = isinstance(result, list) and len(result) == 2 and result[1] == version
        as_asked = as_asked and is_asked_for(result[0], keys)
    else:
        is_error = isinstance(error, list) and [type(part) for part in error] == [str, str, tuple]
        as_asked = is_error and result is None
    if message[:2] != [1, asked] or not as_asked:
        return "ends", b""
    if error is None:
        return "answers", b"\xc0" + parts_of(frame, limits)[3]
    return ("answers", parts_of(frame, limits)[2] + b"\xc0") if error[0] == "TOO_LARGE" else ("refuses", b"")


def is_asked_for(value: object, keys: int | None) -> bool:
    """Return True for a value or nil, or for as many of these as keys were asked for."""
    if keys is None:
        return isinstance(value, bytes | None)
    return isinstance(value, list) and len(value) == keys and all(isinstance(one, bytes | None) for one in value)


def decode(frame: bytes) -> object:
    """Decode one value, a map as its pairs; None on failure."""
    try:
        return msgpack.unpackb(frame, strict_map_key=False, unicode_errors="surrogateescape", object_pairs_hook=tuple)
    except (ValueError, TypeError):
        return None


def parts_of(frame: bytes, limits: dict[str, int]) -> list[bytes]:
    """Return the four elements of an answer, undecoded."""
    at = 1 if frame[0] < 0xA0 else 3 if frame[0] == 0xDC else 5
    parts = []
    for _ in range(4):
        size = msgpack_scanner.scan(frame[at:], **limits)
        assert isinstance(size, int)
        parts.append(frame[at : at + size])
        at += size
    return parts
