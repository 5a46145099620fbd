"""The verdict: all members' reports about themselves, merged and judged to a level, reasons, and advice.

The verdict is one function of the reports (`judging.judge`), so every node that hears the same members reaches the same
verdict.  The page, `status` and its `--wait`, `/readyz?verbose` and the metric show the verdict, and judge nothing
themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.status.reading import list_of, map_of, maps_of, number_of, text_of, whole_of
from gossipkv.status.words import done_text, some_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.wire.rpc import Value

WELL: Final = "well"
ATTENTION: Final = "attention"  # Everything can be read, and an operator should look.
TROUBLE: Final = "trouble"
LEVELS: Final = (WELL, ATTENTION, TROUBLE)

SERVES: Final = "serves"  # The wanted version of the database serves at every member that answers.
COMES: Final = "comes"  # A member builds the version, or can.
STUCK: Final = "stuck"  # The version does not come by itself.

MAX_REASONS: Final = 256  # The most reasons sent; further ones are counted.


class MemberReports(NamedTuple):
    """The members' reports, as one of them heard them."""

    node: str  # The node that asked the others, and was asked itself.
    members: Mapping[str, str]  # The state of each member that has not left, as known to that node.
    reports: Mapping[str, Mapping[str, Value]]  # Each member's report about itself (`report` on the wire).
    silent: Mapping[str, str]  # Asked members that did not answer, and the cause.


class Reason(NamedTuple):
    """A reason for the level."""

    level: str
    text: str
    database: str | None = None  # The database concerned, if it is only one.
    advice: str | None = None  # An action for the operator.
    is_of_tables: bool = False  # It concerns all tables, and no dataset.


class Coming(NamedTuple):
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
        others = f"; {self.builders} nodes build" if self.builders > 1 else ""
        return f"{done_text(self.done, self.remaining_s)}{others}"


@dataclass(frozen=True, slots=True)
class ClusterVerdict:
    """The overall health, as one node heard the members."""

    node: str
    level: str
    text: str  # One line that changes only with the facts, since it is read aloud.
    reasons: tuple[Reason, ...]  # The most urgent first.
    coming: dict[str, Coming] = field(default_factory=dict)  # The keys are databases.
    databases: int = 0  # The number of databases, including tables.
    silent: dict[str, str] = field(default_factory=dict)
    # The acceptors of the catalogue, with True for each that answers.
    acceptors: dict[str, bool] = field(default_factory=dict)
    # The expiry of nodes' certificates, in seconds since 1970.
    certificates: dict[str, int] = field(default_factory=dict)

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
        coming = {name: each for name, each in self.coming.items() if name == database}
        level = worst(reason.level for reason in reasons)
        text = headline(reasons, coming, database, is_sure=not self.silent)
        return ClusterVerdict(
            self.node, level, text, reasons, coming, 1, self.silent, self.acceptors, self.certificates
        )

    def level_of(self, database: str) -> str:
        """Return the level of one database."""
        return worst(reason.level for reason in self.reasons if reason.database == database)

    def to_map(self) -> dict[str, Value]:
        """Encode the verdict for the wire."""
        reasons: list[Value] = [
            {name: told for name, told in reason._asdict().items() if told not in {None, False}}
            for reason in self.reasons[:MAX_REASONS]
        ]
        coming: dict[str, Value] = {
            name: {**each._asdict(), "waits": list(each.waits)} for name, each in self.coming.items()
        }
        return {
            "node": self.node,
            "level": self.level,
            "text": self.text,
            "reasons": reasons,
            "reasons_not_told": len(self.reasons[MAX_REASONS:]),
            "coming": coming,
            "databases": self.databases,
            "silent": {**self.silent},
            "acceptors": {**self.acceptors},
            "certificates": {**self.certificates},
        }


def verdict_of(told: Mapping[str, Value]) -> ClusterVerdict:
    """Decode the verdict from the wire."""
    reasons = [*map(_reason, map(map_of, list_of(told.get("reasons"))))]
    if more := whole_of(told.get("reasons_not_told")):
        reasons.append(Reason(ATTENTION, f"and {more:,} more"))
    return ClusterVerdict(
        str(told.get("node")),
        level if (level := text_of(told.get("level"))) in LEVELS else ATTENTION,
        str(told.get("text")),
        tuple(reasons),
        {name: _coming(each) for name, each in maps_of(told.get("coming")).items()},
        whole_of(told.get("databases")) or 0,
        {name: str(why) for name, why in map_of(told.get("silent")).items()},
        {name: answers is True for name, answers in map_of(told.get("acceptors")).items()},
        {name: whole_of(until) or 0 for name, until in map_of(told.get("certificates")).items()},
    )


def _reason(told: Mapping[str, Value]) -> Reason:
    level, database, advice = (text_of(told.get(name)) for name in ("level", "database", "advice"))
    is_of_tables = told.get("is_of_tables") is True
    return Reason(level if level in LEVELS else ATTENTION, str(told.get("text")), database, advice, is_of_tables)


def _coming(told: Mapping[str, Value]) -> Coming:
    return Coming(
        str(told.get("version")),
        str(told.get("state")),
        number_of(told.get("done")),
        number_of(told.get("remaining_s")),
        whole_of(told.get("builders")) or 0,
        tuple(map(str, list_of(told.get("waits")))),
        told.get("is_first") is True,
    )


def worst(levels: Iterable[str]) -> str:
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
    if unread := [name for name, each in coming.items() if each.is_first]:
        return f"{some_text(unread)} cannot be read yet. {about}."
    if counts[ATTENTION]:
        return f"{'Everything can be read; something' if is_sure else 'Something'} deserves attention. {about}."
    return f"All is well. {about}."
