"""The verdict: all members' reports about themselves, merged and judged to a level, reasons, and advice.

The verdict is one function of the reports (`judging.judge`), so every node that hears the same members reaches the same
verdict.  The page, `status` and its `--wait`, `/readyz?verbose` and the metric show the verdict, and judge nothing
themselves.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from gossipkv.status.codec import Record, decode, encode, facts, replace
from gossipkv.status.words import done_text, some_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.wire.rpc import Value

Level = Literal["attention", "well", "trouble"]  # The first one replaces a level that is not understood.

WELL: Final = "well"
ATTENTION: Final = "attention"  # Everything can be read, and an operator should look.
TROUBLE: Final = "trouble"
LEVELS: Final[tuple[Level, ...]] = (WELL, ATTENTION, TROUBLE)

COMES: Final = "comes"  # A member builds the version, or can.
STUCK: Final = "stuck"  # The version does not come by itself.

_VERSION: Final = re.compile(r" \S+?(?=: )")  # It follows the database in the text of a reason.

MAX_REASONS: Final = 256  # The most reasons sent; further ones are counted.


class MemberReports(NamedTuple):
    """The members' reports, as one of them heard them."""

    node: str  # The node that asked the others, and was asked itself.
    members: Mapping[str, str]  # The state of each member that has not left, as known to that node.
    reports: Mapping[str, Value]  # Each member's answer to `report`.
    silent: Mapping[str, str]  # Asked members that did not answer, and the cause.


class Reason(Record):
    """A reason for the level."""

    level: Level = ATTENTION
    text: str = "-"
    database: str | None = None  # The database concerned, if it is only one.
    advice: str | None = None  # An action for the operator.
    is_of_tables: bool = False  # It concerns all tables, and no dataset.

    @property
    def divided(self) -> tuple[str, str]:
        """Return the database that the text begins with, and its version if one follows, and the rest of the text."""
        if self.database is None or not self.text.startswith(self.database):
            return "", self.text
        end = len(self.database)
        version = _VERSION.match(self.text, end)
        end = version.end() if version else end
        return self.text[:end], self.text[end:]


class Finding(NamedTuple):
    """A text of the verdict for people."""

    level: Level
    text: str


class Coming(Record):
    """A version that should serve and does not yet at every member."""

    version: str  # Empty: the version is not known yet.
    state: str  # The state is COMES or STUCK.
    done: float | None = None  # The progress of the slowest builder.
    remaining_s: float | None = None
    builders: int = 0
    waits: tuple[str, ...] = ()  # Each wait condition is a sentence.
    is_first: bool = False  # No data of the database can be read until then.

    @property
    def name(self) -> str:
        """Return the version's name in a sentence."""
        return f"version {self.version}" if self.version else "a version"

    @property
    def progress(self) -> str:
        """Return the progress of the slowest builder; empty if there is none."""
        if self.done is None:
            return ""
        builders = f"; {self.builders} nodes build" if self.builders > 1 else ""
        return f"{done_text(self.done, self.remaining_s)}{builders}"


class ClusterVerdict(Record):
    """The overall health, as one node heard the members."""

    node: str
    level: Level
    text: str  # One line that changes only with the facts, since it is read aloud.
    reasons: tuple[Reason, ...]  # The most urgent first.
    reasons_not_told: int
    coming: dict[str, Coming]  # The keys are databases.
    databases: int  # The number of databases, including tables.
    silent: dict[str, str]
    acceptors: dict[str, bool]  # The acceptors of the catalogue, with True for each that answers.
    certificates: dict[str, int]  # The expiry of nodes' certificates, in seconds since 1970.

    @property
    def findings(self) -> list[Finding]:
        """Return the texts of the reasons, the most urgent first; equal ones about several databases are one text."""
        return _merged((reason.level, *reason.divided) for reason in self.reasons)

    @property
    def waits(self) -> list[Finding]:
        """Return the conditions that coming versions wait for, merged as findings are."""
        coming = [(name, version) for name, version in self.coming.items() if version.state == COMES]
        return _merged((WELL, name, f": {version.name}: {wait}") for name, version in coming for wait in version.waits)

    @property
    def advice(self) -> list[str]:
        """Return the advice without repetitions, the most urgent first."""
        return list(dict.fromkeys(reason.advice for reason in self.reasons if reason.advice is not None))

    def about(self, database: str, *, is_table: bool = False) -> ClusterVerdict:
        """Return the part of the verdict that concerns one database."""
        reasons = tuple(
            reason
            for reason in self.reasons
            if reason.database in {None, database} and (is_table or not reason.is_of_tables)
        )
        coming = {name: version for name, version in self.coming.items() if name == database}
        level = worst(reason.level for reason in reasons)
        text = headline(reasons, coming, database, is_sure=not self.silent)
        return replace(self, level=level, text=text, reasons=reasons, coming=coming, databases=1)

    def level_of(self, database: str) -> Level:
        """Return the level of one database."""
        return worst(reason.level for reason in self.reasons if reason.database == database)

    def to_map(self) -> dict[str, Value]:
        """Encode the verdict for the wire."""
        reasons, more = self.reasons[:MAX_REASONS], len(self.reasons[MAX_REASONS:])
        verdict = encode(replace(self, reasons=(), reasons_not_told=more))
        return verdict | {"reasons": [facts(reason) for reason in reasons]}


def verdict_of(answer: Value) -> ClusterVerdict:
    """Decode the verdict from the wire."""
    verdict = decode(ClusterVerdict, answer)
    if not (more := verdict.reasons_not_told):
        return verdict
    return replace(verdict, reasons=(*verdict.reasons, Reason(text=f"and {more:,} more")), reasons_not_told=0)


def _merged(told: Iterable[tuple[Level, str, str]]) -> list[Finding]:
    """Merge texts that differ only in their subject, and name the first subjects: of level, subject and rest."""
    subjects: dict[tuple[Level, str], list[str]] = {}
    for level, subject, rest in told:
        subjects.setdefault((level, rest), []).append(subject)
    return [
        Finding(level, f"{some_text([*filter(None, names)] or [''])}{rest}")
        for (level, rest), names in subjects.items()
    ]


def worst(levels: Iterable[Level]) -> Level:
    """Return the worst of some levels; WELL if there are none."""
    return max(levels, key=LEVELS.index, default=WELL)


def headline(reasons: Iterable[Reason], coming: Mapping[str, Coming], about: str, *, is_sure: bool = True) -> str:
    """Return the verdict in one line that ends in `about`.  `is_sure`: all members have answered."""
    counts = dict.fromkeys(LEVELS, 0)
    for reason in reasons:
        counts[reason.level] += 1
    wrong = counts[TROUBLE]
    if wrong:
        return f"{'1 thing is wrong' if wrong == 1 else f'{wrong:,} things are wrong'}. {about}."
    if unread := [name for name, version in coming.items() if version.is_first]:
        return f"{some_text(unread)} cannot be read yet. {about}."
    if counts[ATTENTION]:
        return f"{'Everything can be read; something' if is_sure else 'Something'} deserves attention. {about}."
    return f"All is well. {about}."
