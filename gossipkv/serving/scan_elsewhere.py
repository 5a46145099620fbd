"""Scan pages from several nodes: the choice of owners, and the reaction when one does not answer.

The missing partitions are covered with few owners, in the order of `gossipkv.placement.candidates`. All of them are
asked at once for their first records. Each part goes through::

    asked ── a page ─────────────────────────────────> answered
      │ ├─ refused, lost, nonsense ──> its partitions are covered by other owners, at once
      │ └─ a stage passes in silence ─> the same, as well: the first complete answer for the part counts
      └──── no owner is left ────────> a pause, then all owners but the silent ones are asked again

So parts form a tree whose leaves are being asked. Each page starts afresh behind its cursor. Gathering holds a page of
each owner, so only some pages are gathered at once. Before each round the page may be planned again, within its time
limit: after a switch of versions, which makes owners refuse, or if partitions have arrived here.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import trio

from gossipkv.errors import GossipKVError, NotServed, Overloaded, TooLarge
from gossipkv.log import Log
from gossipkv.placement.candidates import candidates
from gossipkv.serving.scan import ScanRun, merge, read_answer
from gossipkv.serving.unanswered import ASKED, SILENT, unanswered
from gossipkv.wire.results import NodeAnswer, NotAnswered, NotReached

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping

    from gossipkv.errors import Detail, ServiceError
    from gossipkv.placement.holders import HolderState
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.serving.scan import ScanOrder, ScanPage
    from gossipkv.wire.results import Completion, Packed
    from gossipkv.wire.rpc import Value

    # Sends a request: member, method, its parameters, a timeout in ms, and the completion, which may be called at once.
    Question = Callable[[str, str, list[Value], int, Completion[NodeAnswer]], None]

# Pages that are gathered at the same time: each holds a page of every owner.
MAX_PAGES: Final = 32

# First pause between rounds; it doubles, up to a stage.
FIRST_PAUSE_S: Final = 0.001

# The log names a member with refused answers at most once in this interval.
REPORT_PERIOD_S: Final = 60.0

# Elements of an answer beside its records, and elements of a record.
ANSWER_ELEMENTS: Final = 16
RECORD_ELEMENTS: Final = 3


COUNTERS: Final = ("scans_gathered", "scan_questions", "scan_silences", "scan_bad_answers", "scans_unanswered")


class ScanSource(NamedTuple):
    """A member that holds partitions of a version."""

    state: HolderState
    partitions: PartitionSet


class ScanPlan(Protocol):
    """The plan of a page, evaluated at each call."""

    def wanted(self) -> ScanOrder:
        """Return the page, of the version to read now. Raises: an error for the client."""

    def here(self, wanted: ScanOrder) -> tuple[PartitionSet, ScanPage]:
        """Return the local partitions, and their part of the page."""


@final
class _ScanShare:
    """Some partitions, and the member that is asked for them; None if they wait for a new round."""

    def __init__(self, partitions: PartitionSet, name: str | None, tried: frozenset[str], due_s: float) -> None:
        self.partitions = partitions
        self.name = name
        self.tried = tried  # Members that must not be asked for any of it in this round.
        self.due_s = due_s  # When further members are asked as well.
        self.outcome = ASKED
        self.run: ScanRun | None = None
        self.successors: list[_ScanShare] = []  # The parts that took over its partitions.

    @property
    def is_answered(self) -> bool:
        """True if all of its records have arrived."""
        return self.run is not None or (bool(self.successors) and all(part.is_answered for part in self.successors))

    @property
    def is_pending(self) -> bool:
        """True if an answer may still come."""
        return self.name is not None and self.outcome in {ASKED, SILENT} and self.run is None

    def runs(self) -> Iterator[ScanRun]:
        """Yield the runs of the answers."""
        if self.run is not None:
            yield self.run
        else:
            for part in self.successors:
                yield from part.runs()


@final
class Elsewhere:
    """Gathers pages of scans from other nodes."""

    def __init__(
        self,
        sources: Callable[[str, str, bytes], Mapping[str, ScanSource]],
        ask: Question,
        random: random.Random,
        *,
        on_not_served: Callable[[], None],
        whole_ms: int,
        stage_ms: int,
        max_elements: int,
        max_frame: int,
    ) -> None:
        """`sources` returns by name the members that hold a database's version with that identity.

        `on_not_served` is called when a member no longer serves a partition that it was asked for.
        `whole_ms` is how long new owners are asked, and `stage_ms` the silence after which the next owner is. An answer
        has at most `max_elements` elements and `max_frame` bytes.
        """
        self.slow: set[str] = set()  # Members that let a stage pass or were busy, and have not answered since.
        self.whole_s = whole_ms / 1000
        self.stage_s = stage_ms / 1000
        self.max_frame = max_frame
        self.most_records = (max_elements - ANSWER_ELEMENTS) // RECORD_ELEMENTS
        self.ask = ask
        self.on_not_served = on_not_served
        self._counts = dict.fromkeys(COUNTERS, 0)
        # The time of the next log line for each member, and the refused answers since the last line.
        self._refused: dict[str, tuple[float, int]] = {}
        self._log = Log("gossipkv.node")
        self._sources = sources
        self._random = random
        self._places = trio.Semaphore(MAX_PAGES)

    async def page(self, plan: ScanPlan, timeout_ms: int) -> Packed:
        """Return a page of local and other partitions, which is planned when its turn has come.

        Raises:
            TimedOut, Unavailable, Overloaded: no owner is left for some partition.
        """
        began_s = trio.current_time()
        limit_s = began_s + timeout_ms / 1000
        try:
            self._places.acquire_nowait()
        except trio.WouldBlock:
            with trio.move_on_at(limit_s) as turn:
                await self._places.acquire()
            if turn.cancelled_caught:
                words = "this node already gathers too many scans from other nodes; try again later"
                raise Overloaded(words, {"limit": MAX_PAGES}) from None
        self._counts["scans_gathered"] += 1
        try:
            while True:
                wanted = plan.wanted()
                partitions, own = plan.here(wanted)
                runs = await _GatheredPage(self, plan, wanted, began_s, limit_s).gather(wanted.partitions - partitions)
                if runs is not None:
                    return wanted.answer(merge([ScanRun(own.packed, 0, own.last is not None), *runs], wanted))
        finally:
            self._places.release()

    def count(self, name: str) -> None:
        """Add one to a counter of `counters`."""
        self._counts[name] += 1

    def counters(self) -> dict[str, int]:
        """Return all counters by name."""
        return dict(self._counts)

    def disbelieve(self, name: str, reason: str) -> None:
        """Record that a member's answer is refused."""
        self.count("scan_bad_answers")
        now_s = trio.current_time()
        again_s, count = self._refused.get(name, (now_s, 0))
        if now_s >= again_s:
            self._log.warning("scan_answer_refused", node=name, reason=reason, count=count + 1)
            again_s, count = now_s + REPORT_PERIOD_S, -1
        self._refused[name] = again_s, count + 1

    def sources(self, wanted: ScanOrder) -> Mapping[str, ScanSource]:
        """Return the members that may be asked, by name."""
        version = wanted.version
        if version.wire_id is None:
            return {}
        return self._sources(version.database, version.name, version.wire_id)

    def is_held(self, wanted: ScanOrder) -> bool:
        """Return True if other nodes are known to hold all wanted partitions."""
        left = wanted.partitions
        for source in self.sources(wanted).values():
            left -= source.partitions
        return not left

    def cover(
        self, wanted: ScanOrder, partitions: PartitionSet, tried: frozenset[str]
    ) -> tuple[list[tuple[str, PartitionSet]], PartitionSet]:
        """Return the owners to ask, each with its partitions, and the partitions without a further owner.

        Among owners of one rank, those that hold most of the remaining partitions come first, so that few are asked.
        """
        sources = {name: source for name, source in self.sources(wanted).items() if name not in tried}
        states = {name: source.state for name, source in sources.items()}
        order = candidates(states, self.slow, self._random)
        found = []
        for _, rank in groupby(order, key=lambda name: (name in self.slow, states[name])):
            equals = [*rank]
            while partitions and equals:
                best = max(equals, key=lambda name: len(sources[name].partitions & partitions))
                owned = sources[best].partitions & partitions
                if not owned:
                    break
                found.append((best, owned))
                equals.remove(best)
                partitions -= owned
        return found, partitions


@final
class _GatheredPage:
    """A page while it is gathered."""

    def __init__(self, elsewhere: Elsewhere, plan: ScanPlan, wanted: ScanOrder, began_s: float, limit_s: float) -> None:
        """Prepare to gather `wanted`, the plan of now; `began_s` is earlier if the page was planned before."""
        self._elsewhere = elsewhere
        self._plan = plan
        self._wanted = wanted
        self._began_s = began_s
        self._limit_s = limit_s
        self._rounds_until_s = min(limit_s, self._began_s + elsewhere.whole_s)
        self._pause_s = FIRST_PAUSE_S
        self._rounds = 1
        self._roots: list[_ScanShare] = []
        self._parts: list[_ScanShare] = []  # All parts, in the order of their requests.
        self._moved = trio.Event()
        self._too_large: GossipKVError | None = None
        self._is_outdated = False

    async def gather(self, partitions: PartitionSet) -> list[ScanRun] | None:
        """Return runs that together hold these partitions; None if the page must be planned again.

        Raises:
            TimedOut, Unavailable, Overloaded: no owner is left to ask, or the time is over.
            TooLarge: an owner says so; the others would answer the same.
        """
        self._roots = self._cover(partitions, frozenset())
        while not all(part.is_answered for part in self._roots):
            due_s = self._go_on(trio.current_time())
            if self._is_outdated:
                return None
            with trio.move_on_at(due_s):
                await self._moved.wait()
            self._moved = trio.Event()
            if self._too_large is not None:
                raise self._too_large
        return [run for part in self._roots for run in part.runs()]

    def _go_on(self, now_s: float) -> float:
        """Ask further owners where that is due. Return when to look again."""
        while True:
            leaves = [part for part in self._parts if not part.successors and part.run is None]
            stirred = [part for part in leaves if self._is_due(part, now_s)]
            if not stirred:
                break
            if any(part.name is None for part in stirred):
                self._begin_round()
                if self._is_outdated:
                    return now_s
            for part in stirred:
                self._pass_on(part)
        is_pending = any(part.is_pending for part in self._parts)
        if now_s >= self._limit_s or (now_s >= self._rounds_until_s and not is_pending):
            self._elsewhere.count("scans_unanswered")
            raise self._error(now_s)
        return min(
            [part.due_s for part in leaves if part.due_s > now_s]
            + [self._limit_s if is_pending else self._rounds_until_s]
        )

    def _is_due(self, part: _ScanShare, now_s: float) -> bool:
        """Return True if further owners must be asked for the part's partitions now."""
        if part.name is None:
            return part.due_s <= now_s < self._rounds_until_s
        return not part.is_pending or (part.outcome == ASKED and part.due_s <= now_s)

    def _begin_round(self) -> None:
        """Begin a round, and check that the planned version is still the one to read."""
        self._rounds += 1
        self._pause_s = min(2 * self._pause_s, self._elsewhere.stage_s)
        before, now = self._wanted.version, self._plan.wanted().version
        self._is_outdated = (before.name, before.wire_id, before.files) != (now.name, now.wire_id, now.files)

    def _pass_on(self, part: _ScanShare) -> None:
        tried = part.tried
        if part.name is not None and part.is_pending:
            part.outcome = SILENT
            self._elsewhere.slow.add(part.name)
            self._elsewhere.count("scan_silences")
        elif part.name is None:  # A new round begins for this part.
            tried = frozenset(other.name for other in self._parts if other.name is not None and other.is_pending)
        if part.name is not None:
            tried |= {part.name}
        part.successors = self._cover(part.partitions, tried)

    def _cover(self, partitions: PartitionSet, tried: frozenset[str]) -> list[_ScanShare]:
        """Ask for these partitions; those without an owner wait for a new round."""
        now_s = trio.current_time()
        found, left = self._elsewhere.cover(self._wanted, partitions, tried)
        parts = [_ScanShare(owned, name, tried, now_s + self._elsewhere.stage_s) for name, owned in found]
        self._parts += parts
        for part in parts:
            self._ask(part)
        if left:
            parts.append(_ScanShare(left, None, tried, now_s + self._pause_s))
            self._parts.append(parts[-1])
        return parts

    def _ask(self, part: _ScanShare) -> None:
        assert part.name is not None
        name, wanted, keys = part.name, self._wanted, self._wanted.keys
        limit = min(wanted.share(part.partitions), self._elsewhere.most_records)
        options: dict[str, Value] = {
            "forwarded": True,
            "identity": wanted.version.wire_id,
            "max_frame": self._elsewhere.max_frame,
            "partitions": part.partitions.to_bytes(),
            "start": keys.start,
            "end": keys.end,
            "reverse": keys.reverse,
            "limit": limit,
        }

        self._elsewhere.count("scan_questions")
        # The margin lets the time limit here pass first.
        left_s = self._limit_s - trio.current_time() + self._elsewhere.stage_s
        self._elsewhere.ask(
            name, "scan", [wanted.version.database, options], round(left_s * 1000) + 1, partial(self._hear, part, limit)
        )

    def _hear(self, part: _ScanShare, limit: int, answer: NodeAnswer | GossipKVError) -> None:
        assert part.name is not None
        slow = self._elsewhere.slow
        self._moved.set()
        if isinstance(answer, NodeAnswer):
            try:
                part.run = read_answer(answer.data, self._wanted, part.partitions, limit)
            except ValueError as reason:
                part.outcome = "nonsense"
                slow.add(part.name)
                self._elsewhere.disbelieve(part.name, str(reason))
            else:
                slow.discard(part.name)
        elif not isinstance(answer, NotReached | NotAnswered):
            part.outcome = answer.code
            (slow.add if part.outcome == "OVERLOADED" else slow.discard)(part.name)
            if isinstance(answer, TooLarge):
                self._too_large = answer
            elif isinstance(answer, NotServed):
                self._elsewhere.on_not_served()
        elif trio.current_time() < self._limit_s:
            part.outcome = "not connected" if isinstance(answer, NotReached) else "lost"

    def _error(self, now_s: float) -> ServiceError:
        """Return the error of a page that was not gathered."""
        version = self._wanted.version
        unanswered_parts = [part for part in self._parts if not part.successors and not part.is_answered]
        left = unanswered_parts[0].partitions
        for part in unanswered_parts[1:]:
            left |= part.partitions
        outcomes = {part.name: part.outcome for part in self._parts if part.name is not None and part.run is None}
        runs = ", ".join(f"{first}-{end - 1}" if end - first > 1 else f"{first}" for first, end in left.runs()[:8])
        details: dict[str, Detail] = {
            "database": version.database,
            "version": version.name,
            "partitions": runs,
            "rounds": self._rounds,
            "elapsed_ms": round((now_s - self._began_s) * 1000),
        }
        return unanswered(f"partitions {runs} of {version.database} {version.name}", [*outcomes.items()], details)
