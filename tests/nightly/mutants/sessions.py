"""Mutants of sessions over tables: what a token says, when a copy is ready, what is settled."""

from __future__ import annotations

from tests.nightly.mutants.mutant import planted

TOKEN = ("tests/unit/table/test_token.py",)
READY = ("tests/unit/table/test_readiness.py",)
HOPS = ("tests/unit/table/test_sessions.py",)

SEEN_IN = "gossipkv.table.token:seen_in"
UNREADY = "gossipkv.table.readiness:Readiness._unready"

MUTANTS_OF_SESSIONS = (
    planted(
        "a read adds the dot without its dependencies",
        SEEN_IN,
        'return merged(own, *map(decode_body, bodies - {b""}))',
        "return own",
        *HOPS,
    ),
    planted(
        "a read adds the dependencies without the dot",
        SEEN_IN,
        "own = {table: Seen(config, clock.of(dots.items()))}",
        'own = {table: Seen(config, b"")}',
        *HOPS,
    ),
    planted(
        "dependencies are added without their config",
        "gossipkv.table.token:merged",
        "whole[table] = Seen(max(had.config, seen.config), clock.merge(had.clock, seen.clock))",
        "whole[table] = Seen(had.config, clock.merge(had.clock, seen.clock))",
        *TOKEN,
    ),
    planted(
        "a newer config's origin is ignored",
        UNREADY,
        "if seen.config > replication.maps.get(copy.identity.table, 0):",
        "if False:",
        *READY,
    ),
    planted(
        "a copy answers by the map from before its load",
        UNREADY,
        "if copy in replication.replicas.loading.unplaced:",
        "if False:",
        *READY,
    ),
    planted(
        "a copy is ready with what it has",
        UNREADY,
        "if not clock.covers(copy.synced, clock.named(seen.clock, copy.named)):",
        "if False:",
        *HOPS,
    ),
    planted(
        "a scan passes tombstones without a word",
        "gossipkv.table.scans:TableScans.page",
        "passed.append(data)",
        "passed += [data] if record.value(data) is not None else []",
        *READY,
    ),
    planted(
        "a cursor has forgotten what was passed",
        "gossipkv.table.scans:TableScans.scan",
        "given = merged(self.settling.read(options.token), passed)",
        "given = self.settling.read(options.token)",
        *READY,
    ),
    planted(
        "what most have is settled",
        "gossipkv.replication.collecting:settled",
        'whole = clock.least(whole, theirs or b"")',
        "whole = clock.least(whole, theirs or whole)",
        *READY,
    ),
    planted(
        "what is settled by a newer map does not say so",
        "gossipkv.table.settling:Settling._without_settled",
        "return merged(only(token, keep), by)",
        "return only(token, keep)",
        *READY,
    ),
    planted(
        "what was collected by a newer map does not say so",
        "gossipkv.replication.collecting:Collecting._collect",
        "copy.taken_config = copy.config",
        "pass",
        *READY,
    ),
    planted(
        "what was loaded by a newer map does not say so",
        "gossipkv.replication.copy:Copy.moves",
        "self.taken_config = self.config",
        "pass",
        "tests/unit/replication/test_loading.py",
    ),
    planted(
        "what is settled takes its config along",
        "gossipkv.table.token:only",
        "for table, seen in token.items()",
        "for table, seen in token.items() if any(keep(table, *one) for one in clock.entries(seen.clock))",
        *TOKEN,
    ),
    planted(
        "a write waits for nothing",
        "gossipkv.table.writes:Writes._write_here",
        "self._ready.begin(copies, wanted, partial(self._originate, batch, deadline, on_answer), on_answer)",
        "self._originate(batch, deadline, on_answer)",
        *HOPS,
    ),
    planted(
        "a write depends on nothing",
        "gossipkv.table.writes:Writes._depending",
        "if not token:",
        "if True:",
        *HOPS,
    ),
    planted(
        "what waits is not woken",
        "gossipkv.table.readiness:Readiness._wait",
        "replicas.on_moved = self._moved",
        "pass",
        *READY,
    ),
    planted(
        "hosts that are not ready are asked again and again",
        "gossipkv.table.forwarding:_is_early",
        "return isinstance(error, EARLY) and not is_behind(error)",
        "return isinstance(error, EARLY)",
        *READY,
    ),
    planted(
        "who is not ready is the last that is asked",
        "gossipkv.table.forwarding:Forwarding._answered_here",
        "if error is None or not _may_go_on(error, request):",
        "if True:",
        *READY,
    ),
    planted(
        "of a long token nobody is asked",
        "gossipkv.table.settling:Settling.begin",
        "if is_short(token) or is_short(token := self._without_settled(token)):",
        "if True:",
        *READY,
    ),
    planted(
        "of a long token others are asked each time",
        "gossipkv.table.settling:Settling._to_ask",
        "if now < self._asked_at.get(table, -AGAIN_S) + AGAIN_S:",
        "if False:",
        *READY,
    ),
)
