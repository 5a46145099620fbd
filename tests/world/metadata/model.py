"""A map as a dictionary: each committed transaction is judged again, by independently written rules.

`operations.judge` decides on pages; this model decides on a dictionary: conflicts, refusals, and the effects of done
operations.  The functions of operations are shared: they are pure and tested separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.register.metadata.operations import Operation, OperationRefusal
from gossipkv.register.metadata.pages import MapEntry, OperationOutcome, generation_of, sequence_of
from gossipkv.register.metadata.tree import LIFE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.register.metadata.operations import Functions
    from gossipkv.register.metadata.tree import MapTree


class Content(NamedTuple):
    """The whole content of a map."""

    meta: bytes
    version: int
    entries: dict[bytes, MapEntry]


def content_of(tree: MapTree) -> Content:
    return Content(tree.root.meta, tree.root.version, {entry.key: entry for entry in tree.scan()})


@final
class _View:
    """A content that records the keys that a function reads."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self.touched: set[bytes] = set()

    @property
    def meta(self) -> bytes:
        return self._content.meta

    def get(self, key: bytes) -> MapEntry | None:
        self.touched.add(key)
        return self._content.entries.get(key)

    def next_key(self, key: bytes) -> bytes | None:
        return min((other for other in self._content.entries if other > key), default=None)


def replay(
    before: Content,
    judged: Sequence[tuple[Operation, OperationOutcome]],
    config: int,
    functions: Functions,
) -> tuple[Content, list[str]]:
    """Judge a transaction again; return the new content, and the differences from the recorded outcomes."""
    content = Content(before.meta, before.version, dict(before.entries))
    wrong: list[str] = []
    for operation, outcome in judged:
        expected, puts = _judge(content, operation, config, functions)
        if outcome is not expected:
            wrong.append(f"{operation.name} {operation.id.hex()[:8]} is {outcome.name}, and should be {expected!r}")
        for key, record in puts.items():
            if record is None:
                content.entries.pop(key, None)
            else:
                content.entries[key] = MapEntry(key, config, record)
    return content, wrong


def _judge(
    content: Content, operation: Operation, config: int, functions: Functions
) -> tuple[OperationOutcome | None, Mapping[bytes, bytes | None]]:
    base = operation.base
    if (
        not base < config
        or sequence_of(config) > sequence_of(base) + LIFE
        or generation_of(base) < generation_of(config)
    ):
        return None, {}  # The operation could not be judged at all.
    function = functions.get((operation.name, operation.version))
    if function is None:
        return OperationOutcome.REFUSED, {}
    view = _View(content)
    puts: Mapping[bytes, bytes | None] = {}
    is_refused = False
    try:
        edits = function(view, operation.argument)
        assert edits.meta is None, "no operation of tables and partitions changes the meta"
        assert not edits.touches_all
        puts = edits.puts
        if not puts:
            return OperationOutcome.DONE, {}
    except OperationRefusal:
        is_refused = True
    versions = [content.entries[key].version for key in view.touched | puts.keys() if key in content.entries]
    if max(content.version, *versions, 0) > base:
        return OperationOutcome.CONFLICT, {}
    return (OperationOutcome.REFUSED, {}) if is_refused else (OperationOutcome.DONE, puts)
