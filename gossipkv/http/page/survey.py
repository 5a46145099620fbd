"""The survey for a page: the node's knowledge, and its verdict, for which it asks the members itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from gossipkv.errors import GossipKVError, UnknownDatabase
from gossipkv.http.page.placement_map import MAX_PARTITIONS, Assigned
from gossipkv.status.reading import list_of, map_of, whole_of
from gossipkv.status.tables import KINDS, RANGE
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
    info: dict[str, Value]
    members: list[dict[str, Value]]
    status: dict[str, Value]  # The keys are databases; sets of partitions are bitmaps.
    verdict: ClusterVerdict
    # The hosts of each partition, if the survey is about one table.
    assigned: list[list[Assigned]] = field(default_factory=list)
    # The entries of `partitions`, if the survey is about one range table.
    ranges: list[dict[str, Value]] = field(default_factory=list)

    @property
    def node(self) -> str:
        """Return the name of the asked node."""
        return str(self.info.get("node"))


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
    info, members, judged = await together([*asks, partial(ask.call, "verdict", *about, timeout_ms=NODE_MS)])
    _raise_first([info, members, judged])
    status = await status_of(ask, database, bitmaps=True)
    kind = map_of(status.get(database or "")).get("kind")
    assigned: list[list[Assigned]] = []
    ranges: list[dict[str, Value]] = []
    if database is not None and kind in KINDS:
        assigned, ranges = await partitions_of(ask, database, is_range=kind == RANGE)
    told = [map_of(each) for each in list_of(_value(members))]
    return PageSurvey(now_s, map_of(_value(info)), told, status, verdict_of(map_of(_value(judged))), assigned, ranges)


async def status_of(ask: Asker, database: str | None, *, bitmaps: bool) -> dict[str, Value]:
    """Return the `status` of one database or of all; databases are asked for separately, so that any number fits.

    Raises:
        GossipKVError: the node did not answer, or does not know the database.
    """
    if database is None:
        listed = list_of(await ask.call("databases", timeout_ms=NODE_MS))
        names = [str(map_of(each).get("name")) for each in listed]
    else:
        names = [database]
    more: dict[str, Value] = {"bitmaps": True} if bitmaps else {}
    answers = await together(
        [partial(ask.call, "status", {"database": name, **more}, timeout_ms=NODE_MS) for name in names]
    )
    if database is None:  # A database may have gone since the listing.
        answers = [{} if isinstance(each, UnknownDatabase) else each for each in answers]
    _raise_first(answers)
    return {name: entry for each in answers for name, entry in map_of(_value(each)).items()}


async def partitions_of(
    ask: Asker, table: str, *, is_range: bool = False
) -> tuple[list[list[Assigned]], list[dict[str, Value]]]:
    """Return the assignments of each partition of a table, in order, and for range tables their entries.

    Both lists are empty if the map is not known yet.
    """
    method, hosts = ("partitions", "hosts") if is_range else ("partition_map", "assignments")
    assigned: list[list[Assigned]] = []
    ranges: list[dict[str, Value]] = []
    options: dict[str, Value] = {}
    while True:
        try:
            told = map_of(await ask.call(method, table, options, timeout_ms=NODE_MS))
        except GossipKVError:
            return [], []
        for partition in map(map_of, list_of(told.get("partitions"))):
            rows = map(map_of, list_of(partition.get(hosts)))
            assigned.append(
                [Assigned(str(one.get("node")), whole_of(one.get("slot")) or 0, str(one.get("state"))) for one in rows]
            )
            ranges += [partition] if is_range else []
        after = told.get("next")
        if after is None or len(assigned) > MAX_PARTITIONS:
            return assigned, ranges
        options = {"start": after}


async def look_up(ask: Asker, database: str, key: bytes) -> FoundKey:
    """Read a key as a client would, with the node that answered."""
    try:
        answer = list_of(await ask.call("get", database, key, {"explain": True}, timeout_ms=NODE_MS))
    except GossipKVError as error:
        return FoundKey(database, key, None, "", "", error.message)
    value, told, explained = [*answer, None, None, None][:3]
    version = told if isinstance(told, str) else ""
    return FoundKey(
        database, key, value if isinstance(value, bytes) else None, version, str(map_of(explained).get("node") or "")
    )


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


def _raise_first(answers: Sequence[Value | GossipKVError]) -> None:
    for answer in answers:
        if isinstance(answer, GossipKVError):
            raise answer


def _value(answer: Value | GossipKVError) -> Value:
    assert not isinstance(answer, GossipKVError), answer
    return answer
