"""What blocks a switch: what a version that is to serve waits for, member by member, in words.

The node's own sentence comes first (`waits_until`).  Then who builds and how far each is, the slowest first; who cannot
build, and why; and who did not answer, so that nobody reads silence as progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.status.reading import list_of, map_of, maps_of, number_of, partitions_of, text_of, whole_of
from gossipkv.status.words import duration_text, plain, some_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.http.page.survey import Survey
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.wire.rpc import Value

MOST_BUILDERS: Final = 8  # Named one by one; of the others there is the number.


class Building(NamedTuple):
    """A member that builds its share of a version."""

    name: str
    done: float
    remaining_s: float | None

    @property
    def words(self) -> str:
        """How far it is."""
        left = "" if self.remaining_s is None else f", {duration_text(round(self.remaining_s))} left"
        return f"{self.done * 100:.0f} % done{left}"


def builders(survey: Survey, database: str, version: str) -> list[Building]:
    """Return who builds a version, as each says itself, the slowest first."""
    found = []
    for name, told in _own_words(survey, database, version):
        if told.get("state") == "BUILDING":
            progress = map_of(told.get("progress"))
            found.append(Building(name, number_of(progress.get("done")) or 0.0, number_of(progress.get("remaining_s"))))
    return sorted(found, key=lambda each: (each.done, each.name))


def obstacles(survey: Survey, database: str, version: str) -> list[str]:
    """Return what a version waits for, a sentence each."""
    told = map_of(maps_of(map_of(survey.status.get(database)).get("versions")).get(version))
    said = [f"waits until {plain(told['waits_until'])}"] if told.get("waits_until") is not None else []
    building = _building_sets(told)
    slow = builders(survey, database, version)
    said += [_waits_for(each, building.get(each.name)) for each in slow[:MOST_BUILDERS]]
    if more := slow[MOST_BUILDERS:]:
        done = f"{more[0].done * 100:.0f} to {more[-1].done * 100:.0f} % done"
        said.append(f"waits for {len(more):,} more nodes that build, {done}")
    said += list(_stuck(survey, database, version))
    if survey.silent:
        said.append(_silent(survey.silent))
    return said


def _waits_for(one: Building, partitions: PartitionSet | None) -> str:
    if not partitions:
        return f"waits for what {one.name} builds, {one.words}"
    counted = "1 partition" if len(partitions) == 1 else f"{len(partitions):,} partitions"
    return f"waits for {counted} that {one.name} builds, {one.words}"


def _building_sets(told: Mapping[str, Value]) -> dict[str, PartitionSet]:
    """What owners have said that they build, by name."""
    count = whole_of(told.get("partition_count")) or 0
    owners = map(map_of, list_of(told.get("owners")))
    return {str(owner.get("node")): partitions_of(owner.get("building"), count) for owner in owners}


def _stuck(survey: Survey, database: str, version: str) -> Iterator[str]:
    """Tell who cannot go on, those with the same reason together."""
    reasons: dict[str, list[Value]] = {}
    for name, told in _own_words(survey, database, version):
        error = map_of(told.get("error"))
        if told.get("state") == "ERROR" and error:
            reasons.setdefault(f"cannot build it: {plain(error.get('message'))}", []).append(name)
        elif told.get("waiting_for") is not None:
            reasons.setdefault(f"waits for {plain(text_of(told['waiting_for']))}", []).append(name)
    for reason, names in reasons.items():
        yield f"{some_text(names)}: {reason}"


def _silent(silent: Mapping[str, str]) -> str:
    """Tell who did not answer, with the first one's reason."""
    reason = next(iter(silent.values()))
    return f"{some_text(list(silent))} did not answer what {'it does' if len(silent) == 1 else 'they do'}: {reason}"


def _own_words(survey: Survey, database: str, version: str) -> Iterator[tuple[str, dict[str, Value]]]:
    """What each member says of a version on itself."""
    for name, entries in survey.said.items():
        told = maps_of(map_of(entries.get(database)).get("versions")).get(version)
        if told:
            yield name, told
