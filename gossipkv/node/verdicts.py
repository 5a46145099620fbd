"""Status reports of this node (method `report`), and the verdict over the reports of all members (method `verdict`).

All members are asked at once, for less than a second each; the verdict names those that do not answer.  The judgement
is one function of the reports (`status.judging`), so every node gives the same verdict.  Members are asked only when a
client wants a verdict; for metrics and probes, which come all the time, at most once in ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError
from gossipkv.gossip.member import MemberState
from gossipkv.log import Log
from gossipkv.status.judging.judge import judge
from gossipkv.status.reading import map_of
from gossipkv.status.verdict import LEVELS, MemberReports
from gossipkv.status.words import time_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from gossipkv.dataset.library import Library
    from gossipkv.environment.seam import EnvironmentClock, Threads
    from gossipkv.errors import Detail
    from gossipkv.gossip.member import Member
    from gossipkv.node.gossip import Gossiping
    from gossipkv.node.names import Names
    from gossipkv.status.verdict import ClusterVerdict
    from gossipkv.table.rpc.dispatch import TableMethods
    from gossipkv.table.store import TableStore
    from gossipkv.wire.rpc import Value

MEMBER_S: Final = 0.7  # Time for a member to answer, so that a client with a second's patience gets its verdict.
SUSPECT_S: Final = 0.2  # The same for a suspect member: a dead one delays the others less.
FRESH_S: Final = 0.5  # A verdict that is at most this old is shared between clients.
CERTIFICATE_CLOSE_S: Final = 14 * 86400  # The same limit as that of the alert.
LAST_S: Final = 10.0  # Time between two verdicts that only metrics and probes want.


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictReport:
    """Makes status reports of this node; only facts that hold are included, so a healthy node's report is small."""

    node: str
    has_source: bool
    datasets: Library
    tables: TableMethods
    names: Names
    store: TableStore
    cluster: Gossiping
    unreached: Callable[[], Mapping[str, str]]  # Members that seem to live, and why this node does not reach them.
    unreadable: Callable[[], Sequence[str]]
    draining: Callable[[], bool]
    certificate: Callable[[], int | None]  # End of the certificate's validity, in seconds since 1970.
    clock: EnvironmentClock
    to_readers: bool = True  # True if every recipient may read all databases, because there are no users.

    async def make(self) -> dict[str, Value]:
        """Return the report as of now."""
        cluster, store = self.cluster, self.store.to_map()
        states = {member.name: member.state for member in cluster.members_known()}
        away: dict[str, Value] = {
            name: state.name.lower()
            for name, state in states.items()
            if state in {MemberState.DEAD, MemberState.SUSPECT}
        }
        told: dict[str, Value] = {
            "isolated": cluster.isolated(),
            "unreached": {**self.unreached()},
            "silent": cluster.silence,
            "source_error": self.datasets.trouble(),
            "sourceless": not self.has_source,
            "publish_error": cluster.publish_error(),
            "claimed_twice": [*cluster.claimed_twice()],
            "unreadable": [*self.unreadable()],
            "draining": self.draining(),
            **_of_certificate(self.certificate(), self.clock.wall_ms() // 1000),
            "tables_lost" if store.get("lost") else "tables_closed": store.get("why"),
            "log_damage": store.get("log_damage"),
            "copies_aside": self.tables.to_map().get("copies_aside"),
            "acceptors": [*self.tables.acceptors()],
            "away": away,
        }
        tables = await self.tables.conditions()
        found = self.names.with_disputes({**tables, **self.datasets.conditions(to_readers=self.to_readers)})
        databases: dict[str, Value] = {name: {**entry} for name, entry in found.items()}
        return {**{key: value for key, value in told.items() if value}, "databases": databases}


def _of_certificate(expires_s: int | None, now_s: int) -> dict[str, Value]:
    """Return the fields about the certificate, judged by this node's own clock, which is the one that counts for it."""
    if expires_s is None:
        return {}
    told: dict[str, Value] = {"certificate_expires_s": expires_s}
    if expires_s < now_s + CERTIFICATE_CLOSE_S:
        told["certificate_over" if expires_s <= now_s else "certificate_close"] = time_text(expires_s)
    return told


@final
class NodeVerdicts:
    """Makes verdicts, and keeps the last one."""

    def __init__(
        self,
        report: VerdictReport,
        ask: Callable[[bytes, str, list[Value], float], Awaitable[Value]],
        threads: Threads,
        clock: EnvironmentClock,
    ) -> None:
        """Begin without a verdict; `ask` asks a member by uuid, and raises a `GossipKVError` if it does not answer."""
        self._report = report
        self._ask = ask
        self._threads = threads
        self._clock = clock
        self._last: ClusterVerdict | None = None
        self._made_s, self._made_ms = -LAST_S, 0  # Trio's time, and milliseconds since 1970 for people.
        self._making = trio.Lock()
        self._wanted = trio.Event()
        self._log = Log("gossipkv.node")

    async def run(self) -> None:
        """Make the verdicts that `last` wants, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            await self.make()
            await trio.sleep(LAST_S)

    def last(self) -> dict[str, Detail]:
        """Return a summary of the last verdict, with None in it before the first; want a new one if that is too old."""
        if trio.current_time() - self._made_s >= LAST_S:
            self._wanted.set()
        if self._last is None:
            return {"level": None, "number": None, "at_s": None}
        return {"level": self._last.level, "number": LEVELS.index(self._last.level), "at_s": self._made_ms / 1000}

    async def make(self, *, fresh_s: float = FRESH_S) -> ClusterVerdict:
        """Return the last verdict if it is at most `fresh_s` old; else ask all members and judge."""
        async with self._making:
            if self._last is None or trio.current_time() - self._made_s >= fresh_s:
                said = await self._hear()
                # Judging a hundred members takes tens of milliseconds, so a thread does it.
                made = await self._threads.run(judge, said)
                if self._last is None or made.level != self._last.level:
                    self._log.info("verdict", level=made.level, text=made.text)
                self._last, self._made_s, self._made_ms = made, trio.current_time(), self._clock.wall_ms()
            return self._last

    async def _hear(self) -> MemberReports:
        members = [member for member in self._report.cluster.members_known() if member.state is not MemberState.LEFT]
        reports: dict[str, Mapping[str, Value]] = {}
        silent: dict[str, str] = {}

        async def hear(member: Member) -> None:
            try:
                patience_s = SUSPECT_S if member.state is MemberState.SUSPECT else MEMBER_S
                reports[member.name] = map_of(await self._ask(member.uuid, "report", [], patience_s))
            except GossipKVError as error:
                silent[member.name] = error.message

        others = [
            member for member in members if member.name != self._report.node and member.state is not MemberState.DEAD
        ]
        with trio.move_on_after(MEMBER_S):
            async with trio.open_nursery() as nursery:
                for member in others:
                    nursery.start_soon(partial(hear, member))
        for member in others:
            if member.name not in reports:
                silent.setdefault(member.name, f"no answer within {MEMBER_S:g} s")
        # This node reports last, so that its report is of about the same moment as those it waited for.
        reports[self._report.node] = await self._report.make()
        return MemberReports(self._report.node, {one.name: one.state.name.lower() for one in members}, reports, silent)
