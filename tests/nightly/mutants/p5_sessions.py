"""Bugs that violate the causal order of a session (P5)."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

MUTANTS: tuple[Mutant, ...] = (
    planted(
        "a read adds the dot without its dependencies",
        "gossipkv.table.session.token:seen_in",
        'return merged(own, *map(decode_body, bodies - {b""}))',
        "return own",
        "tests/unit/table/test_sessions.py",
    ),
    planted(
        "a read adds the dependencies without the dot",
        "gossipkv.table.session.token:seen_in",
        "own = {table: TableSeen(config, clock.of(dots.items()))}",
        'own = {table: TableSeen(config, b"")}',
        "tests/unit/table/test_sessions.py",
    ),
    planted(
        "a newer config's origin is ignored",
        "gossipkv.table.session.readiness:ReplicaReadiness._unready",
        "if seen.config > replication.maps.get(replica.identity.table, 0):",
        "if False:",
        "tests/unit/table/session/test_readiness.py",
    ),
    planted(
        "a copy answers by the map from before its load",
        "gossipkv.table.session.readiness:ReplicaReadiness._unready",
        "if replica in replication.replicas.loader.unplaced:",
        "if False:",
        "tests/unit/table/session/test_readiness.py",
    ),
    planted(
        "a copy is ready with whatever it has",
        "gossipkv.table.session.readiness:ReplicaReadiness._unready",
        "if not clock.covers(replica.synced, clock.named(seen.clock, replica.named)):",
        "if False:",
        "tests/unit/table/test_sessions.py",
    ),
    planted(
        "a scan passes tombstones without a word",
        "gossipkv.table.records.scan:_page_here",
        "passed.append(data)",
        "passed += [data] if record.value(data) is not None else []",
        "tests/unit/table/session/test_readiness.py",
    ),
    planted(
        "a newer map settles rows and does not say so",
        "gossipkv.table.records.token_compaction:TokenCompactor._without_settled",
        "config = max(config, whole.config)",
        "pass",
        "tests/unit/table/session/test_readiness.py",
    ),
    planted(
        "a newer map collects tombstones and does not say so",
        "gossipkv.replication.maintenance.tombstone_gc:TombstoneCollector._collect",
        "replica.taken_config = replica.config",
        "pass",
        "tests/unit/table/session/test_readiness.py",
    ),
    planted(
        "a write waits for nothing",
        "gossipkv.table.records.origin:PartitionWrite._here",
        "if token:",
        "if False:",
        "tests/unit/table/test_sessions.py",
    ),
    planted(
        "a write depends on nothing",
        "gossipkv.table.records.origin:PartitionWrite._apply",
        "elif request.wanted.token:",
        "elif False:",
        "tests/unit/table/test_sessions.py",
    ),
    planted(
        "rows that one child has settled are left out for its sibling",
        "gossipkv.table.records.token_compaction:settled_of",
        "whole = clock.named(settled(replicas, replica), replica.assigned)",
        "whole = settled(replicas, replica)",
        "tests/unit/table/test_divided_sessions.py",
    ),
    planted(
        "nobody is told that a write is lost",
        "gossipkv.table.session.readiness:_ends_are_known",
        "if end is not None and clock.counter(seen.clock, assignment) > end:",
        "if False:",
        "tests/unit/table/test_ready_on_the_way.py",
    ),
    planted(
        "a token forgets since when anything is left out of it",
        "gossipkv.table.records.token_compaction:TokenCompactor._without_settled",
        "omitted = clock.merge(omitted, clock.named(whole.clock, (LEFT_OUT,)))",
        "omitted = clock.named(b'', (origin,))",
        "tests/unit/table/session/test_readiness.py",
    ),
    planted(
        "a range that begins anew forgets what all its hosts had",
        "gossipkv.table.rpc.force_join:begins",
        "counters |= {**dict(clock.entries(left_out(config))), HAD: 0 if kept is None else kept.config}",
        "pass",
        "tests/unit/table/session/test_readiness.py",
    ),
    planted(
        "a range that begins anew with a copy counts as empty",
        "gossipkv.table.session.readiness:_ends_are_known",
        "if assignment == LEFT_OUT and seen.config <= (ends.get(HAD) or 0):",
        "if False:",
        "tests/unit/table/session/test_readiness.py",
    ),
)
