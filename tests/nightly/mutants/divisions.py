"""Bugs planted in what becomes of a copy whose range was divided, and of what is asked for meanwhile."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted, planted_at

DIVIDING = "tests/unit/replication/test_dividing.py"
DIVIDED = "tests/unit/table/test_divided.py"
SETTLING = "tests/unit/table/test_divided_sessions.py"
HOLDING = "tests/unit/table/test_divided_holding.py"

IN_COPY = "gossipkv.replication.copy:Copy"
IN_DIVIDING = "gossipkv.replication.dividing"
IN_FEED = "gossipkv.replication.feed:Feed"
IN_HOLDING = "gossipkv.table.holding:Holding"
IN_KEYS = "gossipkv.replication.keys:Bounds"
IN_LEVELS = "gossipkv.replication.levels:Levels"
IN_REPLICAS = "gossipkv.replication.replicas:Replicas"
IN_SPACES = "gossipkv.replication.spaces:Spaces"

HEIRS_CLOCK = "clock.named(parent.appended, heir.named)"

MUTANTS_OF_DIVISIONS: tuple[Mutant, ...] = (
    # -- heirs --
    *planted_at(
        DIVIDING,
        ("a record at the key where children meet is the left one's", f"{IN_KEYS}.has",
         "return self.first <= key and (self.end is None or key < self.end)",
         "return (self.first < key or not self.first) and (self.end is None or key <= self.end)"),
        ("a child's clock is empty", f"{IN_DIVIDING}:_put",
         f"suffix, begins = suffix_of(heir.identity.partition), {HEIRS_CLOCK}",
         'suffix, begins = suffix_of(heir.identity.partition), clock.named(b"", heir.named)'),
        ("a child's clock names the parent's assignments alone", f"{IN_DIVIDING}:_put",
         f"suffix, begins = suffix_of(heir.identity.partition), {HEIRS_CLOCK}",
         "suffix, begins = suffix_of(heir.identity.partition), parent.appended"),
        ("a child begins without its parent's time", f"{IN_COPY}.inherits",
         "self.time.merge(parent.time.last)",
         "self.time = HybridTime()"),
        ("a next life has no time of the parent's", f"{IN_DIVIDING}:_put",
         "state = encode_state(parent.time.last, heir.config, begins, begins)",
         "state = encode_state(0, heir.config, begins, begins)"),
        ("what is under way at the division is not looked at when a key is merged", f"{IN_COPY}.inherits",
         "self._between = {key: order for key, order in parent._between.items() if self.bounds.has(key)} or NOTHING",
         "self._between = NOTHING"),
        ("a child confirms by its map before that is synced", f"{IN_COPY}.inherits",
         "self.synced_config, self.taken_config = parent.synced_config, parent.taken_config",
         "self.synced_config, self.taken_config = self.config, parent.taken_config"),
        ("a child writes before others were asked for its counters", f"{IN_REPLICAS}.take_over",
         "if not (is_vouched or parent.is_new):",
         "if False:"),
    ),
    planted(
        "who is not named by a child inherits it",
        f"{IN_HOLDING}._divide_one",
        "if is_heir and own is not None and copy.assignment in partition.former and copy.bounds.covers(bounds):",
        "if is_heir and own is not None and copy.bounds.covers(bounds):",
        HOLDING,
        by="assertion of divide",
    ),
    *planted_at(
        HOLDING,
        ("a target inherits what lies there", f"{IN_HOLDING}._divide_one",
         "is_heir = own is not None and own.state in _HELD",
         "is_heir = own is not None"),
    ),
    # -- what waits, and what is told --
    *planted_at(
        DIVIDING,
        ("what waits has its level by one child", f"{IN_LEVELS}.divided",
         "everywhere = _Everywhere(len(heirs), one.on_reached)",
         "everywhere = _Everywhere(1, one.on_reached)"),
        ("what may be of a part that is set aside is said to be done", f"{IN_DIVIDING}:divide",
         "if not orphans:  # Else what waits has keys, perhaps, that nobody confirms.",
         "if True:"),
        ("who sends of what is held no more is told nothing", f"{IN_REPLICAS}._none_here",
         "return [[number, [], 0, ours, False]] if is_divided else []",
         "return []"),
        ("what is heard of a newer map by who is told of a child is nothing", f"{IN_REPLICAS}._none_here",
         "if config > ours and table in self.maps:  # Else its name comes first, with the catalogue.",
         "if False:"),
    ),
    # -- feeds, and the log from before --
    planted(
        "an entry without a child's records is skipped",
        f"{IN_COPY}.entry_of",
        "entry = Entry(self, (*filter(self._has_row, records),), before, after, is_own=False, position=position)",
        "entry = Entry(self, (*filter(self._has_row, records),), before, after, is_own=False, position=position)\n"
        "        if not entry.records:\n"
        "            return None",
        DIVIDING,
    ),
    *planted_at(
        DIVIDING,
        ("the log from before is nobody's", f"{IN_SPACES}._copies_of",
         "return [copy for copy in self.copies_in(space) if one.identity.bounds.covers(copy.bounds)]",
         "return []"),
        ("a feed passes over what was not covered when the range was divided", f"{IN_FEED}.divided",
         "at = min([self._shared.at, *items] if lane is None else [self._first_open(lane)])",
         "at = self._shared.at"),
        ("a feed begins anew where its range was divided", f"{IN_FEED}.divided",
         "self._resumes.update(dict.fromkeys(heirs, at))",
         "pass"),
    ),
    # -- what lies side by side --
    *planted_at(
        DIVIDING,
        ("a sibling's records are deleted", "gossipkv.replication.clearing:Clearing._clear",
         "start, end = self._spaces.left[space, suffix].records",
         'start, end = b"\\1", b"\\2"'),
        ("a space is dropped while it is shared", f"{IN_SPACES}.leaves",
         "if not copy.suffix:",
         "if True:"),
        ("a sibling's tombstones are collected", "gossipkv.replication.collecting:Collecting._is_of",
         "return copy.bounds.has(key) or self._replicas.spaces.is_nobodys(copy, key)",
         "return True"),
        ("what was divided is forgotten while the log names it",
         "gossipkv.replication.clearing:Clearing.forget_divided",
         "gone = [suffix for suffix, one in divided.items() if one.position <= floor]",
         "gone = [*divided]"),
        ("a digest is of all that lies in a space", "gossipkv.replication.comparing:Pass.read",
         "end = self.copy.bounds.records[1]",
         'end = b"\\2"'),
    ),
    # -- requests and sessions --
    *planted_at(
        DIVIDED,
        ("who knows another division is refused", "gossipkv.table.forwarding:held",
         "copy = replicas.spaces.at(table, key)",
         "pass"),
        ("a page goes beyond its copy", "gossipkv.table.scans:TableScans._records",
         "start, end = copy.bounds.clip(Bounds(wanted.start, wanted.end)).records",
         "start, end = Bounds(wanted.start, wanted.end).records"),
        ("a page says that it has all, and has what one child has", "gossipkv.table.scans:TableScans.page",
         "bound = _bound_of(copies[0], wanted) if len(copies) == 1 else None",
         "bound = None"),
        ("a scan asks for more than the range that it comes to", "gossipkv.table.scans:_Scanning.go_on",
         "self._ask(table, group, part if route.is_hash else part.within(group[0]))",
         "self._ask(table, group, part)"),
    ),
    *planted_at(
        SETTLING,
        ("what one child has settled is left out for its sibling", "gossipkv.table.settling:_settled",
         "return Seen(copy.config, clock.named(settled(replicas, copy), copy.assigned))",
         "return Seen(copy.config, settled(replicas, copy))"),
        ("a write depends on nothing that is former", "gossipkv.table.writes:Writes._depending",
         "others = only(token, lambda table, origin, _: table != batch.table or origin not in copy.assigned)",
         "others = only(token, lambda table, origin, _: table != batch.table or origin not in copy.named)"),
    ),
)  # fmt: skip
