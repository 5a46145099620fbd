"""What is asked for a page: of the node what it knows, and of the members, where a version waits, how far each one is.

The answers are kept as they came.  Whoever does not answer is named with the reason, and holds up nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from gossipkv.errors import GossipKVError, UnknownDatabase
from gossipkv.status.reading import count_of, list_of, map_of, maps_of
from gossipkv.status.versions import newest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from gossipkv.http.answers import Asker
    from gossipkv.http.page.links import Links
    from gossipkv.wire.rpc import Value

NODE_MS: Final = 3000  # For what the node itself is asked.
MEMBER_MS: Final = 1000  # For what a member is asked: a page must not wait long for one that is gone.
AT_ONCE: Final = 8  # Questions to one node: others ask it, too.
REACHABLE: Final = {"alive", "suspect"}


@dataclass(frozen=True, slots=True)
class Survey:
    """What was told at one moment."""

    taken_s: float  # Since 1970.
    info: dict[str, Value]
    members: list[dict[str, Value]]
    status: dict[str, Value]  # By database, with sets of partitions as bitmaps.
    said: dict[str, dict[str, Value]] = field(default_factory=dict)  # By member and database: its own state.
    silent: dict[str, str] = field(default_factory=dict)  # Members that did not answer, and why.

    @property
    def node(self) -> str:
        """Name of the node that was asked."""
        return str(self.info.get("node"))


async def take_survey(ask: Asker, links: Links, now_s: float, database: str | None = None) -> Survey:
    """Ask the node, then the members; of one database or of all.

    Raises:
        GossipKVError: the node did not answer, or does not know the database.
    """
    info, members = await together([partial(ask.call, name, timeout_ms=NODE_MS) for name in ("info", "members")])
    _raise_first([info, members])
    status = await status_of(ask, database, bitmaps=True)
    survey = Survey(now_s, map_of(_value(info)), [map_of(each) for each in list_of(_value(members))], status)
    waiting = [name for name, entry in maps_of(dict(status)).items() if is_waiting(name, entry)]
    if waiting:
        await _ask_members(survey, links, waiting)
    return survey


async def status_of(ask: Asker, database: str | None, *, bitmaps: bool) -> dict[str, Value]:
    """Return what `status` says of one database or of all; each is asked for alone, so that any number is answered.

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
    if database is None:  # One may have gone since they were listed.
        answers = [{} if isinstance(each, UnknownDatabase) else each for each in answers]
    _raise_first(answers)
    return {name: entry for each in answers for name, entry in map_of(_value(each)).items()}


def is_waiting(name: str, entry: Mapping[str, Value]) -> bool:
    """Whether a version of a database is to serve and does not, or a node builds what is to be there of one."""
    if any(not version.serves for version in newest({name: dict(entry)})):
        return True
    versions = maps_of(entry.get("versions")).values()
    owners = (map_of(owner) for version in versions for owner in list_of(version.get("owners")))
    return any(owner.get("state") != "dead" and count_of(owner.get("building")) for owner in owners)


async def _ask_members(survey: Survey, links: Links, databases: Sequence[str]) -> None:
    """Ask each live member for its own part of the databases that wait."""
    survey.said[survey.node] = {name: survey.status[name] for name in databases}
    others = {
        str(member.get("node")): str(member.get("address"))
        for member in survey.members
        if member.get("state") in REACHABLE and member.get("node") != survey.node
    }
    asks = [partial(_ask_member, links, address, databases) for address in others.values()]
    for name, answer in zip(others, await together(asks, at_once=len(asks)), strict=True):
        if isinstance(answer, GossipKVError):
            survey.silent[name] = answer.message
        else:
            survey.said[name] = map_of(answer)


async def _ask_member(links: Links, address: str, databases: Sequence[str]) -> Value:
    said: dict[str, Value] = {}
    for name in databases:
        try:
            asked: Value = {"local": True, "database": name, "bitmaps": True}
            said |= map_of(await links.call(address, "status", asked, timeout_ms=MEMBER_MS))
        except UnknownDatabase:
            said[name] = {}  # It has not come to know it yet.
    return said


async def together(
    asks: Sequence[Callable[[], Awaitable[Value]]], *, at_once: int = AT_ONCE
) -> list[Value | GossipKVError]:
    """Return the answers, and in the place of each that there was none the error."""
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
