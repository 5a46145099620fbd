"""Forwarding against the oracle: clients, peers that refuse, lie, reset or stay silent, and time."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgpack
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gossipkv.wire import rpc
from tests.oracle.relay import Relay
from tests.unit.serving.asker import AWAY, HERE, PARTITIONS, RECORDS, Asker, Link
from tests.unit.serving.driven import Peer, make_version

if TYPE_CHECKING:
    from gossipkv.storage.sorted_file import SortedFile
    from gossipkv.wire.rpc import Value

PEERS = 4
CODES = ["NOT_SERVED", "NOT_READY", "UNKNOWN_VERSION", "CORRUPT", "OVERLOADED", "INTERNAL", "BAD_REQUEST", "TOO_LARGE"]


class Relays(RuleBasedStateMachine):
    met: ClassVar[Counter[str]] = Counter()
    files: ClassVar[list[SortedFile | None]]

    def __init__(self) -> None:
        super().__init__()
        self.asker = Asker(Path(), PEERS, files=self.files, seed=7, frame_timeout_ms=1 << 30)
        self.model = Relay(PEERS, whole_ms=90, stage_ms=30)
        self.clients = [self.asker.client, Peer(self.asker.core)]
        self.clients[1].driver = self.asker.client.driver
        self.links: dict[int, Link] = dict(enumerate(self.asker.links))
        self.names = itertools.count()
        self.keys: dict[bytes, int] = {}  # By key: the message id of the read that asks for the key now.
        self.owner: dict[int, int] = {}  # By message id: the client.
        # By peer and wire id: the message id.
        self.on_wire: dict[int, dict[int, int]] = {column: {} for column in self.links}
        self.half: dict[int, tuple[int, int, list[object], bytes]] = {}  # By peer: the rest of a partial answer.
        self.expected: dict[int, object] = {}
        self.many: set[int] = set()  # Message ids of batches.
        self.explained: set[int] = set()  # Message ids of reads with `explain`.

    def settle(self) -> None:
        """Tell the model which peers were asked, and compare the clients' answers."""
        for column, link in self.links.items():
            for _, msgid, _, (_, subject, _) in link.requests():
                name = self.keys[subject if isinstance(subject, bytes) else subject[0]]
                assert msgid not in self.on_wire[column], "an id is used again while its answer may still come"
                self.on_wire[column][msgid] = name
                self.model.asked(column, name)
        self.model.settled()
        got: dict[int, object] = {}
        for client in self.clients:
            client.take()
            for _, msgid, error, result in client.answers():
                assert msgid not in got, "a request is answered once"
                got[msgid] = result if error is None else error[0]
        assert got == self.expected
        self.expected = {}

    @rule(
        which=st.integers(0, 1),
        timeout_ms=st.sampled_from([None, None, 20, 500]),
        many=st.booleans(),
        explain=st.booleans(),
    )
    def ask(self, which: int, timeout_ms: int | None, many: bool, explain: bool) -> None:
        """Let a client ask for a remote key, alone or in a batch with one remote part."""
        name = next(self.names)
        key = AWAY[name % len(AWAY)]
        if key in self.keys and self.keys[key] in self.model.reads:
            return
        self.keys[key] = name
        self.owner[name] = which
        self.model.begin(name, timeout_ms, is_part=many)
        self.many |= {name} if many else set()
        options: dict[str, Value] = {} if timeout_ms is None else {"timeout_ms": timeout_ms}
        if explain and not many:
            options["explain"] = True
            self.explained.add(name)
        method, subject = ("get_many", [HERE[0], key, key]) if many else ("get", key)
        assert self.clients[which].send(rpc.request(name, method, ["db", subject, options])) == []
        self.settle()

    def pick(self, which: int) -> tuple[int, int, int] | None:
        """Choose (peer, wire id, read) of an open question to a peer that is not amid an answer."""
        waiting = [
            (column, wire, name)
            for column, ids in self.on_wire.items()
            for wire, name in ids.items()
            if column not in self.half
        ]
        return waiting[which % len(waiting)] if waiting else None

    @precondition(lambda self: self.pick(0))
    @rule(which=st.integers(0, 50), value=st.sampled_from([None, b"value", b"v" * 300]), half=st.booleans())
    def answer(self, which: int, value: bytes | None, half: bool) -> None:  # Hypothesis passes the argument by name.
        """Let a peer answer with a value or a miss, or with the beginning only."""
        column, wire, name = self.pick(which) or (0, 0, 0)
        is_part = name in self.many
        frame = rpc.response(wire, [[value, value] if is_part else value, "v1"])
        who = [{"node": f"peer{column}:1"}] if name in self.explained else []
        result = [[RECORDS[HERE[0]], value, value] if is_part else value, "v1", *who]
        self.half[column] = wire, name, result, frame
        self.go_on(column, 8 if half else len(frame))

    @precondition(lambda self: self.half)
    @rule(which=st.integers(0, 3), size=st.sampled_from([1, 1, 300]))
    def trickle(self, which: int, size: int) -> None:
        self.go_on(list(self.half)[which % len(self.half)], size)

    def go_on(self, column: int, size: int) -> None:
        """Deliver the next bytes of a peer's answer."""
        wire, name, result, frame = self.half.pop(column)
        if size < len(frame):
            self.half[column] = wire, name, result, frame[size:]
            self.model.heard(column, name)
        else:
            del self.on_wire[column][wire]
            if self.model.answered(column, name):
                self.expected[name] = result
        assert self.links[column].say(frame[:size]) == []
        self.settle()

    @precondition(lambda self: self.pick(0))
    @rule(which=st.integers(0, 50), code=st.sampled_from(CODES))
    def refuse(self, which: int, code: str) -> None:
        column, wire, name = self.pick(which) or (0, 0, 0)
        del self.on_wire[column][wire]
        if self.model.refused(column, name, code):
            self.expected[name] = code
        assert self.links[column].refuse(wire, code) == []
        self.settle()

    @precondition(lambda self: self.pick(0))
    @rule(which=st.integers(0, 50), kind=st.integers(0, 5))
    def lie(self, which: int, kind: int) -> None:
        """Let a peer answer nonsense and lose its connection."""
        column, wire, name = self.pick(which) or (0, 0, 0)
        awaited = self.model.unanswered[column][name]
        frame = [
            rpc.response(wire, [[b"x", b"x"] if name in self.many else b"x", "v2"]),  # Another version.
            rpc.response(wire, [b"x"] if name in self.many else [[b"x"], "v1"]),
            rpc.response(wire ^ (1 << 25), [b"x", "v1"]),  # Another id.
            rpc.request(wire, "get", []),
            b"\xc1",
            msgpack.packb([1, wire, None, [5, "v1"]]),
        ][kind]
        if kind in {0, 1, 5} and not awaited:
            return
        assert self.links[column].say(frame) == []
        assert self.links[column].ends
        self.model.peers[column].slow = False if kind in {0, 1, 5} else self.model.peers[column].slow
        self.cut(column, name if kind in {0, 1, 5} else None)

    def cut(self, column: int, nonsense: int | None = None) -> None:
        self.model.lost(column, nonsense)
        self.links[column].close()
        self.on_wire[column] = {}
        self.half.pop(column, None)
        del self.links[column]
        self.settle()

    @precondition(lambda self: self.links)
    @rule(which=st.integers(0, 3), half=st.booleans())
    def reset(self, which: int, half: bool) -> None:  # Hypothesis passes the argument by name.
        """Reset a peer's connection, possibly amid an answer."""
        column = list(self.links)[which % len(self.links)]
        if half and self.on_wire[column] and column not in self.half:
            self.links[column].say(rpc.response(next(iter(self.on_wire[column])), [b"x" * 50, "v1"])[:20])
        self.cut(column)

    @rule(column=st.integers(0, PEERS - 1))
    def join(self, column: int) -> None:
        """Connect a peer, possibly over an existing connection."""
        older = self.links.pop(column, None)
        handle = self.asker.client.driver.adopt(column, self.asker.client.now_ms)
        if older is not None:
            assert older.ends
            older.close()
        self.on_wire[column] = {}
        self.half.pop(column, None)
        self.model.joined(column)
        self.links[column] = Link(self.asker, column, handle)
        self.settle()

    @rule(column=st.integers(0, PEERS - 1), state=st.integers(0, 2))
    def gossip(self, column: int, state: int) -> None:
        self.asker.core.set_peer(column, f"peer{column}:1", state)
        self.model.peers[column].state = state

    @rule(elapsed_ms=st.sampled_from([1, 1, 5, 29, 30, 31, 100]))
    def wait(self, elapsed_ms: int) -> None:
        for _ in range(elapsed_ms):
            self.asker.client.now_ms += 1
            for client in self.clients:
                client.now_ms = self.asker.client.now_ms
            driver = self.asker.client.driver
            driver.expire(driver_now := self.asker.client.now_ms)
            handed = driver.run(driver_now)
            failed = self.model.tick()
            assert {msgid for _, msgid, _, _ in handed} == failed.keys()
            for handle, msgid, method, report in handed:
                assert method is None
                (_, _), version, _, rounds, _, asked = msgpack.unpackb(report)
                assert (version, rounds) == (b"v1", failed[msgid].rounds)
                told = {int(peer[4:5]): outcome for peer, outcome in asked}
                perhaps = failed[msgid].perhaps - failed[msgid].awaited
                expected = {
                    column: outcome for column, outcome in failed[msgid].report().items() if column not in perhaps
                }
                assert {column: outcome for column, outcome in told.items() if column not in perhaps} == expected
                assert driver.reply(handle, msgid, rpc.response(msgid, "given up"))
                self.expected[msgid] = "given up"
            self.settle()

    @rule()
    def leave(self) -> None:
        for name in [name for name in self.model.reads if self.owner[name] == 1]:
            self.model.gone(name)
        driver = self.asker.client.driver
        driver.close(self.clients[1].handle)
        handle = driver.open(self.asker.client.now_ms)
        assert handle is not None
        self.clients[1].handle = handle
        self.settle()

    @invariant()
    def nothing_is_lost(self) -> None:
        """Every read is in flight, and no other request."""
        counters = self.asker.core.counters()
        assert counters["in_flight"] == len(self.model.reads)

    def teardown(self) -> None:
        """At the end all reads are answered or given up, and nothing is held."""
        self.wait(1100)
        for column in list(self.half):
            self.go_on(column, 1 << 10)
        counters = self.asker.core.counters()
        assert (counters["in_flight"], counters["held_bytes"]) == (0, 0)
        self.met.update(counters)


def test_the_relay_is_the_oracle_s(tmp_path: Path) -> None:
    """Each counter of forwarding has been raised."""
    Relays.files = make_version(tmp_path, "db", "v1", RECORDS, PARTITIONS).files
    Relays.met.clear()
    examples = max(150, settings.default.max_examples * 4)  # Fewer examples would miss some counters.
    run_state_machine_as_test(Relays, settings=settings(max_examples=examples, stateful_step_count=60))
    met = {name for name in Relays.met if Relays.met[name] > 0 and name.startswith("forward")}
    assert met >= {
        "forwarded", "forward_attempts", "forward_answers", "forward_answers_late", "forward_silences",
        "forward_rounds", "forward_unconnected", "forward_not_served", "forward_not_ready",
        "forward_unknown_version", "forward_corrupt", "forward_refused", "forward_failed",
    }  # fmt: skip
