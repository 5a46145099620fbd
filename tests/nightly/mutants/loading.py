"""Mutants of loading and of collecting: what is moved when, what is kept of the old, and who must have a tombstone."""

from __future__ import annotations

from tests.nightly.mutants.mutant import planted

LOADING = "gossipkv.replication.loading"
COLLECTING = "gossipkv.replication.collecting"
TRIED = ("tests/unit/replication/test_loading.py", "tests/unit/replication/test_loading_storms.py")
STAGED = ("tests/simulation/test_replication_aimed.py",)  # Over the engine: the witness of all disks speaks.
COMPARING = "gossipkv.replication.comparing"
COMPARED = ("tests/unit/replication/test_comparing.py",)
VERIFIED = ("tests/unit/table/test_verifying.py",)
UPKEEP = "gossipkv.replication.upkeep"
RESTED = ("tests/unit/replication/test_upkeep.py",)
COLLECTED = ("tests/unit/replication/test_collecting.py",)

MUTANTS_OF_LOADING = (
    planted(
        "the time is not loaded",
        f"{LOADING}:Loading._switch",
        "copy.time.merge(time)",
        "pass",
        *TRIED,
    ),
    planted(
        "the clock is told before the last page",
        f"{LOADING}:Loading._at_end",
        "load.own_position, load.start = self._outside.synced(), copy.bounds.records[0]",
        "load.own_position, load.start = self._outside.synced(), copy.bounds.records[0]\n"
        "            copy.synced = clock.merge(copy.synced, clock.named(load.clock, copy.named))",
        *TRIED,
    ),
    planted(
        "a load is not exact: its clock is that of the source's first page",
        f"{LOADING}:Loading._answered",
        "load.state = state or load.state",
        "load.state = load.state or state or b''",
        *TRIED,
    ),
    planted(
        "what the source's log has since is left out",
        f"{LOADING}:serve",
        "flat = [part for pair in _puts(batches, space, copy.bounds) for part in pair]",
        "flat: list[bytes] = []",
        *TRIED,
    ),
    planted(
        "something is taken during the last page",
        "gossipkv.replication.copy:Copy.follows",
        "if self.stands_still or entry.config > self.config:",
        "if entry.config > self.config:",
        *TRIED,
    ),
    planted(
        "something is originated during the last page",
        "gossipkv.replication.replicas:Replicas.may_originate",
        "if copy.stands_still or copy.joining is not None or not copy.originates or self.refusal(copy) is not None:",
        "if copy.joining is not None or not copy.originates or self.refusal(copy) is not None:",
        *TRIED,
    ),
    planted(
        "old records are forgotten",
        f"{LOADING}:Loading._merge",
        "if clock.covers(covered, dot):",
        "if record.dot(data):",
        *TRIED,
    ),
    planted(
        "old records that are covered are kept",
        f"{LOADING}:Loading._merge",
        "if clock.covers(covered, dot):",
        "if not record.dot(data):",
        *TRIED,
    ),
    planted(
        "an old record beats a later one of the source",
        f"{LOADING}:Loading._merge",
        "if standing is None or standing[:ORDER_BYTES] < data[:ORDER_BYTES]:",
        "if data:",
        *TRIED,
    ),
    planted(
        "what is written to the old space meanwhile is left out",
        f"{LOADING}:Loading._merge_log",
        "if load.own_position < load.until:",
        "if False:",
        *TRIED,
    ),
    planted(
        "the floor is unmoved",
        f"{LOADING}:Loading._switch",
        "batch.put(load.space, STATE, encode_state(max(time, copy.time.last), config, joined, joined))",
        "batch.put(load.space, STATE, encode_state(max(time, copy.time.last), config, joined, copy.appended))",
        *TRIED,
    ),
    planted(
        "the floor is unmoved, as disks show",
        f"{LOADING}:Loading._switch",
        "batch.put(load.space, STATE, encode_state(max(time, copy.time.last), config, joined, joined))",
        "batch.put(load.space, STATE, encode_state(max(time, copy.time.last), config, joined, copy.appended))",
        *STAGED,
    ),
    planted(
        "old records are forgotten, as disks show",
        f"{LOADING}:Loading._merge",
        "if clock.covers(covered, dot):",
        "if record.dot(data):",
        *STAGED,
    ),
    planted(
        "what the source's log has since is left out, as disks show",
        f"{LOADING}:serve",
        "flat = [part for pair in _puts(batches, space, copy.bounds) for part in pair]",
        "flat: list[bytes] = []",
        *STAGED,
    ),
    planted(
        "a torn load is left in the store",
        f"{LOADING}:Loading._tear",
        "self.litter.append(load.space)",
        "pass",
        *TRIED,
    ),
    planted(
        "who can be fed by one loads from another",
        f"{LOADING}:Loading._may_begin",
        "if node not in self._below[copy]:",
        "if False:",
        *TRIED,
    ),
    planted(
        "a log that was too small is so for good",
        f"{LOADING}:Loading._keeps_up_at",
        "return inf if is_behind else self._loaded[copy] + TOO_SMALL_S",
        "return inf",
        *TRIED,
    ),
    planted(
        "who has just loaded has kept up",
        f"{LOADING}:Loading._keeps_up_at",
        "is_behind = copy in self.loads or copy in self._since",
        "return 0.0",
        *TRIED,
    ),
    planted(
        "who has nobody to load from is looked at without end",
        f"{LOADING}:Loading._may_begin",
        "self._since[copy] = now  # If there is nobody to load from, or it is torn.",
        "pass",
        *TRIED,
    ),
    planted(
        "a config is adopted while a load ends",
        "gossipkv.replication.replicas:Replicas.place",
        "if copy.stands_still:",
        "if False:",
        *TRIED,
    ),
    planted(
        "a log that is cut under a feed is no matter",
        "gossipkv.replication.feed:Feed.read",
        "if is_cut:",
        "if False:",
        *TRIED,
    ),
    planted(
        "a tombstone is collected without the dead",
        f"{COLLECTING}:settled",
        'whole = clock.least(whole, theirs or b"")',
        "whole = clock.least(whole, theirs or whole)",
        *COLLECTED,
    ),
    planted(
        "a tombstone is collected that one lacks",
        f"{COLLECTING}:settled",
        'whole = clock.least(whole, theirs or b"")',
        "pass",
        *COLLECTED,
    ),
    planted(
        "a tombstone is collected under another config",
        f"{COLLECTING}:confirmed",
        "counts = told is not None and (told.assignment, told.config) == (host.assignment, copy.config)",
        "counts = told is not None and told.assignment == host.assignment",
        *COLLECTED,
    ),
    planted(
        "a tombstone is collected without the own cover",
        f"{COLLECTING}:collectable",
        "has_all = copy.covers_synced(joined)",
        "has_all = True",
        *COLLECTED,
    ),
    planted(
        "a copy that loads collects",
        f"{COLLECTING}:Collecting.look",
        "if copy in self._replicas.loading.loads:",
        "if False:",
        *COLLECTED,
    ),
    planted(
        "a tombstone that is written over is collected with what is there",
        f"{COLLECTING}:Collecting._batch_of",
        "is_of_it = data is not None and data[:TIME_BYTES] == time and record.is_deleted(data)",
        "is_of_it = data is not None",
        *COLLECTED,
    ),
    planted(
        "a record that is not synced yet is no matter",
        f"{COLLECTING}:Collecting._batch_of",
        "if copy.is_pending(user_key):",
        "if False:",
        *COLLECTED,
    ),
    planted(
        "a delete is not noted",
        f"{UPKEEP}:Upkeep.synced",
        "if any(record.is_deleted(data) for _, data in entry.records):",
        "if False:",
        *RESTED,
    ),
    planted(
        "the tombstones of a copy that was passed over are forgotten",
        f"{COLLECTING}:Collecting.look",
        "self._replicas.upkeep.unswept[copy] = None  # The load may be torn.",
        "pass",
        *RESTED,
    ),
    planted(
        "tombstones of a former life are not looked for",
        f"{COLLECTING}:Collecting.__init__",
        "self._knows_all = False  # Every copy that was there at the start was looked at, or is in the first round.",
        "self._knows_all = True",
        *RESTED,
    ),
    planted(
        "tombstones count in a digest",
        f"{COMPARING}:Pass.read",
        "if record.value(data) is not None:",
        "if data:",
        *COMPARED,
    ),
    planted(
        "a digest is of several clocks",
        f"{COMPARING}:Pass.is_right",
        "return copy in replicas.levels and (copy.synced, copy.space) == (self.clock, self.space)",
        "return copy in replicas.levels",
        *COMPARED,
    ),
    planted(
        "copies of other clocks are compared",
        "gossipkv.table.verifying:judge",
        "if clock.compare(digests[one].clock, digests[other].clock) != clock.EQUAL:",
        "if False:",
        *VERIFIED,
    ),
    planted(
        "a copy that is not heard of counts as equal",
        "gossipkv.table.verifying:judge",
        "if silent or behind:",
        "if behind:",
        *VERIFIED,
    ),
    planted(
        "a clock that is off originates",
        "gossipkv.replication.replicas:Replicas.refusal",
        "return copy.aside or self.skew.refusal(self._outside.now())",
        "return copy.aside",
        *COLLECTED,
    ),
    planted(
        "a time near the end is given out",
        "gossipkv.replication.replicas:Replicas.refusal",
        "if copy.time.last > MOST_TIME:",
        "if False:",
        *COLLECTED,
    ),
    planted(
        "what has ended counts as news",
        "gossipkv.replication.feed:Told.counted",
        "return self if self.config > copy.config or named == self.clock else self._replace(clock=named)",
        "return self if named else self",
        "tests/unit/replication/test_loading.py",
    ),
)
