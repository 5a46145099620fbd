"""Mutants of replication: each leaves out a rule of `docs/development/replication.md`."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted

AIMED = "tests/simulation/test_replication_aimed.py"
COPY = "tests/unit/replication/test_copy.py"
FEED = "tests/unit/replication/test_feed.py"
LEVELS = "tests/unit/replication/test_levels.py"
REPLICAS = "tests/unit/replication/test_replicas.py"

IN_COPY = "gossipkv.replication.copy:Copy"
IN_FEED = "gossipkv.replication.feed:Feed"
IN_REPLICAS = "gossipkv.replication.replicas:Replicas"

MUTANTS_OF_REPLICATION = (
    planted(
        "shown before synced",
        "gossipkv.replication.levels:Levels.reached",
        "here = clock.counter(self._copy.synced, origin)",
        "here = clock.counter(self._copy.appended, origin)",
        REPLICAS,
    ),
    Mutant(
        "fed before synced",
        (
            Edit(
                f"{IN_REPLICAS}._append",
                "entry.copy.appends(entry)",
                "entry.copy.appends(entry)\n        self.tail.append(entries)",
            ),
            Edit(f"{IN_REPLICAS}._synced", "self.tail.append(fed)", "pass"),
        ),
        (REPLICAS, AIMED),
        "property",
    ),
    planted(
        "what is read for a feed counts for a copy that is told of meanwhile",
        f"{IN_FEED}.hears",
        "self._shared.look_anew()  # It reads nothing of this one.",
        "pass",
        FEED,
    ),
    planted(
        "two looks share a cursor",
        "gossipkv.replication.shell:Replication._look",
        "cursor = self._store.follow(spaces, look.position)",
        "cursor = look.lane.cursor = self._store.follow(spaces, look.position)",
        "tests/unit/replication/test_looks.py",
    ),
    planted(
        "confirmed before synced",
        "gossipkv.replication.peer:answer_row",
        "counters = counters_of(copy.told_clock, row.ids)",
        "counters = counters_of(copy.appended, row.ids)",
        REPLICAS,
    ),
    planted(
        "answered before synced",
        f"{IN_REPLICAS}.fed",
        "if not waits:",
        "if waits >= 0:",
        REPLICAS,
    ),
    planted(
        "merged against what can be read",
        f"{IN_COPY}.merge",
        "standing = won.get(key) or self._between.get(key) or read(self.space, RECORD + key)",
        "standing = won.get(key) or read(self.space, RECORD + key)",
        REPLICAS,
    ),
    planted(
        "a covered record is merged again",
        f"{IN_COPY}.merge",
        "if clock.covers(before, dot) or not clock.covers(after, dot):  # Of what the map does not name any more.",
        "if not clock.covers(after, dot):",
        REPLICAS,
    ),
    planted(
        "a record is ahead of the clock",
        f"{IN_COPY}.merge",
        "if clock.covers(before, dot) or not clock.covers(after, dot):  # Of what the map does not name any more.",
        "if clock.covers(before, dot):",
        REPLICAS,
    ),
    planted(
        "the earlier record stays",
        f"{IN_COPY}.merge",
        "if standing is None or standing[:ORDER_BYTES] < data[:ORDER_BYTES]:",
        "if standing is None:",
        REPLICAS,
    ),
    planted(
        "the clock before is no matter",
        "gossipkv.replication.taking:Intake._take_or_keep",
        "if taking.follows(entry):",
        "if True:",
        REPLICAS,
        by="assertion of Copy.merge",
    ),
    planted(
        "the clock moves without its records",
        f"{IN_COPY}.take",
        "self._put(batch, key, data)",
        "pass",
        REPLICAS,
    ),
    planted(
        "what was taken goes as one's own",
        f"{IN_COPY}.take",
        "return self._finished(batch, Entry(self, records, merged.before, after, is_own=False, joining=joining))",
        "return self._finished(batch, Entry(self, records, merged.before, after, is_own=True, joining=joining))",
        COPY,
        AIMED,
    ),
    planted(
        "the log's own is all that moves the own counter",
        f"{IN_COPY}.entry_of",
        "entry.is_own = entry.origins == (self.assignment,) and len(entry.records) == rise",
        "entry.is_own = rise > 0",
        COPY,
    ),
    planted(
        "a config goes back by an answer that is late",
        f"{IN_FEED}.hears",
        "if merged != told.clock or told.config < before.config:",
        "if merged != told.clock and told.config >= before.config:",
        REPLICAS,
    ),
    planted(
        "a place is beyond what is not covered",
        f"{IN_FEED}._advance",
        "self._place = self._first_open(self._shared)",
        "self._place = self._shared.at",
        FEED,
        AIMED,
    ),
    planted(
        "others' entries are never sent",
        f"{IN_FEED}._goes",
        "or self._back",
        "or False",
        FEED,
        AIMED,
    ),
    planted(
        "a dead origin is waited for",
        f"{IN_FEED}._is_orphaned",
        "return not item.is_own and not was_sent and any(self._is_broken(item.copy, one) for one in item.origins)",
        "return False",
        FEED,
    ),
    planted(
        "what is under way lies",
        f"{IN_FEED}._lies",
        "if item.under_way:",
        "if False:",
        FEED,
    ),
    planted(
        "an origin's entries never go like one's own",
        "gossipkv.replication.feed:RELAYED_FOR",
        "RELAYED_FOR: Final = 5  # Times the relay time.",
        "RELAYED_FOR: Final = 0",
        FEED,
        AIMED,
    ),
    planted(
        "news renew nothing",
        f"{IN_FEED}.answered",
        "if (copy, origin) in self._relayed:",
        "if False:",
        FEED,
    ),
    planted(
        "left out for a copy that is not available",
        f"{IN_FEED}._goes",
        "or not self.told[entry.copy].available",
        "or False",
        FEED,
    ),
    planted(
        "a copy that cannot take has no lane",
        f"{IN_FEED}.connected",
        "self._lanes.setdefault(copy, Lane(self._place, copy))",
        "pass",
        FEED,
    ),
    planted(
        "what was kept is not tried again",
        f"{IN_REPLICAS}.fed",
        "self._intake.retry(self.peers.values())",
        "pass",
        REPLICAS,
    ),
    planted(
        "what was kept is kept for ever",
        f"{IN_REPLICAS}.pump",
        "peer.kept.forget(now, self.relay_s)",
        "pass",
        REPLICAS,
    ),
    planted(
        "time is not merged",
        f"{IN_COPY}.merge",
        'self.time.merge(int.from_bytes(data[:8], "big"))',
        "pass",
        REPLICAS,
    ),
    planted(
        "time is not restored",
        f"{IN_COPY}.__init__",
        "self.time = HybridTime(time)",
        "self.time = HybridTime()",
        REPLICAS,
    ),
    planted(
        "a counter of a former life is given out",
        f"{IN_REPLICAS}.may_originate",
        "return self._outside.now() - (self._began if since is None else since) >= ASK_OWN_S",
        "return True",
        AIMED,
    ),
    planted(
        "an older copy of a disk is used",
        f"{IN_REPLICAS}._hear",
        "if clock.counter(theirs, copy.assignment) > clock.counter(copy.appended, copy.assignment) and not copy.aside:",
        "if False:",
        REPLICAS,
        AIMED,
    ),
    planted(
        "what a former link had kept is tried",
        f"{IN_REPLICAS}.told",
        "peer.kept = Kept()",
        "pass",
        REPLICAS,
    ),
    planted(
        "one host confirms for a slot",
        "gossipkv.replication.levels:Levels.reached",
        "slots[seat.slot] = min(slots.get(seat.slot, counter), counter)",
        "slots[seat.slot] = max(slots.get(seat.slot, counter), counter)",
        LEVELS,
    ),
    planted(
        "who leaves is to confirm",
        "gossipkv.replication.levels:Levels._counting",
        "counting = [one for one in self._copy.seated() if one[1].counts]",
        "counting = [*self._copy.seated()]",
        LEVELS,
    ),
    planted(
        "a confirmation of another config counts",
        "gossipkv.replication.levels:Levels._confirmed",
        "if told.assignment == assignment and told.config == self._copy.config:",
        "if told.assignment == assignment:",
        REPLICAS,
    ),
    planted(
        "a config is confirmed before it is synced",
        f"{IN_COPY}.adopts",
        "self.config, self.was_available = shared(config), self.originates",
        "self.config, self.was_available = (setattr(self, 'synced_config', config), config)[1], self.originates",
        REPLICAS,
    ),
    planted(
        "half of a message is taken",
        f"{IN_REPLICAS}.fed",
        "read = [*entries_of(peer, self.copies, entries)]  # All of it is right, or none is taken.",
        "read = entries_of(peer, self.copies, entries)",
        REPLICAS,
    ),
)
