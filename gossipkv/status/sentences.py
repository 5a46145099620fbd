"""What an operator has to see at once, in sentences: of a node, of databases, of who has what of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.status.reading import count_of, list_of, map_of, maps_of, partitions_of, whole_of
from gossipkv.status.versions import versions
from gossipkv.status.words import duration_text, names_text, plain, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.status.versions import VersionStatus
    from gossipkv.wire.rpc import Value

FEW_RUNS: Final = 8  # Of partitions in a line.
DIGEST_DIGITS: Final = 8  # Of a digest in a line: enough to tell two of them apart.


# What is said of a store, by the name of a counter.
_OF_STORE: Final = {
    "batches": "{} batches",
    "memtable_bytes": "{} in memory",
    "young_runs": "{} young runs",
    "run_bytes": "{} in runs",
    "log_kept_bytes": "{} of log",
    "debt_bytes": "{} to be merged",
}


class Line(NamedTuple):
    """Something to be told beside the tables."""

    text: str
    is_trouble: bool  # Else it only deserves attention.


# Of a node


def of_node(info: Mapping[str, Value]) -> Iterator[str]:
    """What is wrong with the node that was asked."""
    if info.get("isolated") is True:
        yield "isolated: it hears from no other node, and what it knows of them is stale"
    if info.get("publish_error") is not None:
        yield f"tree: {plain(info['publish_error'])}"
    if twice := list_of(info.get("claimed_twice")):
        names = ", ".join(map(plain, twice))
        yield f"claimed twice: two nodes are called {names}; `gossipkv tree duplicates` says where"
    if unread := list_of(info.get("unreadable")):
        yield f"unreadable: {', '.join(map(plain, unread))} say what this release cannot read; let all run one that can"
    if info.get("silent") is not None:
        yield f"silent: nothing is built or switched, and no node hears of it: {plain(info['silent'])}"
    if info.get("source_error") is not None:
        yield f"source: {plain(info['source_error'])}"
    if (why := map_of(info.get("tables")).get("why")) is not None:
        yield f"tables: closed: {plain(why)}"
    if (damage := map_of(info.get("tables")).get("log_damage")) is not None:
        yield f"tables: log that was kept for its readers alone is damaged, and was let go of: {plain(damage)}"


def of_memory(info: Mapping[str, Value]) -> str | None:
    """How much of the mapped files is resident, and why; None: nothing is mapped."""
    memory = map_of(info.get("memory"))
    mapped, compressed = whole_of(memory.get("mapped_bytes")), whole_of(memory.get("compressed_bytes"))
    room = whole_of(memory.get("room_bytes"))
    if not mapped and not compressed:
        return None
    resident = {"all": "all resident", "active": "the active versions resident, the others paged", "none": "paged"}
    how = resident.get(plain(memory.get("resident")), "-")
    if memory.get("residency") != "auto":
        how += " by the setting"
    why = "no limit is known" if room is None else f"room for {size_text(room)} by {plain(memory.get('limit'))}"
    apart = f"; beside that {size_text(compressed)} compressed, paged" if compressed else ""
    return f"memory: {size_text(mapped or 0)} mapped, {how}: {why}{apart}"


def of_tables(info: Mapping[str, Value]) -> str | None:
    """How the store of the tables stands; None: there is none that is open."""
    tables = map_of(info.get("tables"))
    if tables.get("state") != "open":
        return None
    counted = map_of(tables.get("counters"))
    written, from_users = whole_of(counted.get("log_bytes")), whole_of(counted.get("user_bytes"))
    merged = whole_of(counted.get("merged_bytes"))
    told = [f"tables: open, life {plain(tables.get('life'))}"]
    for name, words in _OF_STORE.items():
        number = whole_of(counted.get(name))
        if number is not None:
            told.append(words.format(size_text(number) if name.endswith("_bytes") else f"{number:,}"))
    if written is not None and merged is not None and from_users:
        told.append(f"{(written + merged) / from_users:.1f} bytes written for each that came")
    return ", ".join(told)


# Of versions, as they are on that node


def of_versions(told: Mapping[str, Value]) -> Iterator[Line]:
    """What is wrong with databases and their versions on the node that was asked, and what is noteworthy."""
    for version in versions(told):
        if version.stray:
            yield Line(f"{version.database} {version.name}: {version.stray}", is_trouble=False)
    for database, entry in sorted(maps_of(dict(told)).items()):
        if entry.get("error") is not None:
            yield Line(f"{database}: {plain(entry['error'])}", is_trouble=True)
    for version in versions(told):
        if version.lacks_space:
            yield Line(f"{version.database} {version.name}: waits for {version.waiting_for}", is_trouble=True)
        if version.error is not None:
            yield Line(f"{version.database} {version.name}: {version.error}", is_trouble=True)


def remarks(version: VersionStatus, progress: str = "", *, alike: bool = True) -> str:
    """What is to be said beside a version: `progress` while it is built, and with `alike` which functions fit, too."""
    said = []
    if version.held:
        said.append("held")
    if version.waiting_for is not None:
        said.append("waits for room" if version.lacks_space else f"waits for {version.waiting_for}")
    if version.state == "BUILDING" and progress:
        said.append(progress)
    if version.waited_s is not None:
        said.append(f"waiting {duration_text(int(version.waited_s))}")
    if alike and version.functions[1:]:
        said.append(f"{' and '.join(version.functions[1:])} would do as well")
    if version.duplicates:
        said.append(f"{version.duplicates:,} duplicates")
    if version.scrub is not None:
        said.append(version.scrub)
    if version.source_differs:
        said.append("source has changed since")
    return "; ".join(said)


def progress_text(version: VersionStatus) -> str:
    """How far its build is, and how long it will go on; nothing where that is not told."""
    if version.done is None:
        return ""
    left = "" if version.remaining_s is None else f", {duration_text(round(version.remaining_s))} left"
    return f"{version.done:.0%}{left}"


# Of versions that several nodes have


def unowned(told: Mapping[str, Value]) -> bool:
    """Whether a partition of an active version has no live owner."""
    for entry in told.values():
        active = maps_of(map_of(entry).get("versions")).get(str(map_of(entry).get("active")))
        if active is not None and count_of(active.get("missing")):
            return True
    return False


def of_owners(told: Mapping[str, Value]) -> Iterator[Line]:
    """What is wrong with who has what, and what is noteworthy."""
    for database, entry in sorted(told.items()):
        is_shared = len(list_of(map_of(entry).get("nodes"))) > 1
        if is_shared and (differing := _differing(map_of(entry))):
            yield Line(f"{database}: {differing}", is_trouble=False)
        for name, version in sorted(maps_of(map_of(entry).get("versions")).items()):
            for line in _of_version(version, map_of(entry), is_active=name == map_of(entry).get("active")):
                if is_shared or line.is_trouble:
                    yield line._replace(text=f"{database} {name}: {line.text}")


def _of_version(version: Mapping[str, Value], entry: Mapping[str, Value], *, is_active: bool) -> Iterator[Line]:
    missing, few = map_of(version.get("missing")), map_of(version.get("under_replicated"))
    if is_active and count_of(missing):
        yield Line(f"{_counted(missing, version)} without a live owner: {runs_of(missing, version)}", is_trouble=True)
    if is_active and count_of(few) > count_of(missing):
        fewer = f"on fewer than {plain(entry.get('replication'))} live nodes"
        yield Line(f"{_counted(few, version)} {fewer}: {runs_of(few, version)}", is_trouble=False)
    for text in (*_conflicts(version), *_disputes(version)):
        yield Line(text, is_trouble=True)
    if version.get("unpublished") is True:
        yield Line(
            "the tree has no room for what this node has of it, so others do not ask it for that", is_trouble=True
        )
    if version.get("waits_until") is not None:
        yield Line(f"waits until {plain(version['waits_until'])}", is_trouble=False)
    if kept_by := list_of(version.get("kept_by")):
        yield Line(f"kept for {names_text(kept_by)}, which may still need it", is_trouble=False)


def _conflicts(version: Mapping[str, Value]) -> Iterator[str]:
    contents = [map_of(each) for each in list_of(version.get("conflicts"))]
    if contents:
        told = (
            f"{plain(each.get('partition_count'))} partitions by {plain(each.get('function'))}"
            f"{', regrouped' if each.get('regrouped') is True else ''}, "
            f"digest {plain(each.get('digest'))[:DIGEST_DIGITS]}, on {names_text(list_of(each.get('nodes')))}"
            for each in contents
        )
        yield f"different contents by one name: {'; '.join(told)}"


def _disputes(version: Mapping[str, Value]) -> Iterator[str]:
    for dispute in map(map_of, list_of(version.get("disputes"))):
        nodes, partitions = names_text(list_of(dispute.get("nodes"))), map_of(dispute.get("partitions"))
        yield f"the files of {nodes} differ for {_counted(partitions, version)}: {runs_of(partitions, version)}"


def _differing(entry: Mapping[str, Value]) -> str | None:
    """Which version is active where, if it is not the same on all nodes that live."""
    places: dict[str, list[Value]] = {}
    for node in map(map_of, list_of(entry.get("nodes"))):
        if node.get("state") != "dead":
            active = "" if node.get("active") is None else plain(node["active"])
            places.setdefault(active, []).append(node.get("node"))
    told = [f"{version or 'none'} on {names_text(nodes)}" for version, nodes in sorted(places.items(), reverse=True)]
    return f"active are {', '.join(told)}" if len(told) > 1 else None


def _counted(some: Mapping[str, Value], version: Mapping[str, Value]) -> str:
    return f"{count_of(dict(some)):,} of {whole_of(version.get('partition_count')) or 0:,} partitions"


def runs_of(some: Mapping[str, Value], version: Mapping[str, Value]) -> str:
    """The first runs of a set of a version's partitions."""
    if "bitmap" in some:
        count = whole_of(version.get("partition_count")) or 0
        words = partitions_of(dict(some), count).in_words(FEW_RUNS)
        return words.partition(" and ")[0] + (",..." if " and " in words else "")
    runs = plain(some.get("runs")).split(",") if some.get("runs") else []
    return ",".join([*runs[:FEW_RUNS], *(["..."] if len(runs) > FEW_RUNS else [])])
