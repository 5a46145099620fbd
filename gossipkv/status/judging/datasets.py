"""Reasons about one dataset, from all members' reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.status.judging.merging import at, grouped
from gossipkv.status.sentences import stray_text
from gossipkv.status.verdict import ATTENTION, COMES, STUCK, TROUBLE, WELL, Coming, Level, Reason
from gossipkv.status.words import done_text, duration_text, left_text, names_text, some_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gossipkv.status.reports import DatasetReport, NameClash, NodeReport, ReportedSet, VersionStatus

    Finding = tuple[Level, str, str | None]  # Level, text and advice.

MAX_BUILDERS: Final = 8  # Builders named individually; the others are counted.
DIGEST_DIGITS: Final = 8  # Enough digits of a digest to tell two apart.


class MemberGroups(NamedTuple):
    """The members by the weight of their statements."""

    believed: frozenset[str]  # Their statements about others count.
    able: frozenset[str]  # They can build.
    dead: frozenset[str]


def member_groups(reports: Mapping[str, NodeReport], states: Mapping[str, str]) -> MemberGroups:
    """Return the groups of members, by their own reports and by their `states`."""
    connected = frozenset(name for name, report in reports.items() if not report.isolated)
    able = frozenset(
        name
        for name in connected
        if not (reports[name].silent or reports[name].source_error or reports[name].sourceless)
    )
    dead = frozenset(name for name, state in states.items() if state == "dead")
    return MemberGroups(connected or frozenset(reports), able, dead)


class Building(NamedTuple):
    """A member that builds its share of a version."""

    name: str
    done: float
    remaining_s: float | None


class BuildFailure(NamedTuple):
    """A cause for which nodes cannot build a version."""

    error: str
    nodes: list[str]
    file: str | None  # The file at fault.
    again: bool  # The file may still change.


@final
class DatasetJudge:
    """One dataset in the members' reports."""

    def __init__(self, name: str, entries: Mapping[str, DatasetReport], groups: MemberGroups) -> None:
        """Create it from the `entries` by member."""
        self.name = name
        self._entries = entries
        self._groups = groups
        self._versions: dict[str, dict[str, VersionStatus]] = {}  # The keys are a version, then a member.
        for node, entry in entries.items():
            for version, report in entry.versions.items():
                self._versions.setdefault(version, {})[node] = report

    def coming(self) -> Coming | None:
        """Return the version that should serve and does not yet at every member; None: there is none."""
        awaited = [entry.awaits for entry in self._entries.values() if entry.awaits is not None]
        if not awaited:
            return None
        version = max(awaited)
        building = self._builders(version)
        state = STUCK if self._is_stuck(version) else COMES
        done, remaining_s = (building[0].done, building[0].remaining_s) if building else (None, None)
        waits = tuple(self._waits(version, building))
        return Coming(version, state, done, remaining_s, len(building), waits, self._is_unread())

    def reasons(self, coming: Coming | None) -> Iterator[Reason]:
        """Yield all reasons about the dataset."""
        for level, text, advice in self._findings(coming):
            yield Reason(level, f"{self.name}{text}", self.name, advice)

    def _findings(self, coming: Coming | None) -> Iterator[Finding]:
        for error, nodes in grouped(self._entries, lambda entry: entry.error).items():
            yield TROUBLE, f": {error}{at(nodes, self._entries)}", None
        if self._is_unread():
            yield from self._unread(coming)
        yield from self._lost()
        for version in sorted(self._versions):
            for level, text, advice in self._of_version(version, coming):
                yield level, f" {version}: {text}", advice
        yield from self._differing(coming)
        for hold, nodes in grouped(self._entries, lambda entry: entry.hold).items():
            if coming is None:
                release = f"run `gossipkv databases release {self.name}` when a newer version is good"
                if all(self._entries[node].held_by == "settings" for node in nodes):
                    release = f"remove `hold` from [databases.{self.name}] there when a newer version is good"
                yield WELL, f" is held on {hold} at {some_text(nodes)}: {release}", None

    def _is_unread(self) -> bool:
        """Return True if no version is active anywhere, so that nothing can be read."""
        return all(entry.active is None for entry in self._entries.values())

    def _unread(self, coming: Coming | None) -> Iterator[Finding]:
        """Yield a reason that nothing can be read, unless the reason for a stuck version says so."""
        if coming is None:
            empty = "Publish a first version: DATABASE/VERSION/FILES below the source root."
            yield TROUBLE, ": nothing can be read: there is no version", empty
        elif coming.state == COMES:
            progress = f", {coming.progress}" if coming.progress else ""
            waits = grouped(self._by_member(coming.version), lambda version: version.waiting_for)
            how = f"waits for {next(iter(waits))}" if waits and not progress else f"is coming{progress}"
            yield ATTENTION, f" cannot be read yet: {coming.name} {how}", None

    def _lost(self) -> Iterator[Finding]:
        """Yield the partitions of the active version with no owner, or too few."""
        worst = self._worst(lambda version: version.missing)
        few = self._worst(lambda version: version.under_replicated)
        if worst is not None:
            yield self._missing(*worst)
        if few is not None and (worst is None or few[1].under_replicated.count > worst[1].missing.count):
            yield self._few(*few)

    def _missing(self, name: str, version: VersionStatus) -> Finding:
        """Return a reason that partitions have no live owner."""
        owners = some_text(version.away) if version.away else "its former owners"
        advice = f"To restore the missing partitions, start {owners}."
        able = self._groups.able.difference(*(failure.nodes for failure in self._failures(name)))
        reports = self._by_member(name)
        if any(node not in reports or reports[node].at_source is not False for node in able):
            advice += " After `reassign_after`, other nodes build them."
        if version.missing.count >= version.total:
            return TROUBLE, f" {name}: nothing can be read: no partition has a live owner", advice
        missing = version.missing.first_runs(version.total)
        return TROUBLE, f" {name}: {_counted(version.missing, version)} without a live owner: {missing}", advice

    def _few(self, name: str, version: VersionStatus) -> Finding:
        """Return a reason that further copies are on their way, or lacking."""
        few, building = version.under_replicated, self._builders(name)
        counted = _counted(few, version)
        is_young = version.switched_ms is not None and version.switched_ms < version.reassign_after_ms
        is_coming = building or (is_young and not version.away)
        if is_coming and self._groups.dead.isdisjoint(version.away):
            left_s = max((builder.remaining_s for builder in building if builder.remaining_s is not None), default=None)
            text = f" {name}: more copies are being made{left_text(left_s)}: {counted}"
            return WELL if is_young else ATTENTION, text, None
        replication = "-" if version.replication is None else version.replication
        text = f" {name}: {counted} on fewer than {replication} live nodes: {few.first_runs(version.total)}"
        if len(self._groups.believed) < (version.replication or 0):
            return ATTENTION, text, None if version.away else "Start at least as many nodes as `replication`."
        start = f"start {some_text(version.away)}, or " if version.away else ""
        if repair_s := version.repair_after_ms // 1000:
            return ATTENTION, f"{text}; other nodes build them after {duration_text(repair_s)} (`repair_after`)", None
        advice = f"To make the lacking copies, {start}set `repair_after`, or publish the next version."
        return ATTENTION, f"{text}; no other node builds them, since `repair_after` is off", advice

    def _of_version(self, version: str, coming: Coming | None) -> Iterator[Finding]:
        awaited = coming if coming is not None and coming.version == version else None
        lost = "nothing can be read: " if awaited is not None and awaited.is_first else ""
        is_over, reports = self._is_over(version), self._by_member(version)
        comes = awaited is not None and awaited.state == COMES
        for failure in self._failures(version):
            yield self._failed(version, failure, lost="" if comes else lost, comes=comes, is_over=is_over)
        for node, report in {} if is_over else reports.items():
            if report.needed_bytes is not None:
                room = f"Make room on the disk of {node}: {self.name} {version} waits for it."
                yield TROUBLE, f"{node} waits for {report.waiting_for or '-'}", room
        for why, nodes in grouped(reports, lambda report: report.withheld).items():
            accept = f"`gossipkv databases hold {self.name} {version}`, then `gossipkv databases release {self.name}`"
            advice = f"If {self.name} {version} is right, accept it: {accept}. Otherwise, publish a newer version."
            yield TROUBLE if lost else ATTENTION, f"{lost}{some_text(nodes)} will not switch to it: {why}", advice
        yield from self._contents(version)
        strays = grouped(reports, lambda report: report.first_stray and stray_text(report, report.first_stray))
        for stray, nodes in strays.items():
            yield WELL, f"{stray}{at(nodes, self._entries)}", None
        for warning, nodes in grouped(reports, lambda report: " ".join(report.warnings) or None).items():
            yield ATTENTION, f"{warning}{at(nodes, self._entries)}", None

    def _failed(self, version: str, failure: BuildFailure, *, lost: str, comes: bool, is_over: bool) -> Finding:
        """Return the reason that nodes cannot build a version."""
        how = "; the build is retried" if failure.again else "; other nodes can" if comes else ""
        text = f"{lost}{some_text(failure.nodes)} cannot build it{how}: {failure.error}"
        if is_over:
            return WELL, text, None
        level: Level = ATTENTION if comes else TROUBLE
        if failure.file is None or failure.again:
            return level, text, None
        ways = f"Repair {failure.file} at the source, or the settings of {self.name} at all nodes"
        return level, text, f"{ways}, or remove {self.name} {version}; the build is retried by itself."

    def _contents(self, version: str) -> Iterator[Finding]:
        """Yield differing files of one name, and unpublished statements."""
        one_name = (
            f"Give all nodes the same files of {self.name} {version}, and publish other contents under another version."
        )
        findings: dict[str, str | None] = {}
        for node, report in self._believed(version):
            if report.conflicts:
                contents = "; ".join(map(_content, report.conflicts))
                findings[f"different contents under one name: {contents}"] = one_name
            for dispute in report.disputes:
                runs = dispute.partitions.first_runs(report.total)
                differing = f"differ for {_counted(dispute.partitions, report)}: {runs}"
                findings[f"the files of {names_text(dispute.nodes)} {differing}"] = one_name
            if report.unpublished:
                findings[
                    f"the tree has no room for the statements of {node} on it, so other nodes do not ask {node}"
                ] = None
        for text, advice in findings.items():
            yield TROUBLE, text, advice

    def _differing(self, coming: Coming | None) -> Iterator[Finding]:
        """Yield the active versions by node, if they differ."""
        places = grouped(self._entries, lambda entry: "none" if entry.active is None else entry.active)
        if len(places) == 1 or (coming is not None and len(places.keys() - {"none"}) == 1):
            return
        active = (f"{version} on {some_text(nodes)}" for version, nodes in sorted(places.items(), reverse=True))
        is_meant = coming is not None and coming.state == COMES
        is_held = any(entry.hold for entry in self._entries.values())
        yield WELL if is_meant or is_held else ATTENTION, f": active are {', '.join(active)}", None

    # Wait conditions of a version

    def _waits(self, version: str, building: list[Building]) -> Iterator[str]:
        reports = self._by_member(version)
        yield from (f"waits until {until}" for until in grouped(reports, lambda report: report.waits_until))
        for builder in building[:MAX_BUILDERS]:
            yield f"waits for what {builder.name} builds, {done_text(builder.done, builder.remaining_s)}"
        if more := building[MAX_BUILDERS:]:
            least, most = more[0].done * 100, more[-1].done * 100
            yield f"waits for {len(more):,} more nodes that build, {least:.0f} to {most:.0f} % done"
        for failure in self._failures(version):
            yield f"{some_text(failure.nodes)} cannot build it: {failure.error}"
        if any(report.nowhere for report in reports.values()):
            yield from grouped(self._entries, lambda entry: entry.error)
        for why, nodes in grouped(reports, lambda report: report.waiting_for).items():
            yield f"{some_text(nodes)} {'waits' if len(nodes) == 1 else 'wait'} for {why}"

    def _builders(self, version: str) -> list[Building]:
        """Return the builders of a version, by their own reports, the slowest first."""
        building = [
            Building(name, report.progress.done or 0.0, report.progress.remaining_s)
            for name, report in self._by_member(version).items()
            if report.state == "BUILDING"
        ]
        return sorted(building, key=lambda builder: (builder.done, builder.name))

    def _failures(self, version: str) -> list[BuildFailure]:
        """Return the causes for which nodes cannot build a version.

        A changing file is one cause, whatever state of it each node has seen.
        """
        found: dict[str, BuildFailure] = {}
        for node, report in self._by_member(version).items():
            if (fault := report.error) is not None:
                again = fault.again and fault.file is not None
                cause = fault.file if again and fault.file is not None else fault.message
                found.setdefault(cause, BuildFailure(fault.message, [], fault.file, again)).nodes.append(node)
        return list(found.values())

    def _is_stuck(self, version: str) -> bool:
        """Return True if a member cannot build it, and no other can: all members see the same file at the source."""
        reports, failures = self._by_member(version).values(), self._failures(version)
        if any(report.nowhere or report.withheld is not None for report in reports):
            return True
        if any(report.brought or report.state == "BUILDING" for report in reports):
            return False
        if any(failure.again for failure in failures):
            return False
        able = self._groups.able.difference(*(failure.nodes for failure in failures))
        return bool(failures) and (any(failure.file is not None for failure in failures) or not able)

    # Reading of members' reports

    def _is_over(self, version: str) -> bool:
        """Return True if a newer version is active at all members that report this one, so that it is obsolete."""
        active = [self._entries[node].active for node in self._by_member(version)]
        return all(name is not None and name > version for name in active)

    def _by_member(self, version: str) -> dict[str, VersionStatus]:
        return self._versions.get(version, {})

    def _worst(self, affected: Callable[[VersionStatus], ReportedSet]) -> tuple[str, VersionStatus] | None:
        """Return the report on the active version by the member that sees most partitions affected."""
        reports = [
            (version, report)
            for version in self._versions
            for node, report in self._believed(version)
            if self._entries[node].active == version
        ]
        worst = max(reports, key=lambda report: affected(report[1]).count, default=None)
        return worst if worst is not None and affected(worst[1]).count else None

    def _believed(self, version: str) -> Iterator[tuple[str, VersionStatus]]:
        """Return the reports on a version by members whose statements about others count."""
        reports = self._by_member(version).items()
        return ((node, report) for node, report in reports if node in self._groups.believed)


def _content(clash: NameClash) -> str:
    regrouped = ", regrouped" if clash.regrouped else ""
    function = f"{clash.partition_count} partitions by {clash.function}{regrouped}"
    return f"{function}, digest {clash.digest[:DIGEST_DIGITS]}, on {names_text(clash.nodes)}"


def _counted(affected: ReportedSet, version: VersionStatus) -> str:
    return f"{affected.count:,} of {version.total:,} partitions"
