"""Bugs planted in the gateway: what its connections may take, how it ends, and how a node keeps it."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

HTTP = "gossipkv.http"
NODE = "gossipkv.node.gateway"
DETACHED = "gossipkv.node.detached:Detached"
GATEWAY = "tests/unit/http/test_gateway.py"
SITE = "tests/unit/http/test_site.py"
KEPT = "tests/unit/node/test_gateway.py"
ON_THEIR_WAY = "tests/unit/node/test_detached.py"
RECEIVED = "tests/unit/http/test_detached.py"

MUTANTS_OF_THE_GATEWAY: tuple[Mutant, ...] = (
    planted(
        "each drop of a request gives it new time",
        f"{HTTP}.connection:Connection._converse",
        "if self.state is not State.ARRIVING:",
        "if True:",
        GATEWAY,
    ),
    planted(
        "who takes nothing is waited for",
        f"{HTTP}.connection:Connection._flush",
        "self.due = self._now() + self._surroundings.times.output_s",
        "self.due = inf",
        GATEWAY,
    ),
    planted(
        "a large answer has one time for all of it",
        f"{HTTP}.connection:Connection._flush",
        "self.due = self._now() + self._surroundings.times.output_s",
        "self.due = self.due if begin else self._now() + self._surroundings.times.output_s",
        GATEWAY,
    ),
    planted(
        "a body on its way is not counted",
        f"{HTTP}.connection:Connection._converse",
        "self._hold(self._received_bytes)",
        "pass",
        GATEWAY,
    ),
    planted(
        "an answer that waits is not counted",
        f"{HTTP}.connection:Connection._flush",
        "self._hold(size_bytes)",
        "pass",
        GATEWAY,
    ),
    planted(
        "a stream goes on without its reader",
        f"{HTTP}.connection:Connection._stream_out",
        "if self._gathered_bytes >= GATHERED_BYTES:",
        "if False:",
        GATEWAY,
    ),
    planted(
        "an answer that a defect cut off looks whole",
        f"{HTTP}.connection:Connection._next",
        "raise trio.BrokenResourceError from error",
        "return None",
        GATEWAY,
    ),
    planted(
        "a refusal is lost to who still sends",
        f"{HTTP}.connection:Connection._refuse",
        "await self._flush()",
        "pass",
        GATEWAY,
    ),
    planted(
        "whoever is closed hears that it was slow",
        f"{HTTP}.connection:Connection.run",
        "if self._is_late and self.state is State.ARRIVING:",
        "if self.state is State.ARRIVING and self._scope.cancelled_caught:",
        GATEWAY,
    ),
    planted(
        "the newest idle connection makes room",
        f"{HTTP}.gateway:Gateway._make_room",
        "connection, _ = self._idle.popitem(last=False)",
        "connection, _ = self._idle.popitem()",
        GATEWAY,
    ),
    planted(
        "the smallest is closed where there is too much",
        f"{HTTP}.gateway:Gateway.hold",
        "most = max(self._connections, key=lambda one: one.held_bytes)",
        "most = min(self._connections, key=lambda one: one.held_bytes)",
        GATEWAY,
    ),
    planted(
        "a drain leaves idle connections open",
        f"{HTTP}.gateway:Gateway.drain",
        "for connection in tuple(self._idle):",
        "for connection in ():",
        GATEWAY,
    ),
    planted(
        "the last answer of a drain does not say so",
        f"{HTTP}.connection:Connection._answer",
        "if self._surroundings.is_draining and not exchange.has_begun:",
        "if False:",
        GATEWAY,
    ),
    planted(
        "a database comes before the gateway's own paths",
        f"{HTTP}.site:Site.answer",
        "if (looking := self._paths.get(found.path)) is not None:",
        "if not found.key and (looking := self._paths.get(found.path)) is not None:",
        SITE,
    ),
    planted(
        "who is about to end is ready",
        f"{HTTP}.site:Site._look",
        "if self.is_draining and found.path == READINESS:",
        "if False:",
        SITE,
    ),
    planted(
        "a gateway that ends is started at once for ever",
        f"{NODE}:Gateway._keep",
        "pause_s = min(2 * pause_s, LONGEST_PAUSE_S)",
        "pass",
        KEPT,
    ),
    planted(
        "a long life is forgotten",
        f"{NODE}:Gateway._keep",
        "if trio.current_time() - began >= STEADY_S:",
        "if False:",
        KEPT,
    ),
    planted(
        "a drained gateway is started again",
        f"{NODE}:Gateway._rest",
        "while not self._is_ending() and trio.current_time() < due:",
        "while False:",
        KEPT,
    ),
    planted(
        "what a child has not received ends with it",
        f"{DETACHED}.to_child",
        "self._take_back(receiver)",
        "pass",
        ON_THEIR_WAY,
    ),
    planted(
        "whoever waits begins to wait again with each child",
        f"{DETACHED}._take_back",
        "self._waiting.appendleft(_Connection(descriptor, *Peer.of(data), due))",
        "self._waiting.appendleft(_Connection(descriptor, *Peer.of(data), trio.current_time() + PATIENCE_S))",
        ON_THEIR_WAY,
    ),
    planted(
        "what is taken back is behind what came later",
        f"{DETACHED}._take_back",
        "self._waiting.appendleft(_Connection(descriptor, *Peer.of(data), due))",
        "self._waiting.append(_Connection(descriptor, *Peer.of(data), due))",
        ON_THEIR_WAY,
    ),
    planted(
        "whoever is on the way at the end waits for the child",
        f"{DETACHED}.end",
        "if self._ends is not None:",
        "if False:",
        ON_THEIR_WAY,
    ),
    planted(
        "what was passed on stays open here",
        f"{DETACHED}._hand_over",
        "os.close(connection.descriptor)",
        "pass",
        ON_THEIR_WAY,
    ),
    planted(
        "an answer to HEAD has a body",
        "gossipkv.node.detached:_say_unavailable",
        'client.send(_HEAD if connection.begun.startswith(b"HEAD ") else _HEAD + _LINE)',
        "client.send(_HEAD + _LINE)",
        ON_THEIR_WAY,
    ),
    planted(
        "a connection is received for which no descriptor is free",
        f"{HTTP}.detached:DetachedListener.accept",
        "_check_that_one_is_free(self._receiver)",
        "pass",
        RECEIVED,
    ),
    planted(
        "what was read beyond one piece is dropped",
        f"{HTTP}.detached:BegunStream.receive_some",
        'begun, self._begun = self._begun[:max_bytes], b"" if max_bytes is None else self._begun[max_bytes:]',
        'begun, self._begun = self._begun[:max_bytes], b""',
        RECEIVED,
    ),
    planted(
        "each change hides a database again", f"{NODE}:Gateway.look_for_hidden", "self._hidden.add(name)", "pass", KEPT
    ),
)
