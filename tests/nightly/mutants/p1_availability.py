"""Bugs that make a read wait for other nodes, or make a stopping node fail reads (P1)."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

MUTANTS: tuple[Mutant, ...] = (
    planted(
        "suspected owners are not asked",
        "gossipkv.serving.peer._peers:Peers.next_owner",
        "if not peer.known or rank > least:",
        "if not peer.known or peer.state > 0 or rank > least:",
        "tests/unit/serving/test_forwarding.py",
    ),
    planted(
        "a restart waits until the list of members is still",
        "gossipkv.dataset.cluster.convergence:Convergence.__init__",
        "self._ring: frozenset[str] | None = frozenset(self._claims.values()) or None",
        "self._ring: frozenset[str] | None = None",
        "tests/unit/dataset/cluster/test_convergence.py",
    ),
    planted(
        "the owners of the active version are not written down",
        "gossipkv.dataset.lifecycle.switching:Switching.note_owners",
        "self.note_change()",
        "pass",
        "tests/unit/dataset/test_remembered.py",
    ),
    planted(
        "a member that has left is not asked although it answers",
        "gossipkv.dataset.cluster.routes:DatasetRoutes._owner",
        "return Owner(member.name, member.uuid, member.address)",
        "return None if member.state is MemberStanding.LEFT else Owner(member.name, member.uuid, member.address)",
        "tests/unit/dataset/cluster/test_statements.py",
    ),
    planted(
        "a leaving node does not wait for others to have its partitions",
        "gossipkv.dataset.cluster.view:DatabaseView.is_missed",
        "if here_alone and (may_be_news or here_alone & holders.building_at(staying)):",
        "if False:",
        "tests/simulation/test_datasets_slow.py::test_no_promise_is_broken[the_only_owner_is_stopped]",
    ),
    planted(
        "partitions of leaving nodes alone are left to time",
        "gossipkv.dataset.cluster.shares:VersionShares.step",
        "mine |= self._left_to_this(holders, reassignment, ring)",
        "pass",
        "tests/simulation/test_datasets_slow.py::test_no_promise_is_broken[the_only_owner_is_stopped]",
    ),
    planted(
        "a leaving node forgets the gates that it has answered",
        "gossipkv.dataset.cluster.view:DatabaseView.is_missed",
        "if version not in active and not (may_be_news and is_newer):",
        "if version not in active:",
        "tests/unit/dataset/cluster/test_leaving.py",
    ),
    planted(
        "a read waits for the register",
        "gossipkv.table.session.readiness:ReplicaReadiness._unready",
        "if seen.config > replication.maps.get(replica.identity.table, 0):",
        "if seen.config >= replication.maps.get(replica.identity.table, 0):",
        "tests/unit/table/test_ready_on_the_way.py",
    ),
    planted(
        "a late node waits for owners that do not answer",
        "gossipkv.dataset.cluster.gates:Gates._waits_for_newer_until_ms",
        "return (now_ms if gate is None or gate.since_ms is None else gate.since_ms) + self._terms.grace_ms",
        "return now_ms + self._terms.grace_ms",
        "tests/unit/dataset/cluster/test_gate_waits.py",
    ),
    planted(
        "reads end when a sync fails",
        "gossipkv.storage.engine.engine:Engine.check_readable",
        "if not self.has_failed:",
        "if True:",
        "tests/unit/storage/engine/test_store_faults.py",
    ),
    planted(
        "a draining node says that it is ready",
        "gossipkv.http.health:READY",
        '("draining", False, "is not draining", "is draining, and about to end"),',
        '("draining", True, "is not draining", "is draining, and about to end"),',
        "tests/unit/http/test_health.py",
    ),
    planted(
        "a store that does not let its works go on stays open",
        "gossipkv.table.controllers.supervisor:Controllers.run",
        "self._tables.replication.fail(failure)",
        "pass",
        "tests/unit/table/controllers/test_supervisor.py",
    ),
    planted(
        "who decides goes on with a store that has failed",
        "gossipkv.table.service:TableService.has_ended",
        "return self._opened is not self.store.opened() or (",
        "return (",
        "tests/simulation/test_failing_disks.py",
    ),
    planted(
        "a closed store keeps tables from being made",
        "gossipkv.register.metadata.nodes:Nodes.hosts",
        "if wanted // 2 < len(found) < wanted:",
        "if False:",
        "tests/simulation/test_shut_tables.py",
    ),
    planted(
        "a node whose tables are closed lists none",
        "gossipkv.node.names:Names.databases",
        "tables = [*self._tables.tables(), *of_others]",
        "tables = self._tables.tables()",
        "tests/simulation/test_shut_tables.py",
    ),
    planted(
        "a node without datasets never comes to know what others have",
        "gossipkv.dataset.cluster.convergence:Convergence.has_met_others",
        "return self.ids is not None or now_ms >= since_ms + self._settle_ms",
        "return self.ids is not None",
        "tests/simulation/test_unknown_names.py",
    ),
)
