"""Reasons about one dataset, from all members' reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.status.judging.merging import at, grouped
from gossipkv.status.reading import count_of, list_of, map_of, number_of, whole_of
from gossipkv.status.sentences import runs_of
from gossipkv.status.verdict import ATTENTION, COMES, STUCK, TROUBLE, WELL, Coming, Reason
from gossipkv.status.versions import stray_text
from gossipkv.status.words import done_text, left_text, names_text, plain, some_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.status.judging.merging import Entry
    from gossipkv.wire.rpc import Value

MAX_BUILDERS: Final = 8  # Builders named individually; the others are counted.
CONTENTS: Final = frozenset(("conflicts", "disputes", "unpublished"))
DIGEST_DIGITS: Final = 8  # Enough digits of a digest to tell two apart.


class Building(NamedTuple):
    """A member that builds its share of a version."""

    name: str
    done: float
    remaining_s: float | None

    @property
    def words(self) -> str:
        """Return the progress in words."""
        return done_text(self.done, self.remaining_s)


@final
class DatasetReport:
    """One dataset in the members' reports."""

    def __init__(
        self,
        name: str,
        entries: Mapping[str, Entry],
        shared: frozenset[str],
        able: frozenset[str],
        dead: frozenset[str],
    ) -> None:
        """Create it from the `entries` by member.

        `shared`: members whose statements about others count; `able`: members that can build; `dead`: dead members.
        """
        self.name = name
        self._entries = entries
        self._shared = shared
        self._able = able
        self._dead = dead
        self._told: dict[str, dict[str, dict[str, Value]]] = {}  # The keys are a version, then a member.
        for node, entry in entries.items():
            for version, told in map_of(entry.get("versions")).items():
                if isinstance(told, dict) and told:
                    self._told.setdefault(version, {})[node] = told

    def coming(self) -> Coming | None:
        """Return the version that should serve and does not yet at every member; None: there is none."""
        awaited = [plain(entry["awaits"]) for entry in self._entries.values() if entry.get("awaits") is not None]
        if not awaited:
            return None
        version = max(awaited)
        building = self._builders(version)
        state = STUCK if self._is_stuck(version) else COMES
        done, remaining_s = (building[0].done, building[0].remaining_s) if building else (None, None)
        is_first = all(entry.get("active") is None for entry in self._entries.values())
        waits = tuple(self._waits(version, building))
        return Coming(version, state, done, remaining_s, len(building), waits, is_first)

    def _builders(self, version: str) -> list[Building]:
        """Return the builders of a version, by their own reports, the slowest first."""
        found = []
        for name, told in self._said(version).items():
            if told.get("state") == "BUILDING":
                progress = map_of(told.get("progress"))
                done, remaining_s = number_of(progress.get("done")) or 0.0, number_of(progress.get("remaining_s"))
                found.append(Building(name, done, remaining_s))
        return sorted(found, key=lambda each: (each.done, each.name))

    def reasons(self, coming: Coming | None) -> Iterator[Reason]:
        """Yield all reasons about the dataset."""
        for level, text, advice in self._all(coming):
            yield Reason(level, f"{self.name}{text}", self.name, advice)

    def _all(self, coming: Coming | None) -> Iterator[tuple[str, str, str | None]]:
        for error, nodes in grouped(self._entries, "error").items():
            yield TROUBLE, f": {error}{at(nodes, self._entries)}", None
        yield from self._unread(coming)
        yield from self._lost()
        for version in sorted(self._told):
            for level, text, advice in self._of_version(version, coming):
                yield level, f" {version}: {text}", advice
        yield from self._differing(coming)
        for hold, nodes in grouped(self._entries, "hold").items():
            if coming is None:
                release = f"`gossipkv databases release {self.name}` when a newer one is good"
                if all(self._entries[plain(node)].get("held_by") == "settings" for node in nodes):
                    release = f"take `hold` out of [databases.{self.name}] there when a newer one is good"
                yield WELL, f" is held on {hold} at {some_text(nodes)}: {release}", None

    def _unread(self, coming: Coming | None) -> Iterator[tuple[str, str, str | None]]:
        """Yield a reason if no version is active anywhere, so that nothing can be read."""
        if any(entry.get("active") is not None for entry in self._entries.values()):
            return
        if coming is None:
            empty = "Put a first version at the source: DATABASE/VERSION/FILES below its root."
            yield TROUBLE, ": nothing of it can be read: there is no version of it", empty
        elif coming.state == COMES:
            progress = f", {coming.progress}" if coming.progress else ""
            waits = grouped(self._said(coming.version), "waiting_for")
            how = f"waits for {next(iter(waits))}" if waits and not progress else f"is on its way{progress}"
            yield ATTENTION, f" cannot be read yet: {coming.name} {how}", None

    def _lost(self) -> Iterator[tuple[str, str, str | None]]:
        """Yield the partitions of the active version with no owner, or too few."""
        worst, few = self._most("missing"), self._most("under_replicated")
        if worst is not None:
            version, told = worst
            start = self._back(told)
            able = self._able - {node for _, nodes, _, _ in self._failed(version) for node in map(plain, nodes)}
            if able and not all(self._is_gone(node, version) for node in able):
                start += " After `reassign_after` others build it."
            if count_of(told.get("missing")) >= (whole_of(told.get("partition_count")) or 0):
                yield TROUBLE, f" {version}: nothing of it can be read: no partition has a live owner", start
            else:
                missing = map_of(told.get("missing"))
                yield (
                    TROUBLE,
                    f" {version}: {_counted(missing, told)} without a live owner: {runs_of(missing, told)}",
                    start,
                )
        if few is not None and (
            worst is None or count_of(few[1].get("under_replicated")) > count_of(worst[1].get("missing"))
        ):
            yield self._few(*few)

    def _few(self, version: str, told: Entry) -> tuple[str, str, str | None]:
        """Return a reason that further copies are on their way, or lacking."""
        some, building = map_of(told.get("under_replicated")), self._builders(version)
        few = f"on fewer than {plain(told.get('replication'))} live nodes"
        for_ms, patience_ms = whole_of(told.get("switched_ms")), whole_of(told.get("reassign_after_ms")) or 0
        is_young = for_ms is not None and for_ms < patience_ms
        if not (is_young or building) or any(owner in self._dead for owner in map(plain, list_of(told.get("away")))):
            more = "Have as many nodes as there are to be copies (`replication`)."
            is_small = len(self._shared) < (whole_of(told.get("replication")) or 0) and not list_of(told.get("away"))
            text = f" {version}: {_counted(some, told)} {few}: {runs_of(some, told)}"
            return ATTENTION, text, more if is_small else None
        left_s = max((each.remaining_s for each in building if each.remaining_s is not None), default=None)
        text = f" {version}: further copies are on their way{left_text(left_s)}: {_counted(some, told)}"
        return WELL if is_young else ATTENTION, text, None

    def _of_version(self, version: str, coming: Coming | None) -> Iterator[tuple[str, str, str | None]]:
        is_awaited = coming is not None and coming.version == version
        comes = is_awaited and coming is not None and coming.state == COMES
        is_over = self._is_over(version)
        lost = "nothing of it can be read: " if is_awaited and coming is not None and coming.is_first else ""
        for error, nodes, file, again in self._failed(version):
            there = f"or take {self.name} {version} away there; it is tried again by itself"
            mend = None if file is None or again else f"Mend {file} at the source, {there}."
            how = "; it is tried again" if again else "; others can" if comes else ""
            text = f"{'' if comes else lost}{some_text(nodes)} cannot build it{how}: {error}"
            yield WELL if is_over else ATTENTION if comes else TROUBLE, text, None if is_over else mend
        for node, told in {} if is_over else self._said(version).items():
            if told.get("needed_bytes") is not None:
                room = f"Make room on the disk of {node}: {self.name} {version} waits for it."
                yield TROUBLE, f"{node} waits for {plain(told.get('waiting_for'))}", room
        for why, nodes in grouped(self._said(version), "withheld").items():
            accept = f"`gossipkv databases hold {self.name} {version}`, then `gossipkv databases release {self.name}`"
            advice = f"If {self.name} {version} is right as it is, accept it: {accept}. Else publish a newer version."
            yield TROUBLE if lost else ATTENTION, f"{lost}{some_text(nodes)} will not switch to it: {why}", advice
        yield from self._contents(version)
        strays = {
            node: {"stray": stray_text(told)} for node, told in self._said(version).items() if told.get("first_stray")
        }
        for stray, some in grouped(strays, "stray").items():
            yield WELL, f"{stray}{at(some, self._entries)}", None

    def _contents(self, version: str) -> Iterator[tuple[str, str, str | None]]:
        """Yield differing files of one name, and unpublished statements."""
        one_name = (
            f"Let all nodes see the same files of {self.name} {version}, "
            "and give other contents another version's name."
        )
        said: dict[str, str | None] = {}
        for node, told in self._of_others(version):
            if not CONTENTS & told.keys():
                continue
            said |= dict.fromkeys(_conflicts(told), one_name)
            said |= dict.fromkeys(_disputes(told), one_name)
            if told.get("unpublished") is True:
                said[f"the tree has no room for what {node} has of it, so others do not ask it for that"] = None
        for text, advice in said.items():
            yield TROUBLE, text, advice

    def _differing(self, coming: Coming | None) -> Iterator[tuple[str, str, str | None]]:
        """Yield the active versions by node, if they differ."""
        places: dict[str, list[Value]] = {}
        for node, entry in self._entries.items():
            places.setdefault("none" if entry.get("active") is None else plain(entry["active"]), []).append(node)
        if len(places) == 1 or (coming is not None and len(places.keys() - {"none"}) == 1):
            return
        told = (f"{version} on {some_text(nodes)}" for version, nodes in sorted(places.items(), reverse=True))
        is_meant = coming is not None and coming.state == COMES
        yield (
            WELL if is_meant or any(grouped(self._entries, "hold")) else ATTENTION,
            f": active are {', '.join(told)}",
            None,
        )

    # Wait conditions of a version

    def _waits(self, version: str, building: list[Building]) -> Iterator[str]:
        said = self._said(version)
        yield from (f"waits until {until}" for until in grouped(said, "waits_until"))
        for each in building[:MAX_BUILDERS]:
            yield f"waits for what {each.name} builds, {each.words}"
        if more := building[MAX_BUILDERS:]:
            least, most = more[0].done * 100, more[-1].done * 100
            yield f"waits for {len(more):,} more nodes that build, {least:.0f} to {most:.0f} % done"
        for error, nodes, _, _ in self._failed(version):
            yield f"{some_text(nodes)} cannot build it: {error}"
        if any(told.get("nowhere") is True for told in said.values()):
            yield from grouped(self._entries, "error")
        for why, nodes in grouped(said, "waiting_for").items():
            yield f"{some_text(nodes)} {'waits' if len(nodes) == 1 else 'wait'} for {why}"

    def _failed(self, version: str) -> list[tuple[str, list[Value], str | None, bool]]:
        """Return why nodes cannot build a version, the file at fault, and whether that file may still change.

        A changing file is one cause, whatever state of it each node has seen.
        """
        found: dict[str, tuple[str, list[Value], str | None, bool]] = {}
        for node, told in self._said(version).items():
            error = map_of(told.get("error"))
            if error:
                why, file = plain(error.get("message")), error.get("file")
                again = error.get("again") is True and file is not None
                cause = why if file is None or not again else plain(file)
                found.setdefault(cause, (why, [], None if file is None else plain(file), again))[1].append(node)
        return list(found.values())

    def _is_stuck(self, version: str) -> bool:
        """True if a member cannot build it, and no other can: a file at the source is the same for all members."""
        said, failed = self._said(version), self._failed(version)
        if any(told.get("nowhere") is True or told.get("withheld") is not None for told in said.values()):
            return True
        if any(told.get("brought") is True or told.get("state") == "BUILDING" for told in said.values()):
            return False
        nodes = {plain(node) for _, some, _, _ in failed for node in some}
        if any(again for _, _, _, again in failed):
            return False
        return bool(failed) and (any(file is not None for _, _, file, _ in failed) or not self._able - nodes)

    # Reading of members' reports

    def _is_over(self, version: str) -> bool:
        """True if a newer version is active at all members that report this one, so that it is obsolete."""
        active = [self._entries[node].get("active") for node in self._said(version)]
        return all(isinstance(each, str) and each > version for each in active)

    def _said(self, version: str) -> dict[str, dict[str, Value]]:
        return self._told.get(version, {})

    def _most(self, key: str) -> tuple[str, Entry] | None:
        """Return the report on the active version by the member that sees most partitions affected."""
        best: tuple[str, Entry] | None = None
        most = 0
        for version in self._told:
            for node, told in self._of_others(version):
                if count_of(told.get(key)) > most and self._entries[node].get("active") == version:
                    best, most = (version, told), count_of(told.get(key))
        return best

    def _of_others(self, version: str) -> Iterator[tuple[str, dict[str, Value]]]:
        """Return the reports on a version by members whose statements about others count."""
        return ((node, told) for node, told in self._said(version).items() if node in self._shared)

    def _back(self, told: Entry) -> str:
        """Name the nodes that must return for the missing partitions."""
        away = list_of(told.get("away"))
        return f"What is missing of {self.name} comes back with {some_text(away) if away else 'those that had it'}."

    def _is_gone(self, node: str, version: str) -> bool:
        """True if a member no longer sees the version at its source."""
        return self._said(version).get(node, {}).get("at_source") is False


def _conflicts(version: Entry) -> Iterator[str]:
    contents = [map_of(each) for each in list_of(version.get("conflicts"))]
    if contents:
        told = (
            f"{plain(each.get('partition_count'))} partitions by {plain(each.get('function'))}"
            f"{', regrouped' if each.get('regrouped') is True else ''}, "
            f"digest {plain(each.get('digest'))[:DIGEST_DIGITS]}, on {names_text(list_of(each.get('nodes')))}"
            for each in contents
        )
        yield f"different contents by one name: {'; '.join(told)}"


def _disputes(version: Entry) -> Iterator[str]:
    for dispute in map(map_of, list_of(version.get("disputes"))):
        nodes, partitions = names_text(list_of(dispute.get("nodes"))), map_of(dispute.get("partitions"))
        yield f"the files of {nodes} differ for {_counted(partitions, version)}: {runs_of(partitions, version)}"


def _counted(some: Mapping[str, Value], version: Entry) -> str:
    return f"{count_of(dict(some)):,} of {whole_of(version.get('partition_count')) or 0:,} partitions"
