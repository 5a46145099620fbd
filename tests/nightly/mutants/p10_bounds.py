"""Bugs that let a peer or a client cost a node unbounded memory or time (P10)."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted

MUTANTS: tuple[Mutant, ...] = (
    planted(
        "a node asks idle nodes for their time every 0.8 s",
        "gossipkv.replication.replicas:Replicas.pump",
        "peer.tell_at, peer.clock_at = now, now + CLOCK_S",
        "peer.tell_at, peer.clock_at = now, now + CLOCK_S / 25",
        "tests/simulation/test_replication.py",
    ),
    planted(
        "a node at rest looks every 50 ms for what is to be done",
        "gossipkv.replication.shell:Replication.run",
        "with trio.move_on_at(min(dues, default=now + 3600.0)):",
        "with trio.move_on_at(min([now + 0.05, *dues])):",
        "tests/simulation/test_replication.py",
    ),
    planted(
        "who sleeps until a deadline is not told of a sooner one",
        "gossipkv.replication.waiting:Waiting.begin",
        "if (due := self.due) is None or deadline < due:",
        "if False:",
        "tests/unit/table/test_waits_end.py",
    ),
    planted(
        "a branch may take anything",
        "gossipkv.gossip.tree.branch:Branch.apply",
        "if size_bytes > most_bytes:",
        "if False:",
        "tests/unit/gossip/tree/test_branch_properties.py",
    ),
    planted(
        "a node that is asked by a namesake never backs off",
        "gossipkv.gossip.membership.namesakes:Namesakes._look",
        "self._rest_ms = min(max(self._profile.probe_interval_ms, 2 * self._rest_ms), MOST_REST_MS)",
        "self._rest_ms = self._profile.probe_interval_ms",
        "tests/unit/gossip/membership/test_namesakes_night.py::test_a_flood_of_claims_costs_little",
    ),
    planted(
        "any number of parts is sent",
        "gossipkv.http.ranges:_asked",
        "return asked if 0 < len(asked) <= MAX_RANGES else None",
        "return asked or None",
        "tests/unit/http/test_conditions.py",
    ),
    planted(
        "each drop of a request gives it new time",
        "gossipkv.http.connection:Connection._converse",
        "if self.state is not State.ARRIVING:",
        "if True:",
        "tests/unit/http/test_gateway.py",
    ),
    planted(
        "a client that takes nothing is waited for",
        "gossipkv.http.connection:Connection._flush",
        "self.due = self._now() + self._surroundings.times.output_s",
        "self.due = inf",
        "tests/unit/http/test_gateway.py",
    ),
    planted(
        "a body on its way is not counted",
        "gossipkv.http.connection:Connection._converse",
        "self._hold(self._received_bytes)",
        "pass",
        "tests/unit/http/test_gateway.py",
    ),
    Mutant(
        "an answer that trickles has no end",
        (
            Edit(
                "gossipkv.serving._asking:expire_asked",
                "if now_ns >= relay.limit_ns:",
                "if False:",
            ),
            Edit(
                "gossipkv.serving._asking:expire_asked",
                "set_due(asking.relays, relay, min(heard_ns + asking.stage_ns, relay.limit_ns))",
                "set_due(asking.relays, relay, heard_ns + asking.stage_ns)",
            ),
        ),
        ("tests/unit/serving/test_forwarding.py",),
        "property",
    ),
    planted(
        "answers that wait for earlier ones are not counted",
        "gossipkv.serving._connections:Connections.say",
        "note_owed(self, connection, owing_bytes(owing))",
        "pass",
        "tests/unit/serving/test_resp.py",
    ),
    planted(
        "each pump counts its own requests in flight",
        "gossipkv.serving._connections:Connections.add_in_flight",
        "count_in_flight(self.crew, 1)",
        "pass",
        "tests/unit/serving/test_pumps_slow.py",
    ),
    planted(
        "a put_many is one batch",
        "gossipkv.table.writes:_batches",
        "if batch.size_bytes >= BATCH_BYTES:",
        "if False:",
        "tests/unit/table/test_writes.py",
    ),
    planted(
        "a coordinator pins more than it may",
        "gossipkv.register.metadata.ledger:Ledger.append",
        "self._check_room(changed.root)",
        "pass",
        "tests/unit/register/metadata/test_transactions.py::test_a_coordinator_that_holds_too_many_maps_asks_nobody",
    ),
    planted(
        "entries that cannot be taken yet are kept for ever",
        "gossipkv.replication.replicas:Replicas.pump",
        "peer.kept.forget(now, self.relay_s)",
        "pass",
        "tests/unit/replication/test_replicas.py",
    ),
    planted(
        "a store that fails is opened again at once",
        "gossipkv.table.tables:Tables._stay_closed",
        "self._failures += 1",
        "pass",
        "tests/unit/table/test_tables.py",
    ),
    planted(
        "a launcher without descriptors spins",
        "gossipkv.launcher.supervisor:Supervisor._accept",
        "time.sleep(ACCEPT_PAUSE_S)",
        "pass",
        "tests/unit/launcher/test_fleet_slow.py",
    ),
    planted(
        "a gateway that ends at once is started again without a pause",
        "gossipkv.node.gateway:Gateway._keep",
        "pause_s = min(2 * pause_s, LONGEST_PAUSE_S)",
        "pass",
        "tests/unit/node/test_gateway.py",
    ),
    planted(
        "a log that nobody reads waits in memory without end",
        "gossipkv.processes.streams:Backlog.put",
        "if self._size_bytes + len(data) > MAX_QUEUED_BYTES:",
        "if False:",
        "tests/unit/processes/test_streams.py",
    ),
    planted(
        "a stranger has as many lines of the log as it likes",
        "gossipkv.log:Limits.lets",
        "is_let = room >= 1",
        "is_let = True",
        "tests/unit/test_log.py",
    ),
)
