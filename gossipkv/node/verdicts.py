"""Status reports of this node (method `report`), and the verdict over the reports of all members (method `verdict`).

All members are asked at once, for less than a second each; the verdict names those that do not answer.  The judgement
is one function of the reports (`status.judging`), so every node gives the same verdict.  Members are asked only when a
client wants a verdict, as each scrape of the metrics does; for probes, at most once in ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError
from gossipkv.gossip.member import MemberState
from gossipkv.log import Log
from gossipkv.status.codec import facts
from gossipkv.status.judging.judge import judge
from gossipkv.status.reports import NodeReport
from gossipkv.status.verdict import MemberReports
from gossipkv.status.words import time_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from gossipkv.dataset.library import Library
    from gossipkv.environment.seam import EnvironmentClock, Threads
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
CERTIFICATE_CLOSE_S: Final = 14 * 86400  # Warn this long before the end, as the alert does.
LAST_S: Final = 10.0  # Time between two verdicts that only probes want.


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
        cluster, is_lost, closed = self.cluster, self.store.is_lost, self.store.trouble
        # The certificate is judged by this node's own clock, which is the one that counts for it.
        ends_s, left_s, ends = self.certificate(), inf, ""
        if ends_s is not None:
            left_s, ends = ends_s - self.clock.wall_ms() // 1000, time_text(ends_s)
        report = NodeReport(
            isolated=cluster.isolated(),
            unreached={**self.unreached()},
            silent=cluster.silence,
            source_error=self.datasets.trouble(),
            sourceless=not self.has_source,
            publish_error=cluster.publish_error(),
            claimed_twice=(*cluster.claimed_twice(),),
            unreadable=(*self.unreadable(),),
            misfits={**cluster.misfits()},
            draining=self.draining(),
            certificate_expires_s=ends_s,
            certificate_over=ends if left_s <= 0 else None,
            certificate_close=ends if 0 < left_s < CERTIFICATE_CLOSE_S else None,
            tables_lost=closed if is_lost else None,
            tables_closed=None if is_lost else closed,
            log_damage=self.store.log_damage,
            copies_aside=self.tables.copies_aside(),
            acceptors=(*self.tables.acceptors(),),
            removed=self.tables.removed(),
            away={
                member.name: member.state.name.lower()
                for member in cluster.members_known()
                if member.state in {MemberState.DEAD, MemberState.SUSPECT}
            },
            databases=None,
        )
        tables = await self.tables.conditions()
        found = self.names.with_disputes({**tables, **self.datasets.conditions(to_readers=self.to_readers)})
        return {**facts(report), "databases": {**found}}


@final
class NodeVerdicts:
    """Makes verdicts, and keeps the last one."""

    def __init__(
        self,
        report: VerdictReport,
        ask: Callable[[bytes, str, list[Value], float], Awaitable[Value]],
        threads: Threads,
    ) -> None:
        """Begin without a verdict; `ask` asks a member by uuid, and raises a `GossipKVError` if it does not answer."""
        self._report = report
        self._ask = ask
        self._threads = threads
        self._last: ClusterVerdict | None = None
        self._made_s = -LAST_S
        self._is_outdated = False
        self._making = trio.Lock()
        self._log = Log("gossipkv.node")

    def outdate(self) -> None:
        """Make another verdict at the next request: whoever changed what should serve waits for that."""
        self._is_outdated = True

    async def make(self, *, fresh_s: float = FRESH_S) -> ClusterVerdict:
        """Return the last verdict if it is at most `fresh_s` old; else ask all members and judge."""
        async with self._making:
            if self._last is None or self._is_outdated or trio.current_time() - self._made_s >= fresh_s:
                self._is_outdated = False
                heard = await self._hear()
                # Judging a hundred members takes tens of milliseconds, so a thread does it.
                verdict = await self._threads.run(judge, heard)
                if self._last is None or verdict.level != self._last.level:
                    self._log.info("verdict", level=verdict.level, text=verdict.text)
                self._last, self._made_s = verdict, trio.current_time()
            return self._last

    async def _hear(self) -> MemberReports:
        members = [member for member in self._report.cluster.members_known() if member.state is not MemberState.LEFT]
        reports: dict[str, Value] = {}
        silent: dict[str, str] = {}

        async def hear(member: Member) -> None:
            try:
                patience_s = SUSPECT_S if member.state is MemberState.SUSPECT else MEMBER_S
                reports[member.name] = await self._ask(member.uuid, "report", [], patience_s)
            except GossipKVError as error:
                silent[member.name] = error.message

        me = self._report.node
        asked = [member for member in members if member.name != me and member.state is not MemberState.DEAD]
        with trio.move_on_after(MEMBER_S):
            async with trio.open_nursery() as nursery:
                for member in asked:
                    nursery.start_soon(partial(hear, member))
        for member in asked:
            if member.name not in reports:
                silent.setdefault(member.name, f"no answer within {MEMBER_S:g} s")
        # This node reports last, so that its report is of about the same moment as those it waited for.
        reports[me] = await self._report.make()
        states = {member.name: member.state.name.lower() for member in members}
        return MemberReports(me, states, reports, silent)
