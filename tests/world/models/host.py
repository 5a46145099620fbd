"""A host of the model of moves: what it feeds, loads, confirms and decides.  See `moves.py`.

The names of planted bugs stand where the rule that they break stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tests.world.models.copies import (
    Assignment,
    Broken,
    Clock,
    Config,
    Copy,
    Disk,
    Dot,
    Entry,
    Load,
    Page,
    PageAsked,
    Pending,
    Record,
    State,
    Told,
    Whole,
    covers,
    join,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from tests.world.models.moves import Run, Session

STALL = 60  # Steps: `move_stall`.
LOAD_TIMEOUT = 30
PAGES = 3


@final
class Node:
    """A node: what is appended, what is synced, and what it remembers while it is up."""

    def __init__(self, run: Run, index: int, skew: int) -> None:
        self.run, self.index, self.skew, self.planted = run, index, skew, run.planted
        self.disk = Disk(0)
        self.is_up = True
        config = run.configs[0]
        for one in config.assignments:
            if one.node == index:
                self.disk.copies[one.id] = Copy(
                    one.id, 0, dict.fromkeys(config.named, 0), is_loaded=True, is_whole=True
                )
        self.synced = self.disk.duplicate()
        self.forget()

    def forget(self) -> None:
        """All that was only in memory."""
        self.told: dict[int, Told] = {}
        self.pending: list[Pending] = []
        self.load: Load | None = None
        self.open_since = self.asked_at = 0  # Since when all but spans is loaded; when reporters were asked first.
        self.asked = 0  # The number of that question.
        self.reports: dict[int, tuple[int, int, Clock]] = {}  # By node: to which question, config, clock.

    def crash(self) -> None:
        self.disk = self.synced.duplicate()
        self.forget()

    def config(self, disk: Disk) -> Config:
        return self.run.configs[disk.config]

    def says(self) -> Config:
        """The config that it says it has adopted."""
        return self.config(self.disk if "adoption_not_durable" in self.planted else self.synced)

    def mine(self, disk: Disk) -> Copy | None:
        """The copy that the adopted config names."""
        for id_, copy in disk.copies.items():
            if id_ in self.config(disk).assigned:
                return copy
        return None

    # Adoption and sync.

    def adopt(self, version: int) -> None:
        if version <= self.disk.config:
            return
        before, config = self.config(self.disk), self.run.configs[version]
        self.disk.config = version
        for one in config.assignments:
            if one.node == self.index and one.id not in self.disk.copies:
                assert one.state < State.AVAILABLE, "nobody else makes it AVAILABLE"
                self.disk.copies[one.id] = Copy(one.id, version, {})
        for copy in self.disk.copies.values():
            if copy.assignment not in config.assigned:
                continue
            copy.config = version
            copy.clock = {origin: copy.clock.get(origin, 0) for origin in config.named}
            for id_ in config.assigned.keys() - before.assigned.keys():
                copy.starts[id_] = copy.base + len(copy.log) if "fed_from_the_old_log" not in self.planted else 0

    def sync(self) -> None:
        for id_, copy in self.disk.copies.items():
            old = self.synced.copies.get(id_)
            if old and old.is_loaded and not covers(copy.clock, old.clock, self.run.configs[copy.config].named):
                raise Broken("falls")
        self.synced = self.disk.duplicate()
        self.count()

    # What is written and read here.

    def write(self, key: int, session: Session, level: str, *, is_tombstone: bool) -> None:
        copy = self.mine(self.disk)
        state = None if copy is None else self.run.configs[copy.config].state(copy.assignment)
        may = state == State.AVAILABLE or (state == State.LEAVING and "originates_while_leaving" in self.planted)
        if copy is None or not may or not copy.is_loaded or self.unready(copy, session) is not None:
            return
        copy.time = max(copy.time + 1, self.run.now + self.skew)
        record = Record(copy.time, copy.assignment, copy.clock.get(copy.assignment, 0) + 1, key, is_tombstone)
        if session.must.get(key, record) > record:
            raise Broken("backwards")
        self.run.must[record.dot] = {**session.must, key: record}
        self.pending.append(Pending(record, level, session))
        copy.append({**copy.clock, copy.assignment: record.counter}, copy.put([record]))

    def serving(self) -> Copy | None:
        """The copy that answers reads."""
        for copy in sorted(self.synced.copies.values(), key=lambda copy: -copy.config):
            state = self.run.configs[copy.config].state(copy.assignment)
            is_served = not copy.is_aside or "set_aside_copy_served" in self.planted
            if state in (State.AVAILABLE, State.LEAVING) and copy.is_loaded and is_served:
                return copy
        return None

    def unready(self, copy: Copy, session: Session) -> str | None:
        """Why a copy may not answer a session."""
        config = self.run.configs[copy.config]
        if "frozen_copy_judged_by_newest" in self.planted:
            config = self.config(self.synced)
        if session.config > config.version:
            return "NOT_READY"
        ends = dict(config.ends)
        for origin, count in session.token.items():
            end = ends.get(origin)
            is_here = origin in config.named and copy.clock.get(origin, 0) >= count
            if not is_here and end is not None and count > end:
                return "WRITE_LOST"
            if not is_here and origin in config.named:
                return "NOT_READY"
        return None

    def read(self, key: int, session: Session) -> str | None:
        copy = self.serving()
        why = "NOT_READY" if copy is None else self.unready(copy, session)
        if copy is not None and why is None:
            session.sees(copy.records.get(key), key, copy.config)
            settled = self._settled(copy)
            session.token = {o: n for o, n in session.token.items() if settled.get(o, 0) < n}
        elif copy is not None and why == "WRITE_LOST":
            session.is_told_lost(dict(self.run.configs[copy.config].ends))
        return why

    # Levels.

    def _has_confirmed(self, copy: Copy, host: Assignment, dot: Dot) -> bool:
        origin, count = dot
        if host.id == copy.assignment:
            return copy.clock.get(origin, 0) >= count
        told = self.told.get(host.id)
        if told is None or (told.config != copy.config and "stale_confirmation_counted" not in self.planted):
            return False
        is_merged = any(start.get(origin, 0) < count <= end.get(origin, 0) for start, end in told.spans.values())
        return told.clock.get(origin, 0) >= count or is_merged

    def _slots_confirmed(self, copy: Copy, dot: Dot) -> int:
        slots = 0
        for hosts in self.run.configs[copy.config].slots.values():
            counting = [host for host in hosts if host.state in (State.INITIALIZING, State.AVAILABLE)]
            if "target_not_needed" in self.planted:
                counting = [host for host in hosts if host.state == State.AVAILABLE]
            if "leaving_awaited" in self.planted:
                counting = hosts
            if "leaving_counted_in_place" in self.planted and any(host.state == State.LEAVING for host in hosts):
                counting = [host for host in hosts if host.state == State.LEAVING]
            has_available = any(host.state == State.AVAILABLE for host in hosts) or "lone_target_counts" in self.planted
            slots += bool(counting) and has_available and all(self._has_confirmed(copy, h, dot) for h in counting)
        return slots

    def count(self) -> None:
        """Acknowledge what has reached its level; of what an origin that has gone wrote, that is not known."""
        self.pending = [one for one in self.pending if one.record.origin in self.config(self.synced).assigned]
        for one in list(self.pending):
            copy = self.synced.copies.get(one.record.origin)
            if copy is None or copy.clock.get(copy.assignment, 0) < one.record.counter:
                continue
            slots = self.run.replication
            needed = {"one": 0, "majority": slots // 2 + 1, "all": slots}[one.level]
            if not needed or self._slots_confirmed(copy, one.record.dot) >= needed:
                self.pending.remove(one)
                self.run.acknowledged(one, copy.config)

    # What is told.

    def tell(self, host: Assignment, copy: Copy | None = None) -> None:
        copy = copy or self.mine(self.synced)
        if copy is not None:
            clock = copy.clock if copy.is_loaded else {}
            told = Told(self.run.number(), self.says().version, clock, copy.spans, copy.is_loaded)
            self.run.send("told", self, host.node, (copy.assignment, told))

    def on_told(self, _source: int, assignment: int, told: Told) -> None:
        self.run.hears(self, told.config)
        old = self.told.get(assignment)
        if old is None or old.number < told.number:
            self.told[assignment] = told
            self.count()

    def _named_by(self, copy: Copy, told: Told) -> Container[int]:
        """Whom both name: what a newer config does not name has ended."""
        named = self.run.configs[copy.config].named
        return named if told.config <= copy.config else named & self.run.configs[told.config].named

    def _tells_cover(self, copy: Copy, told: Told, clock: Clock) -> bool:
        return covers(told.clock, clock, self._named_by(copy, told))

    # Feeding.

    def feeding(self) -> Copy | None:
        copy = self.mine(self.synced)
        may = copy is not None and (copy.is_loaded or "feeds_while_it_loads" in self.planted)
        return copy if may else None

    def push(self, host: Assignment, most: int) -> None:
        copy, told = self.feeding(), self.told.get(host.id)
        if copy is None or told is None:
            return
        if told.is_loaded:
            at = next((i for i, e in enumerate(copy.log) if not self._tells_cover(copy, told, e.after)), len(copy.log))
            before = copy.log[at].before if at < len(copy.log) else copy.clock
            if not self._tells_cover(copy, told, before):
                self._send_snapshot(copy, host)
                return
        else:
            at = max(copy.starts.get(host.id, 0) - copy.base, 0)
            span = told.spans.get(copy.assignment)
            named = self._named_by(copy, told)
            while span and at < len(copy.log) and covers(span[1], copy.log[at].after, named):
                at += 1
        entries = copy.log[at : at + most]
        if entries:
            self.run.send("entries", self, host.node, (copy.assignment, host.id, copy.config, entries))

    def on_entries(self, _source: int, feeder: int, target: int, version: int, entries: list[Entry]) -> None:
        self.run.hears(self, version)
        copy, config = self.mine(self.disk), self.config(self.disk)
        is_newer = version > config.version and "taken_of_a_newer_config" not in self.planted
        if copy is None or copy.assignment != target or is_newer or feeder not in config.assigned:
            return
        for entry in entries:
            if covers(copy.clock, entry.before, config.named):
                self._take(copy, entry)
            elif not copy.is_loaded or "available_confirms_merged" in self.planted:
                self._merge_beyond(copy, feeder, entry)
            else:
                break
            self._close_spans(copy)
        if feeder in config.assigned:
            self.run.later_tells(self, config.assigned[feeder])

    def _new(self, copy: Copy, entry: Entry) -> list[Record]:
        named = self.run.configs[copy.config].named
        return [one for one in entry.records if one.origin in named and one.counter > copy.clock.get(one.origin, 0)]

    def _take(self, copy: Copy, entry: Entry) -> None:
        if not covers(copy.clock, entry.after, self.run.configs[copy.config].named):
            copy.time = max(copy.time, entry.time)
            copy.append(join(copy.clock, entry.after), copy.put(self._new(copy, entry)))

    def _merge_beyond(self, copy: Copy, feeder: int, entry: Entry) -> None:
        """A target merges what its clock does not lead up to, and keeps which clocks lie around it."""
        named = self.run.configs[copy.config].named
        copy.time = max(copy.time, entry.time)
        copy.put(self._new(copy, entry))
        span = copy.spans.get(feeder)
        if span and (covers(span[1], entry.before, named) or "gap_in_a_span_joined" in self.planted):
            origins = span[1].keys() | entry.after.keys()
            end = {o: max(span[1].get(o, 0), entry.after.get(o, 0)) for o in origins}
            copy.spans[feeder] = span[0], end
        else:
            copy.spans[feeder] = entry.before, entry.after

    def _close_spans(self, copy: Copy) -> None:
        named = self.run.configs[copy.config].named
        is_closed = False
        while not is_closed:
            is_closed = True
            for source, (start, end) in list(copy.spans.items()):
                if covers(copy.clock, start, named):
                    del copy.spans[source]
                    if not covers(copy.clock, end, named):
                        copy.append(join(copy.clock, end), ())
                        is_closed = False
        ignores = "available_while_a_span_is_open" in self.planted
        if copy.is_whole and not copy.is_loaded and (ignores or not copy.spans):
            copy.is_loaded, copy.spans = True, {}
            copy.begin_log()

    # Loading: to the side at once for who is loaded, page by page for a target.

    def _send_snapshot(self, copy: Copy, host: Assignment) -> None:
        if self.run.configs[copy.config].state(copy.assignment) in (State.AVAILABLE, State.LEAVING):
            records = list(copy.records.values())
            whole = Whole(copy.assignment, host.id, copy.config, records, copy.clock, copy.time)
            self.run.send("snapshot", self, host.node, (whole,))

    def on_snapshot(self, _source: int, whole: Whole) -> None:
        self.run.hears(self, whole.config)
        copy, config = self.mine(self.disk), self.config(self.disk)
        if copy is None or (copy.assignment, copy.config) != (whole.target, whole.config) or not copy.is_loaded:
            return
        if covers(copy.clock, whole.clock, config.named) or whole.feeder not in config.assigned:
            return
        self.run.counts["loaded again"] += 1
        old = [one for one in copy.records.values() if one.counter > whole.clock.get(one.origin, one.counter)]
        copy.records = {one.key: one for one in whole.records}
        copy.put(old)
        copy.clock, copy.time = join(copy.clock, whole.clock), max(copy.time, whole.time)
        copy.begin_log()

    def look_for_loads(self) -> None:
        """A target that is INITIALIZING loads; what stays open too long is loaded anew, from nothing."""
        copy, now = self.mine(self.synced), self.run.now
        if copy is None or copy.is_loaded or self.config(self.synced).state(copy.assignment) != State.INITIALIZING:
            return
        if copy.is_whole:
            self.open_since = self.open_since or now
            if now - self.open_since >= STALL:
                self._begin_anew()
        elif self.load is None or now - self.load.at >= LOAD_TIMEOUT:
            sources = self._sources(copy)
            if sources:
                self.load = Load(self.run.number(), self.run.chance.choice(sources), now)
                self._ask_page()
        elif self.run.chance.random() < 0.3:
            self._ask_page()

    def _begin_anew(self) -> None:
        copy = self.mine(self.disk)
        if copy is None:
            return
        self.run.counts["loaded anew"] += 1
        self.load, self.open_since = None, 0
        copy.spans, copy.is_whole = {}, False
        if "merged_stays" not in self.planted:
            copy.records, copy.clock = {}, dict.fromkeys(copy.clock, 0)
            copy.begin_log()

    def _sources(self, copy: Copy) -> list[Assignment]:
        """AVAILABLE hosts that have adopted the config that names this target."""
        told = ((host, self.told.get(host.id)) for host in self.config(self.synced).available)
        return [host for host, one in told if one and copy.assignment in self.run.configs[one.config].assigned]

    def _ask_page(self) -> None:
        load, copy = self.load, self.mine(self.synced)
        if load and copy:
            asked = PageAsked(copy.assignment, load.source.id, load.number, load.page, load.position)
            self.run.send("page_asked", self, load.source.node, (asked,))

    def on_page_asked(self, source: int, asked: PageAsked) -> None:
        copy, config = self.mine(self.synced), self.config(self.synced)
        if copy is None or copy.assignment != asked.source or asked.target not in config.assigned:
            return
        position = asked.position if asked.page else copy.base + len(copy.log)
        if config.state(copy.assignment) != State.AVAILABLE or position < copy.base:
            return  # Torn: who asks begins again.
        records = [one for one in copy.records.values() if one.key % PAGES == asked.page]
        if asked.page == PAGES:
            records = [one for entry in copy.log[position - copy.base :] for one in entry.records]
        page = Page(asked.number, asked.page, position, copy.config, records, copy.clock, copy.time)
        self.run.send("page", self, source, (page,))

    def on_page(self, _source: int, page: Page) -> None:
        self.run.hears(self, page.config)
        copy, load = self.mine(self.disk), self.load
        if copy is None or load is None or (load.number, load.page) != (page.number, page.page) or copy.is_whole:
            return
        if page.config > copy.config:
            self.load = None  # What this config does not name yet would be ahead of the clock.
            return
        load.page, load.position, load.at = page.page + 1, page.position, self.run.now
        load.aside += page.records
        if page.page < PAGES:
            self._ask_page()
            return
        self.load = None
        copy.put(load.aside)
        copy.time, copy.is_whole = max(copy.time, page.time), True
        copy.append(join(copy.clock, page.clock), ())
        self._close_spans(copy)

    # What the hosts decide, each for itself.

    def look(self) -> None:
        """Go on with what this node's own assignment is to become."""
        copy = self.mine(self.synced)
        if copy is None:
            return
        config = self.config(self.synced)
        state = config.state(copy.assignment)
        if state == State.PROPOSED:
            self._look_proposed(copy, config)
        elif state == State.INITIALIZING and copy.is_loaded:
            self._look_loaded(copy, config)
        elif state == State.LEAVING:
            self._look_leaving(copy, config)
        elif state == State.AVAILABLE:
            self._look_at_ends(copy, config)

    def _look_proposed(self, copy: Copy, config: Config) -> None:
        adopted = {host.slot for host in self._sources(copy)}
        if len(adopted) >= config.needed or "initializing_by_gossip" in self.planted:
            self.run.submit(self, "advance", copy.assignment, State.INITIALIZING)

    def ask(self, host: Assignment) -> None:
        self.run.send("asked", self, host.node, (self.asked,))

    def on_asked(self, source: int, number: int) -> None:
        copy = self.mine(self.synced)
        version = self.says().version
        self.run.send("report", self, source, (number, version, dict(copy.clock) if copy and copy.is_loaded else {}))

    def on_report(self, source: int, number: int, version: int, clock: Clock) -> None:
        self.run.hears(self, version)
        if source not in self.reports or self.reports[source][0] < number or self.reports[source][1] < version:
            self.reports[source] = number, version, clock

    def _look_loaded(self, copy: Copy, config: Config) -> None:
        if not self.asked:
            self.asked, self.asked_at = self.run.number(), self.run.now
        for host in config.available:
            self.ask(host)
        slots, has_answered, is_source_covered = set(), set(), False
        source = next((host for host in config.slots[config.assigned[copy.assignment].slot] if host.state == 3), None)
        for host in config.available:
            number, version, clock = self.reports.get(host.node, (0, 0, {}))
            has_adopted = version >= copy.config and copy.assignment in self.run.configs[version].assigned
            has_adopted |= "not_adopted_reporters" in self.planted
            has_answered |= {host.id} if number == self.asked else set()
            if number == self.asked and has_adopted and covers(copy.clock, clock, config.named):
                slots.add(host.slot)
                is_source_covered |= host == source
        waits = source is not None and not is_source_covered and "source_left_out" not in self.planted
        is_late = self.run.now - self.asked_at >= STALL and source is not None and source.id not in has_answered
        needed = 1 if "one_reporter_enough" in self.planted else config.needed
        if len(slots) >= needed and (not waits or is_late):
            self.run.submit(self, "advance", copy.assignment, State.AVAILABLE)

    def _look_leaving(self, copy: Copy, config: Config) -> None:
        told = [self.told.get(host.id) for host in config.available]
        if all(one and one.config >= copy.config for one in told) and (
            "unassigned_before_all_cover" in self.planted
            or all(one and self._tells_cover(copy, one, copy.clock) for one in told)
        ):
            self.run.submit(self, "unassign", copy.assignment)

    def _clocks(self, copy: Copy) -> Iterator[Clock | None]:
        """Of all assigned copies, dead or alive, under this version; None: not told."""
        for host in self.run.configs[copy.config].assignments:
            told = self.told.get(host.id)
            if host.id == copy.assignment:
                yield copy.clock
            else:
                yield told.clock if told and told.config == copy.config and told.is_loaded else None

    def _settled(self, copy: Copy) -> Clock:
        clocks = list(self._clocks(copy))
        if any(clock is None for clock in clocks):
            return {}
        return {origin: min(clock.get(origin, 0) for clock in clocks if clock) for origin in copy.clock}

    def _look_at_ends(self, copy: Copy, config: Config) -> None:
        clocks = list(self._clocks(copy))
        if not any(clock is None for clock in clocks):
            same = {o: copy.clock.get(o, 0) for o in config.former if len({c.get(o, 0) for c in clocks if c}) == 1}
            if same and "former_dropped_by_opinion" in self.planted:
                self.disk.copies[copy.assignment].clock = {o: n for o, n in copy.clock.items() if o not in same}
            elif same:
                self.run.submit(self, "settle", tuple(same.items()))
        unknown = [origin for origin, end in config.ends if end is None]
        if unknown:
            told = {host.slot: self.told.get(host.id) for host in config.available if host.id != copy.assignment}
            reports = [one.clock for one in told.values() if one and one.config == copy.config] + [copy.clock]
            if len(reports) >= config.needed:
                pick = min if "forced_end_too_low" in self.planted else max
                found = tuple((o, pick(clock.get(o, 0) for clock in reports)) for o in unknown)
                self.run.submit(self, "end", found)

    def look_at_register(self) -> None:
        """By a full round: drop what is absent there, or set it aside."""
        view = self.run.configs[-1]
        if "dropped_on_a_cached_map" in self.planted:
            view = self.run.chance.choice(self.run.configs)
        for id_, copy in list(self.disk.copies.items()):
            if id_ in view.assigned or copy.is_aside:
                continue
            state = self.run.configs[copy.config].state(id_)
            if id_ in dict(view.ends) or (state == State.AVAILABLE and "dropped_on_a_cached_map" not in self.planted):
                copy.is_aside = True
                continue
            said = all(self.reports.get(host.node, (0, -1))[1] >= view.version for host in view.available)
            if said or "dropped_without_confirmations" in self.planted:
                self.run.dropped(self, id_)
                del self.disk.copies[id_]
            for host in view.available:
                self.ask(host)

    def collect(self) -> None:
        """Tombstones that every assigned copy has, once this clock covers what all say."""
        copy, synced = self.mine(self.disk), self.mine(self.synced)
        if copy is None or synced is None or copy.config != synced.config or not copy.is_loaded:
            return
        clocks = list(self._clocks(synced))
        named = self.run.configs[copy.config].named
        if any(clock is None or not covers(copy.clock, clock, named) for clock in clocks):
            return
        for key, record in list(copy.records.items()):
            is_ended = record.origin not in named
            is_settled = is_ended or all(c.get(record.origin, 0) >= record.counter for c in clocks if c)
            if record.is_tombstone and is_settled:
                del copy.records[key]
                self.run.collected[key] = max(record, self.run.collected.get(key, record))
