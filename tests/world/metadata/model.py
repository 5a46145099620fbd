"""A map as a dictionary: each committed transaction is judged again, by independently written rules.

`operations.judge` decides on a view of a map; this model decides on a dictionary: conflicts, refusals, and the effects
of done operations.  The functions of operations are shared: they are pure and tested separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.register.metadata.known import (
    ENTRY,
    META,
    OUTCOMES,
    MapEntry,
    generation_of,
    sequence_of,
    unstamped,
)
from gossipkv.register.metadata.operations import (
    DIGEST_BYTES,
    LIFE,
    OPERATION_ID_BYTES,
    KeptOutcome,
    Operation,
    OperationOutcome,
    OperationRefusal,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.register.metadata.operations import Functions

_ROW_BYTES = OPERATION_ID_BYTES + DIGEST_BYTES + 1


class JudgedRow(NamedTuple):
    """The operations that one transaction has judged."""

    config: int
    kept: dict[bytes, KeptOutcome]


class Content(NamedTuple):
    """The whole content of a map."""

    meta: bytes
    version: int
    entries: dict[bytes, MapEntry]


def content_of(entries: Mapping[bytes, bytes]) -> Content:
    """Return the content of a register's map: the entries of its table, or of the catalogue."""
    version, meta = unstamped(entries.get(META, bytes(8)))
    found = {key[1:]: MapEntry(key[1:], *unstamped(entries[key])) for key in entries if key.startswith(ENTRY)}
    return Content(meta, version, found)


def rows_of(entries: Mapping[bytes, bytes]) -> dict[int, JudgedRow]:
    """Return the judged operations of each transaction that a map tells."""
    rows = {}
    for key, record in sorted(entries.items()):
        if key.startswith(OUTCOMES):
            config, data = unstamped(record)
            assert len(data) % _ROW_BYTES == 0, data
            parts = [data[at : at + _ROW_BYTES] for at in range(0, len(data), _ROW_BYTES)]
            kept = {
                part[:OPERATION_ID_BYTES]: KeptOutcome(OperationOutcome(part[-1]), part[OPERATION_ID_BYTES:-1])
                for part in parts
            }
            rows[int.from_bytes(key[1:], "big")] = JudgedRow(config, kept)
    return rows


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
    function = functions.get((operation.name, operation.version))
    if (
        not base < config
        or sequence_of(config) > sequence_of(base) + LIFE
        or generation_of(base) < generation_of(config)
        or function is None
    ):
        return None, {}  # The operation could not be judged at all.
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
