"""Bugs in rules of replication and of pumps; each group names the section of the documents that has the rules.

A row has a name, a place, the line at that place, and its replacement.
"""

from __future__ import annotations

from itertools import starmap

from tests.nightly.mutants.mutant import Edit, Mutant, planted

UNIT = "tests/unit"
ACCEPTING = f"{UNIT}/table/controllers/test_smear_buffer.py"
COPY = f"{UNIT}/replication/replica/test_replica.py"
DIVIDING = f"{UNIT}/replication/maintenance/test_split.py"
FEED = f"{UNIT}/replication/stream/test_sender.py"
KEEPING = f"{UNIT}/table/test_refounded_holding.py"
LEVELS = f"{UNIT}/replication/replica/test_acks.py"
LOADING = f"{UNIT}/replication/snapshot/test_transfer.py"
MERGING = f"{UNIT}/replication/test_merging.py"
REPLICAS = f"{UNIT}/replication/test_replica_set.py"
STEPS = f"{UNIT}/table/controllers/test_move_step.py"
SPACES = f"{UNIT}/replication/replica/test_spaces.py"
SWAP = f"{UNIT}/serving/test_scans.py::test_a_scan_keeps_its_version_through_a_swap"
TARGETS = f"{UNIT}/replication/test_targets.py"
TURN = f"{UNIT}/serving/test_core_lock_slow.py"

IN_COPY = "gossipkv.replication.replica.replica:Replica"
IN_DIVIDING = "gossipkv.replication.maintenance.split"
IN_FEED = "gossipkv.replication.stream.sender:LogSender"
IN_LOADING = "gossipkv.replication.snapshot.transfer:BulkLoader"
IN_MERGED = "gossipkv.replication._merging:Merged"
IN_SIFT = "gossipkv.replication.replica.smeared:sift"
IN_SPACES = "gossipkv.replication.replica.spaces"
IN_STEPS = "gossipkv.table.controllers.move_step"
IN_TAKING = "gossipkv.replication._merging:entries_of"
IN_TURN = "gossipkv.serving.loop._core_lock:CoreLock"

STATE_LINE = "batch.put(load.space, STATE, encode_state(max(time, replica.time), config, joined, joined))"
AT_END = "load.own_position, load.start = self._outside.synced(), replica.bounds.records[0]"
HEIR_LINE = "replica = Replica(parent.space, child.identity, state, parent.made_at, suffix=suffix)"
NAMED = "return tuple(sorted((*(host.assignment for host in self.hosts), *self.rules.former)))"
STANDING = 'standing = self.won.get(key) or unsynced.get(key) or read(space, row_key(RECORD_ROW, b"", 0, key))'
OF_TOLD = "if replica is None or peer.node not in replica.sharers or row.assignment not in replica.assigned:"
PARENTS_TOLD = """status = self.statuses.get(replica)
        self.let_go(replica)
        for child in children if status is not None else ():
            assigned = dict(zip(replica.assigned, child.assigned, strict=True))
            self.statuses[child] = status._replace(assignment=assigned[status.assignment], config=child.config)"""
CHILD_OF_FORMER = """replica = None if row is None else by_partition.get(row.partition) or next(
            (child for child in by_partition.values() if row.assignment in child.rules.former), None)"""

ROWS = (
    # -- replication.md, "The rules, and the run that each prevents" --
    ("a record is merged against what can be read", f"{IN_MERGED}.merge",
     STANDING, STANDING.replace("unsynced.get(key) or ", ""), REPLICAS),
    ("a covered record is merged again", f"{IN_MERGED}.merge",
     "if count <= clock_counter(covered, covered_size, origin):", "if False:", REPLICAS),
    ("a record is merged against what came before its message", f"{IN_MERGED}.merge",
     STANDING, STANDING.replace("self.won.get(key) or ", ""), MERGING),
    ("a record of an origin that has ended is merged", f"{IN_MERGED}.merge",
     "if count > clock_counter(bytes_of(after), PyBytes_GET_SIZE(after), origin):", "if False:", MERGING),
    ("a merged delete is not listed by its time", "gossipkv.replication._merging:put_records",
     "if head_of(data)[DOT_END] == KIND_DELETED:", "if False:", MERGING),
    ("own writes are sent as late as those of others are noted",
     "gossipkv.replication.replica.dirty:DirtyReplicas.goes_on",
     "return entry.is_own or entry.joining is not None or entry.replica in self.unsettled", "return False",
     REPLICAS),
    ("what is relayed waits as what is not", "gossipkv.replication.stream.sender:LogSender.is_passing",
     "return bool(self._relayed or self._back or self._gap or self._lagging)", "return False", REPLICAS),
    ("an entry is merged although one before it is missing", f"{IN_MERGED}.take",
     "if self.joining is None and not covers(self.after, before):", "if False:", REPLICAS),
    ("a place is beyond an entry that is not covered", f"{IN_FEED}.place",
     "return self._place if self._gap and not self._back else self._shared.covered_to", "return self._shared.at", FEED),
    # -- replication.md, "Loading" --
    ("one host that can feed keeps a copy from loading what that host lacks", f"{IN_LOADING}._may_begin",
     "if all(clock.covers(reached, status.clock) for _, status in statuses):",
     "if len(self.below[replica]) < len(statuses):", LOADING),
    ("others are fed by a log from before a load", f"{IN_LOADING}._switch",
     STATE_LINE, STATE_LINE.replace("joined))", "replica.appended))"), LOADING),
    ("the clock is told before the last page", f"{IN_LOADING}._at_end", AT_END,
     f"{AT_END}\n            replica.synced = clock.merge(replica.synced, clock.named(load.clock, replica.named))",
     LOADING),
    ("a copy takes entries during its last page", f"{IN_MERGED}.take",
     "if replica.is_frozen or entry.config > replica.config:", "if entry.config > replica.config:", LOADING),
    # -- replication.md, "Moves" --
    ("entries of a newer config are taken", f"{IN_MERGED}.take",
     "if replica.is_frozen or entry.config > replica.config:", "if replica.is_frozen:", REPLICAS),
    ("what a target merged stays when it loads anew", f"{IN_LOADING}._look_at_joining",
     "self._begin_anew(replica, now)", "replica.joining = joining._replace(is_loaded=False, spans=())", TARGETS),
    ("a host that has not adopted a config is a reporter", f"{IN_STEPS}:_adopted_report",
     "is_of = report is not None and report.assignment == host.assignment and report.config >= replica.config",
     "is_of = report is not None and report.assignment == host.assignment", STEPS),
    ("a target is AVAILABLE without its slot's other host", f"{IN_STEPS}:_of_target",
     "is_covered = source is None or source in covered or (source not in adopted and view.waited)",
     "is_covered = True", STEPS),
    ("a former assignment is settled by the hosts that answer", f"{IN_STEPS}:_settled",
     "if len(clocks) < len(hosts):", "if not clocks:", STEPS),
    ("a target confirms for a slot that has no other host", "gossipkv.replication.replica.replica:_seating",
     "confirming = dict.fromkeys(role.slot for role in roles if role.counts and role.available)",
     "confirming = dict.fromkeys(role.slot for role in roles if role.counts)", LEVELS),
    ("a LEAVING host originates", f"{IN_COPY}.hosts",
     "self.originates = self.role is None or (self.role.available and self.role.counts)",
     "self.originates = self.role is None or self.role.available", COPY),
    ("a departed copy answers a session that has seen a newer map",
     "gossipkv.table.session.readiness:ReplicaReadiness._unready",
     "if replica in replication.departed and seen.config > replica.config:", "if False:",
     f"{UNIT}/table/session/test_readiness.py"),
    # -- replication.md, "Splits" --
    ("a child's clock has no former assignments", f"{IN_DIVIDING}:ChildReplica.named",
     NAMED, "return tuple(sorted(host.assignment for host in self.hosts))", DIVIDING),
    ("an heir originates under its parent's assignment", f"{IN_DIVIDING}:_put", HEIR_LINE,
     HEIR_LINE.replace("child.identity", "child.identity._replace(assignment=parent.assignment)"), DIVIDING),
    ("what hosts have told of the parent is told of its heirs", f"{IN_FEED}.divided",
     "self.let_go(replica)", PARENTS_TOLD, DIVIDING),
    ("each child reads the log of its space for itself", f"{IN_FEED}._begin",
     "cursor = None if is_alone else self._joined.get(replica.space)", "cursor = None", DIVIDING),
    ("the log of a parent is read for children that lack nothing", f"{IN_SPACES}:_PageShare.entries",
     "replica: [] for replica in ranges.inside(self._bounds) if lacks(replica, self.after)",
     "replica: [] for replica in ranges.inside(self._bounds)", DIVIDING),
    ("a node stays LEAVING where the one that replaced it is taken by force",
     "gossipkv.register.metadata.partitions:_without",
     "replaced = (removed.slot, AssignmentState.LEAVING) if removed.state is AssignmentState.AVAILABLE else None",
     "replaced = None",
     f"{UNIT}/register/metadata/test_partitions.py"),
    ("others feed a copy records of its own that it never gave out", IN_TAKING,
     "if replica.never_gave_out(ends):", "if False:", REPLICAS),
    ("who accepts a put goes by its own clock alone", "gossipkv.table.controllers.smear_buffer:SmearBuffer.accept",
     "wall_ms = skew.time_ms(hosts)", "wall_ms = replication.now_ms()", ACCEPTING),
    ("a table's ranges are met with those of others", f"{IN_SPACES}:Spaces.index_ranges",
     "if replica.partition[0] == table:", "if True:", SPACES),
    ("a child's entry of several batches stands at the last of them", f"{IN_SPACES}:Spaces.read",
     "part.after = after", "part.after, part._position = after, position", DIVIDING),
    ("a node is ready before it knows the maps of its replicas",
     "gossipkv.replication.replica_set:ReplicaSet.can_answer",
     "return are_heard and all(table in self.maps for table, _ in self.by_partition)", "return are_heard", REPLICAS),
    ("a few wrong clocks say where a series is divided ahead", "gossipkv.table.controllers.write_stats:_covered",
     "room = BELIEVED * (middle[-1] - middle[0])", "room = 1 << 62", f"{UNIT}/table/controllers/test_write_stats.py"),
    ("a child rests as if it had been moved", "gossipkv.placement.lately:Lately.read",
     "self.divided[partition.id] = now", "self.divided[partition.id] = self.moved[partition.id, 0] = now",
     f"{UNIT}/placement/test_ranges.py"),
    # -- replication.md, "Force-join" --
    ("a range goes on with a copy of a part of it", "gossipkv.table.rpc.force_join:chosen",
     "usable = {part.name: part for part in kept if part.clock is not None and part.bounds.covers(bounds)}",
     "usable = {part.name: part for part in kept if part.clock is not None}",
     f"{UNIT}/table/rpc/test_force_join_slow.py"),
    ("a range goes on with a copy that was not whole", "gossipkv.replication.shell:Replication.kept",
     "if state is None or self._store.get(part.space, JOINING + part.suffix) is not None:", "if state is None:",
     KEEPING),
    ("a range begins anew and names its former assignments", "gossipkv.register.metadata.partitions:_refound",
     "after = Partition(new, (), (), ends[-MAX_ENDS:], kept)",
     "after = Partition(new, (), found.named, ends[-MAX_ENDS:], kept)", "tests/simulation/test_refounding.py"),
    # -- replication.md, "Smearing" --
    ("a smeared put is forwarded under a new time", IN_SIFT,
     "put = write if is_lately else write._replace(time=0)", "put = write._replace(time=0)", ACCEPTING),
    ("a smeared put wins over a later one", IN_SIFT,
     'if put.time and order is not None and put.time <= int.from_bytes(order[:TIME_BYTES], "big"):',
     "if False and order is not None:", ACCEPTING),
    # -- `loop/core_lock.pyx`, `scan/scans.pyx`: the core lock, and the files of a table that is no longer served --
    ("a turn is entered amid a step", f"{IN_TURN}.__enter__", "while self.taken:", "while False:", TURN),
    ("a pump goes on before a thread that waits", f"{IN_TURN}.take",
     "while self.taken or self.wanted > 0:", "while self.taken:", TURN),
    ("a thread that had the turn wakes nobody", f"{IN_TURN}.__exit__",
     "if asleep and self.waker >= 0:", "if False:", f"{TURN}::test_a_sleeping_pump_is_woken"),
    ("files are let go of while a scan reads them", "gossipkv.serving.scan._scans:release_unread",
     "if table.readers > 0:", "if False:", SWAP),
    ("the files of a scan that has ended are held", "gossipkv.serving.published._cold_pages:let_go",
     "table.readers -= 1", "pass", SWAP),
)  # fmt: skip

MUTANTS: tuple[Mutant, ...] = (
    *starmap(planted, ROWS),
    # -- replication.md, "The rules": a place is the first entry that the target has not covered --
    Mutant(
        "a target that has lost entries is fed from its old place on",
        (
            Edit(f"{IN_FEED}._at_end", "self._begin(replica, replica.made_at)", "pass"),
            Edit(f"{IN_FEED}._may_pass", "self._begin(replica, replica.made_at)", "pass"),
        ),
        (LOADING,),
        "property",
    ),
    # -- replication.md, "Splits": a host that has adopted takes nothing under the parent --
    Mutant(
        "an entry of the parent is taken by a child",
        (
            Edit(IN_TAKING, "replica = None if row is None else by_partition.get(row.partition)", CHILD_OF_FORMER),
            Edit(IN_TAKING, OF_TOLD, OF_TOLD.replace("replica.assigned", "replica.named")),
        ),
        (DIVIDING,),
        "property",
    ),
)
