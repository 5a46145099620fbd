"""The survey for a page: the node's knowledge, and its verdict, for which it asks the members itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from gossipkv.errors import GossipKVError, UnknownDatabase
from gossipkv.http.page.placement_map import MAX_PARTITIONS
from gossipkv.status.codec import decode, decode_list
from gossipkv.status.reports import (
    RANGE,
    DatabaseSummary,
    InfoReport,
    MemberReport,
    StatusReport,
    TableMap,
    TablePartition,
    status_report,
)
from gossipkv.status.verdict import verdict_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from gossipkv.http.answers import Asker
    from gossipkv.status.verdict import ClusterVerdict
    from gossipkv.wire.rpc import Value

NODE_MS: Final = 3000  # The node must answer a question in this time.
AT_ONCE: Final = 8  # A node gets this many questions in parallel, as it also serves others.


@dataclass(frozen=True, slots=True)
class PageSurvey:
    """The reports of one moment."""

    taken_s: float  # The time in seconds since 1970.
    info: InfoReport
    members: tuple[MemberReport, ...]
    status: StatusReport  # Sets of partitions are bitmaps.
    verdict: ClusterVerdict
    partitions: tuple[TablePartition, ...] = ()  # The survey is about one table.

    @property
    def node(self) -> str:
        """Return the name of the asked node."""
        return self.info.node


class FoundKey(NamedTuple):
    """The value of a key, and the node that answered."""

    database: str
    key: bytes
    value: bytes | None  # None: there is no such key, or an error.
    version: str  # The version of a dataset; empty for a table.
    node: str
    error: str = ""


async def take_survey(ask: Asker, now_s: float, database: str | None = None) -> PageSurvey:
    """Ask the node, about one database or about all.

    Raises:
        GossipKVError: the node did not answer, or does not know the database.
    """
    about: list[Value] = [] if database is None else [{"database": database}]
    asks = [partial(ask.call, name, timeout_ms=NODE_MS) for name in ("info", "members")]
    info, members, verdict = values(await together([*asks, partial(ask.call, "verdict", *about, timeout_ms=NODE_MS)]))
    status = status_report(await status_of(ask, database, bitmaps=True))
    table = None if database is None else status.tables.get(database)
    return PageSurvey(
        now_s,
        decode(InfoReport, info),
        decode_list(MemberReport, members),
        status,
        verdict_of(verdict),
        () if database is None or table is None else await partitions_of(ask, database, table.kind),
    )


async def status_of(ask: Asker, database: str | None, *, bitmaps: bool) -> dict[str, Value]:
    """Return the `status` of one database or of all; databases are asked for separately, so that any number fits.

    Raises:
        GossipKVError: the node did not answer, or does not know the database.
    """
    names = [database]
    if database is None:
        listed = decode_list(DatabaseSummary, await ask.call("databases", timeout_ms=NODE_MS))
        names = [summary.name for summary in listed]
    more: dict[str, Value] = {"bitmaps": True} if bitmaps else {}
    answers = await together(
        [partial(ask.call, "status", {"database": name, **more}, timeout_ms=NODE_MS) for name in names]
    )
    if database is None:  # A database may have gone since the listing.
        answers = [{} if isinstance(answer, UnknownDatabase) else answer for answer in answers]
    maps = [answer for answer in values(answers) if isinstance(answer, dict)]
    return {name: entry for answer in maps for name, entry in answer.items()}


async def partitions_of(ask: Asker, table: str, kind: str) -> tuple[TablePartition, ...]:
    """Return the partitions of a table, in order; empty if its map is not known yet."""
    method, found = "partitions" if kind == RANGE else "partition_map", list[TablePartition]()
    options: dict[str, Value] = {}
    while True:
        try:
            page = decode(TableMap, await ask.call(method, table, options, timeout_ms=NODE_MS))
        except GossipKVError:
            return ()
        found += page.partitions
        if page.next is None or len(found) > MAX_PARTITIONS:
            return tuple(found)
        options = {"start": page.next}


async def look_up(ask: Asker, database: str, key: bytes) -> FoundKey:
    """Read a key as a client would, with the node that answered."""
    try:
        answer = await ask.call("get", database, key, {"explain": True}, timeout_ms=NODE_MS)
    except GossipKVError as error:
        return FoundKey(database, key, None, "", "", error.message)
    match answer:
        case [bytes() | None as value, version, {"node": str(node)}]:
            return FoundKey(database, key, value, version if isinstance(version, str) else "", node)
        case _:
            return FoundKey(database, key, None, "", "")


async def together(
    asks: Sequence[Callable[[], Awaitable[Value]]], *, at_once: int = AT_ONCE
) -> list[Value | GossipKVError]:
    """Return the answers in order, or the errors in their places."""
    answers: list[Value | GossipKVError] = [None] * len(asks)
    turns = trio.CapacityLimiter(max(1, at_once))

    async def put(place: int, ask: Callable[[], Awaitable[Value]]) -> None:
        async with turns:
            try:
                answers[place] = await ask()
            except GossipKVError as error:
                answers[place] = error

    async with trio.open_nursery() as nursery:
        for place, ask in enumerate(asks):
            nursery.start_soon(put, place, ask)
    return answers


def values(answers: Sequence[Value | GossipKVError]) -> list[Value]:
    """Return answers without errors.

    Raises:
        GossipKVError: the first error among the answers.
    """
    found: list[Value] = []
    for answer in answers:
        if isinstance(answer, GossipKVError):
            raise answer
        found.append(answer)
    return found
