"""The kill table: patches that break membership, tree, what a node keeps, reads or who starts it, and what must notice.

A mutant edits single lines, each named by its place: module, function (or table), and the line as it stands there
without its indentation.  So code can move and be laid out anew without a change here.  A mutant is killed when a
scenario of `tests/simulation/scenarios.py`, or a run of drawn faults, says that a promise is broken: what members
*show* is wrong, too late, or too much.  An exception or a failed assertion in the patched code kills nothing, but where
a mutant names the assertion: then what it breaks is seen before anybody shows it.
"""

from __future__ import annotations

from tests.nightly.mutants.access import MUTANTS_OF_ACCESS
from tests.nightly.mutants.branches import MUTANTS_OF_BRANCHES
from tests.nightly.mutants.copies import MUTANTS_OF_COPIES
from tests.nightly.mutants.datasets import MUTANTS_OF_DATASETS
from tests.nightly.mutants.disk import MUTANTS_OF_THE_DISK
from tests.nightly.mutants.divisions import MUTANTS_OF_DIVISIONS
from tests.nightly.mutants.forwarding import MUTANTS_OF_FORWARDING
from tests.nightly.mutants.gateway import MUTANTS_OF_THE_GATEWAY
from tests.nightly.mutants.hosting import MUTANTS_OF_HOSTING
from tests.nightly.mutants.http import MUTANTS_OF_HTTP
from tests.nightly.mutants.loading import MUTANTS_OF_LOADING
from tests.nightly.mutants.loadtest import MUTANTS_OF_THE_LOAD_TEST
from tests.nightly.mutants.lost_maps import MUTANTS_OF_LOST_MAPS
from tests.nightly.mutants.metadata import MUTANTS_OF_METADATA
from tests.nightly.mutants.metrics import MUTANTS_OF_METRICS
from tests.nightly.mutants.moves import MUTANTS_OF_MOVES
from tests.nightly.mutants.mutant import GOSSIP, Edit, Mutant, planted
from tests.nightly.mutants.page import MUTANTS_OF_THE_PAGE
from tests.nightly.mutants.placement import MUTANTS_OF_PLACEMENT
from tests.nightly.mutants.plain_http import MUTANTS_OF_PLAIN_HTTP
from tests.nightly.mutants.pumps import MUTANTS_OF_PUMPS
from tests.nightly.mutants.ranges import MUTANTS_OF_RANGES
from tests.nightly.mutants.records import MUTANTS_OF_RECORDS
from tests.nightly.mutants.refounding import MUTANTS_OF_REFOUNDING
from tests.nightly.mutants.register import MUTANTS_OF_THE_REGISTER
from tests.nightly.mutants.replication import MUTANTS_OF_REPLICATION
from tests.nightly.mutants.report import MUTANTS_OF_REPORTS
from tests.nightly.mutants.resp import MUTANTS_OF_RESP
from tests.nightly.mutants.scans import MUTANTS_OF_SCANS
from tests.nightly.mutants.scrub import MUTANTS_OF_SCRUB
from tests.nightly.mutants.sessions import MUTANTS_OF_SESSIONS
from tests.nightly.mutants.smearing import MUTANTS_OF_SMEARING
from tests.nightly.mutants.sorting import MUTANTS_OF_SORTING
from tests.nightly.mutants.splitting import MUTANTS_OF_SPLITTING
from tests.nightly.mutants.status import MUTANTS_OF_STATUS
from tests.nightly.mutants.store import MUTANTS_OF_THE_STORE
from tests.nightly.mutants.supervisor import MUTANTS_OF_THE_SUPERVISOR
from tests.nightly.mutants.told import MUTANTS_OF_WHAT_IS_TOLD

MUTANTS = (
    *MUTANTS_OF_ACCESS,
    *MUTANTS_OF_BRANCHES,
    planted(
        "a verdict of a full exchange kills",
        f"{GOSSIP}.membership.states:NEXT",
        "(ALIVE, Said.DEAD_RECORD): SUSPECT,",
        "(ALIVE, Said.DEAD_RECORD): DEAD,",
        "partitioned",
        by="the_healthy_live",
    ),
    planted(
        "a suspicion is not refuted",
        f"{GOSSIP}.membership.self_identity:SelfIdentity._refute",
        "if (incarnation, state) <= (own.incarnation, own.state):",
        "if incarnation <= own.incarnation:",
        "partitioned",
        "lossy",
        by="the_healthy_live",
    ),
    planted(
        "a refutation has the accused incarnation",
        f"{GOSSIP}.membership.self_identity:SelfIdentity._refute",
        "self._members.put_own(own._replace(incarnation=incarnation + 1))",
        "self._members.put_own(own._replace(incarnation=incarnation))",
        "partitioned",
        "lossy",
        by="assertion of Members.put_own",
    ),
    planted(
        "who was deaf judges at once",
        f"{GOSSIP}.membership.contact:Contact.hear",
        "if now_ms - self._members.heard_ms > self._silence_ms:",
        "if False:",
        "starved_together",
        by="the_healthy_live",
    ),
    planted(
        "confirmations do not shorten a suspicion",
        f"{GOSSIP}.membership.lifeguard:Suspicion.confirm",
        "self.deadline_ms = min(self.deadline_ms, self._started_ms + time_ms)",
        "self.deadline_ms = self._started_ms + self._most_ms",
        "crashes",
        by="the_dead_are_found",
    ),
    planted(
        "an older statement is believed",
        f"{GOSSIP}.membership.beliefs:_beats",
        "return record.rank > known.rank",
        "return record.epoch >= known.epoch",
        "restarts",
        "corrupted",
        "remembered",
        by="assertion of Members.put",
    ),
    planted(
        "a late verdict is believed",
        f"{GOSSIP}.membership.beliefs:Beliefs.hear_verdict",
        "if rank > known.rank:",
        "if said.epoch >= known.epoch and said.state is not known.state:",
        "partitioned",
        "lossy",
        "3",
        "5",
        "8",
        by="assertion of Members.put",
    ),
    Mutant(
        "the dead are forgotten at once",
        (
            Edit(
                f"{GOSSIP}.membership.beliefs:Beliefs._forget_old",
                "retention = self._profile.dead_retention_ms",
                "retention = 1000",
            ),
            Edit(
                f"{GOSSIP}.membership.beliefs:Beliefs._remember",
                "self._forgets_ms = now_ms + self._profile.dead_retention_ms",
                "self._forgets_ms = now_ms + 1000",
            ),
        ),
        ("remembered",),
        "the_dead_are_remembered",
    ),
    planted(
        "a suspicion outlives its refutation",
        f"{GOSSIP}.membership.beliefs:Beliefs._become",
        "self._suspicions.pop(member.id, None)",
        "pass",
        "partitioned",
        "lossy",
        by="assertion of Beliefs._become",
    ),
    planted(
        "the dead are drawn as the living are",
        f"{GOSSIP}.membership.members:Members.put",
        "self._lose(peer)",
        "pass",
        "crashes",
        by="assertion of Members._assert_counted",
    ),
    planted(
        "who comes back is probed twice in a round",
        f"{GOSSIP}.membership.detector:Detector.newcomer",
        "if not peer.awaits_probe:",
        "if True:",
        "crashes",
        by="assertion of Detector._next",
    ),
    planted(
        "the last timer that was set counts as the next",
        f"{GOSSIP}.membership.timers:Timers.at",
        "self.next_ms = min(self.next_ms, at_ms)",
        "self.next_ms = at_ms",
        "at_rest",
        by="assertion of Timers.run",
    ),
    planted(
        "requests that fail have all probes",
        f"{GOSSIP}.membership.detector:Detector._next",
        "while self._hints and not self._was_hinted:",
        "while self._hints:",
        "tests/unit/gossip/membership/test_detector.py",
    ),
    planted(
        "no indirect probes",
        f"{GOSSIP}.membership.detector:Detector._ask_others",
        "helpers = self._members.draw(self._random, self._profile.indirect_probes, member.id)",
        "helpers = self._members.draw(self._random, 0, member.id)",
        "cut_pairs",
        by="the_healthy_are_not_suspected",
    ),
    planted(
        "no TCP fallback",
        f"{GOSSIP}.membership.detector:Detector._answered",
        "self._listener.on_reply(reply, now_ms)",
        "pass",
        "only_connections",
        by="the_healthy_live",
    ),
    planted(
        "a departure is not told",
        f"{GOSSIP}.membership.self_identity:SelfIdentity.leave",
        "self._members.put_own(self._members.own._replace(state=LEFT))",
        "pass",
        "leave",
        by="leavers_are_gone",
    ),
    planted(
        "a wrong checksum is no matter",
        f"{GOSSIP}.packets.envelope:Envelope.unwrap",
        'raise Dropped("short" if len(packet) < HEADER_BYTES else "checksum")',
        "pass",
        "corrupted",
        by="only_real_states",
    ),
    planted(
        "any cluster will do",
        f"{GOSSIP}.packets.envelope:Envelope._foreign",
        "if packet[3:ID_AT] != self._mark:",
        "if False:",
        "two_clusters",
        by="clusters_never_mix",
    ),
    planted(
        "rumours are told once",
        f"{GOSSIP}.profile:Profile.retransmits",
        "return max(self.retransmit_floor, self.retransmit_multiplier * math.ceil(math.log10(members + 1)))",
        "return 1",
        "rumours_alone",
        by="changes_spread",
    ),
    planted(
        "equal hashes for unequal branches",
        f"{GOSSIP}.anti_entropy.state_hash:StateHash._hash_of",
        "version = head.version if head.epoch == member.epoch else 0",
        "version = 0",
        "silent_change",
        by="changes_spread",
    ),
    planted(
        "nobody exchanges on a difference",
        f"{GOSSIP}.anti_entropy.exchange:Exchange.differs",
        "if still_ms >= self._spread_ms() or now_ms - self._last_ms >= LONGEST_WAIT_MS:",
        "if False:",
        "silent_change",
        "withdrawn",
        by="changes_spread",
    ),
    planted(
        "never isolated",
        f"{GOSSIP}.membership.contact:Contact.is_isolated",
        "return now_ms - self._members.heard_ms > self._profile.suspicion_least_ms(self._members.reachable) // 2",
        "return False",
        "alone",
        by="isolated_says_so",
    ),
    planted(
        "isolated at twice the time",
        f"{GOSSIP}.membership.contact:Contact.is_isolated",
        "return now_ms - self._members.heard_ms > self._profile.suspicion_least_ms(self._members.reachable) // 2",
        "return now_ms - self._members.heard_ms > self._profile.suspicion_least_ms(self._members.reachable)",
        "tests/unit/gossip/membership/test_pitfalls.py",
    ),
    planted(
        "isolated at half the time",
        f"{GOSSIP}.membership.contact:Contact.is_isolated",
        "return now_ms - self._members.heard_ms > self._profile.suspicion_least_ms(self._members.reachable) // 2",
        "return now_ms - self._members.heard_ms > self._profile.suspicion_least_ms(self._members.reachable) // 4",
        "tests/unit/gossip/membership/test_pitfalls.py",
    ),
    planted(
        "who is asked once",
        f"{GOSSIP}.membership.namesakes:Namesakes._ask",
        "elif other is None and tries > 1:",
        "elif other is None and tries > 2:",
        "tests/unit/gossip/membership/test_self_identity.py",
    ),
    planted(
        "stops though established and unsealed",
        f"{GOSSIP}.membership.namesakes:Namesakes._compare",
        "may_stop = sealed or self._age_ms(now_ms) < self._profile.converge_ms",
        "may_stop = True",
        "tests/unit/gossip/membership/test_namesakes.py",
    ),
    planted(
        "the younger goes on",
        f"{GOSSIP}.membership.namesakes:must_stop",
        "return elder_by_ms < -slack_ms or (elder_by_ms <= slack_ms and loses)",
        "return elder_by_ms <= slack_ms and loses",
        "tests/unit/gossip/membership/test_namesakes.py",
    ),
    planted(
        "a uuid stops the elder",
        f"{GOSSIP}.membership.namesakes:must_stop",
        "return elder_by_ms < -slack_ms or (elder_by_ms <= slack_ms and loses)",
        "return elder_by_ms < -slack_ms or loses",
        "tests/unit/gossip/membership/test_namesakes.py",
    ),
    planted(
        "never backs off",
        f"{GOSSIP}.membership.namesakes:Namesakes._look",
        "self._rest_ms = min(max(self._profile.probe_interval_ms, 2 * self._rest_ms), MOST_REST_MS)",
        "self._rest_ms = self._profile.probe_interval_ms",
        "tests/nightly/unit/gossip/membership/test_namesakes.py::test_a_flood_of_claims_costs_little",
    ),
    planted(
        "a claim that was lost is kept",
        "gossipkv.placement.shard_claim:ShardClaim._step",
        "self._lost = any(other < self._mine for other in others.get(self.shard_id, []))",
        "self._lost = False",
        "crashes",
        "at_rest",
        "all_at_once",
        by="healed_in_time",
    ),
    planted(
        "a claim is confirmed before objectors are heard",
        "gossipkv.placement.shard_claim:ShardClaim._step",
        "if isolated or self._isolated:",
        "if isolated:",
        "tests/unit/placement/test_shard_claim.py",
    ),
    planted(
        "isolation does not hold up a claim",
        "gossipkv.node.gossip:ShardIdTimer.step",
        "shard_id = self._claim.step(now_ms=now_ms, isolated=self._core.isolated(now_ms=now_ms))",
        "shard_id = self._claim.step(now_ms=now_ms)",
        "tests/unit/node/test_gossip.py",
    ),
    planted(
        "the claim is left out",
        "gossipkv.node.gossip:ShardIdTimer.start",
        "self.wakes_at_ms = now_ms + LOOK_MS * self._waits",
        "pass",
        "crashes",
        "at_rest",
        "all_at_once",
        by="healed_in_time",
    ),
    planted(
        "dead by record does not hasten",
        f"{GOSSIP}.membership.beliefs:Beliefs._turn",
        "if said is Said.DEAD_RECORD and state is SUSPECT:",
        "if False:",
        "told_of_a_death",
        by="healed_in_time",
    ),
    planted(
        "a version that is let go stays open",
        "gossipkv.dataset.lifecycle.copies:Copies._take_out",
        "version = self.versions.pop(life.name, None)",
        "version = self.versions.get(life.name)",
        "tests/unit/dataset/test_hold.py",
        by="assertion of Copies._close",
    ),
    planted(
        "a launcher without descriptors spins",
        "gossipkv.launcher.supervisor:Supervisor._accept",
        "time.sleep(ACCEPT_PAUSE_S)",
        "pass",
        "tests/unit/launcher/test_fleet.py",
    ),
    planted(
        "what was built is not said to be open",
        "gossipkv.dataset.lifecycle.copies:Copies._put_in_place",
        "copy.finish(version.identity, version.here)",
        "copy.take(CopyEvent.FINISH)",
        "tests/unit/dataset/test_hold.py",
        by="assertion of check",
    ),
    *MUTANTS_OF_DATASETS,
    *MUTANTS_OF_COPIES,
    *MUTANTS_OF_HTTP,
    *MUTANTS_OF_PLACEMENT,
    *MUTANTS_OF_RANGES,
    *MUTANTS_OF_RECORDS,
    *MUTANTS_OF_LOADING,
    *MUTANTS_OF_REPLICATION,
    *MUTANTS_OF_MOVES,
    *MUTANTS_OF_REFOUNDING,
    *MUTANTS_OF_SPLITTING,
    *MUTANTS_OF_HOSTING,
    *MUTANTS_OF_DIVISIONS,
    *MUTANTS_OF_SMEARING,
    *MUTANTS_OF_SESSIONS,
    *MUTANTS_OF_REPORTS,
    *MUTANTS_OF_THE_GATEWAY,
    *MUTANTS_OF_SCRUB,
    *MUTANTS_OF_FORWARDING,
    *MUTANTS_OF_PLAIN_HTTP,
    *MUTANTS_OF_RESP,
    *MUTANTS_OF_SCANS,
    *MUTANTS_OF_THE_LOAD_TEST,
    *MUTANTS_OF_LOST_MAPS,
    *MUTANTS_OF_PUMPS,
    *MUTANTS_OF_SORTING,
    *MUTANTS_OF_THE_DISK,
    *MUTANTS_OF_STATUS,
    *MUTANTS_OF_THE_STORE,
    *MUTANTS_OF_THE_SUPERVISOR,
    *MUTANTS_OF_METRICS,
    *MUTANTS_OF_METADATA,
    *MUTANTS_OF_THE_PAGE,
    *MUTANTS_OF_WHAT_IS_TOLD,
    *MUTANTS_OF_THE_REGISTER,
)
