"""What to do next: from what is told, one instruction for each kind of trouble."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from gossipkv.http.page.placement_map import in_order
from gossipkv.status.reading import count_of, list_of, map_of, maps_of
from gossipkv.status.versions import newest, versions
from gossipkv.status.words import names_text, plain, some_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gossipkv.http.page.survey import Survey
    from gossipkv.wire.rpc import Value


def advice(survey: Survey) -> list[str]:
    """Return what an operator is to do, the most urgent first; nothing where nothing is to be done."""
    return [*_for_node(survey.info), *_for_partitions(survey), *_for_versions(survey)]


def _for_node(info: Mapping[str, Value]) -> Iterator[str]:
    if info.get("silent") is not None:
        yield f"Make room on the disk of {plain(info.get('node'))}, or make its data directory writable."
    if info.get("isolated") is True:
        yield (
            f"Look at the network between {plain(info.get('node'))} and the other nodes, "
            "and whether they have the same key ring."
        )
    if twice := list_of(info.get("claimed_twice")):
        yield f"Give one of the two nodes that are called {names_text(twice)} another name (`node`)."
    if info.get("source_error") is not None:
        yield "Make the source readable for every node, or mend the setting `source`."
    if map_of(info.get("tables")).get("why") is not None:
        yield f"Mend the store of the tables of {plain(info.get('node'))}, or start that node with `--forget-tables`."
    if info.get("publish_error") is not None:
        yield "Let nodes publish more (`max_branch`), or have fewer databases."


def _for_partitions(survey: Survey) -> Iterator[str]:
    """Tell whose return would help, and what happens without it."""
    missing, few = _Lost(), _Lost()
    away = [member.get("node") for member in survey.members if member.get("state") == "dead"]
    for database, entry in sorted(maps_of(dict(survey.status)).items()):
        active = maps_of(entry.get("versions")).get(str(entry.get("active")), {})
        owners = map(map_of, list_of(active.get("owners")))
        dead = [owner.get("node") for owner in owners if owner.get("state") == "dead"]
        if nowhere := count_of(active.get("missing")):
            missing.add(database, nowhere, dead)
        elif (short := count_of(active.get("under_replicated"))) and away:
            few.add(database, short, dead or away)
    if missing.partitions:
        yield f"{missing.words} can be read nowhere. After `reassign_after` others build what is missing."
    if few.partitions:
        yield (
            f"{few.words} {few.have} fewer copies than there are to be. "
            "A new node with the `shard_id` of a dead one takes its place."
        )


@final
@dataclass
class _Lost:
    """Partitions of some databases that dead nodes have."""

    partitions: int = 0
    databases: list[Value] = field(default_factory=list)
    nodes: dict[str, None] = field(default_factory=dict)

    def add(self, database: str, partitions: int, dead: Sequence[Value]) -> None:
        """Take in those of one database."""
        self.partitions += partitions
        self.databases.append(database)
        self.nodes |= dict.fromkeys(map(str, dead))

    @property
    def have(self) -> str:
        """The verb."""
        return "has" if self.partitions == 1 else "have"

    @property
    def words(self) -> str:
        """Who is to be started again, and for what."""
        names = sorted(self.nodes, key=in_order)
        nodes = some_text(names) if names else "the nodes that had them"
        counted = "1 partition" if self.partitions == 1 else f"{self.partitions:,} partitions"
        return f"Start {nodes} again: {counted} of {some_text(self.databases)}"


def _for_versions(survey: Survey) -> Iterator[str]:
    awaited = {(version.database, version.name) for version in newest(survey.status)}
    for version in versions(survey.status):
        told = map_of(maps_of(map_of(survey.status[version.database]).get("versions")).get(version.name))
        name = f"{version.database} {version.name}"
        if version.lacks_space:
            yield f"Make room on the disk of {survey.node}: {name} waits for it."
        elif version.error is not None and (file := map_of(told.get("error")).get("file")) is not None:
            yield f"Mend {plain(file)} at the source, or take {name} away there; it is tried again by itself."
        if list_of(told.get("conflicts")):
            yield f"Let all nodes see the same files of {name}, and give other contents another version's name."
        if version.held and (version.database, version.name) in awaited and version.serves:
            yield f"Remove the hold of {version.database} when a newer version is good."
    if not survey.status:
        yield "Put a first version at the source: DATABASE/VERSION/FILES below its root."
