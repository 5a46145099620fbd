"""Bugs by which one owner of a partition is not enough (P3)."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted

MUTANTS: tuple[Mutant, ...] = (
    planted(
        "nobody else is asked when an owner is silent",
        "gossipkv.serving.peer._relay_driver:expire_asked",
        "relay_stir(driver.relays, relay)",
        "set_due(driver.relays, relay, relay.whole_ns)",
        "tests/unit/serving/test_forwarding.py",
    ),
    planted(
        "an owner that pauses is given up after the proxy_timeout",
        "gossipkv.serving.peer._relay_driver:expire_asked",
        "elif now_ns >= relay.whole_ns and not reason_of(driver, relay).is_awaited(driver, relay):",
        "elif now_ns >= relay.whole_ns:",
        "tests/unit/serving/test_forwarding.py",
    ),
    Mutant(
        "an answer that has begun and stalls is waited for",
        (
            Edit(
                "gossipkv.serving.peer._relay_driver:expire_asked",
                "elif heard_ns > 0 and now_ns < heard_ns + driver.stage_ns:",
                "elif heard_ns > 0:",
            ),
            Edit(
                "gossipkv.serving.peer._relay_driver:expire_asked",
                "set_due(driver.relays, relay, min(heard_ns + driver.stage_ns, relay.limit_ns))",
                "set_due(driver.relays, relay, now_ns + driver.stage_ns)",
            ),
        ),
        ("tests/unit/serving/test_forwarding.py",),
        "property",
    ),
    planted(
        "a read waits for a slow replica",
        "gossipkv.table.records.forward:HostRequest._go_on",
        "until = min(until, now + request.services.stage_s)",
        "pass",
        "tests/unit/table/records/test_read.py",
    ),
    planted(
        "a record that is damaged here is damaged everywhere",
        "gossipkv.table.records.read:ReadRequest.answer_here",
        "except (NotServed, NotReady, Unavailable, Corrupt, StorageError, ProtocolError):",
        "except (NotServed, NotReady):",
        "tests/unit/table/records/test_read.py",
    ),
    planted(
        "a newer epoch is taken for a withdrawal",
        "gossipkv.dataset.cluster.statements:MemberStatements.hear",
        "member.former = member.holds()",
        "member.former = {}",
        "tests/unit/dataset/cluster/test_statements.py",
    ),
    planted(
        "a scan waits for a silent owner",
        "gossipkv.serving.scan_elsewhere:_GatheredPage._is_due",
        "return not part.is_pending or (part.outcome == ASKED and part.due_s <= now_s)",
        "return not part.is_pending",
        "tests/unit/serving/test_scan_elsewhere.py",
    ),
    planted(
        "the records behind an owner's last one are skipped",
        "gossipkv.serving.scan._merge:first_of",
        "if heads[i].more:",
        "if False:",
        "tests/unit/serving/test_scan_merge.py",
    ),
    planted(
        "a leaving node says that it can be counted on",
        "gossipkv.dataset.cluster.core:DatabaseCore.answer",
        "is_going = self._retiring.is_leaving(version) or self.membership.leaving_since_ms is not None",
        "is_going = self._retiring.is_leaving(version)",
        "tests/unit/dataset/cluster/test_leaving.py",
    ),
    planted(
        "a replica that is not ready is the last that is asked",
        "gossipkv.table.records.forward:HostRequest.here_done",
        "if not isinstance(result, GossipKVError) or not self._may_go_on(result):",
        "if True:",
        "tests/unit/table/session/test_readiness.py",
    ),
    planted(
        "confirmations do not shorten a suspicion",
        "gossipkv.gossip.membership.lifeguard:Suspicion.confirm",
        "self.deadline_ms = min(self.deadline_ms, self._started_ms + time_ms)",
        "self.deadline_ms = self._started_ms + self._most_ms",
        "crashes",
        by="the_dead_are_found",
    ),
    planted(
        "a probe has no TCP fallback",
        "gossipkv.gossip.membership.detector:Detector._answered",
        "self._listener.on_reply(reply, now_ms)",
        "pass",
        "only_connections",
        by="the_healthy_live",
    ),
)
