"""A job's declaration about the files that it wrote: `_PARTITIONS.json`, beside the data.

    {"function": "text", "partitions": 4, "files": {"part-00000": 2, "part-00001": 0, "part-00002": [1, 3]}}

`function` is a name from `gossipkv.keyspace.partitioner.FUNCTIONS`, `partitions` their number, and `files` maps each
data file to the partition, or partitions, whose keys it holds.  Any job can write it with one call of a JSON library.

The declaration is only a claim: with `presharded = "declared"` files of unwanted partitions are not read, and the
function is tried first.  Every key that is read is still verified.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard

from gossipkv.dataset.source.listing import MAX_FILES
from gossipkv.errors import SourceError
from gossipkv.keyspace.partitioner import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.storage.label import RandomAccess
    from gossipkv.storage.typed import Json

# 16,384 files with names of 255 bytes come to 5 MB; real declarations have some kilobytes.
MAX_DECLARED_BYTES: Final = 8 << 20

_FIELDS: Final = ("function", "partitions", "files")
_SHOWN_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class Declared:
    """The content of a declaration."""

    function: str
    partitions: int
    files: Mapping[str, tuple[int, ...]]  # The keys are names of files without directories; partitions ascend.

    def of(self, name: str) -> tuple[int, ...] | None:
        """Return the partitions whose keys a file holds; None if none are declared: the file must be read."""
        return self.files.get(name)


def read_declared(source: RandomAccess) -> Declared:
    """Read the declaration from its file.

    Raises:
        SourceError: it is too long, no JSON, or a field is missing, unknown or wrong; names the file and the field.
    """
    name, size_bytes = source.name, source.size_bytes
    if size_bytes > MAX_DECLARED_BYTES:
        raise _wrong(name, None, f"the file has {size_bytes:,} bytes; the limit is {MAX_DECLARED_BYTES:,} bytes")
    try:
        body: Json = json.loads(source.read_at(0, size_bytes), object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise _wrong(name, None, f"the file is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _wrong(name, None, f"the file should be a JSON object, not {_shown(body)}")
    for field in sorted(body.keys() - set(_FIELDS)):
        raise _wrong(name, field, f"is unknown; the known fields are {', '.join(_FIELDS)}")
    for field in _FIELDS:
        if field not in body:
            raise _wrong(name, field, "is missing")
    return _declared(body, name)


def write_declared(declared: Declared) -> bytes:
    """Encode `_PARTITIONS.json` with one file per line, for people."""
    lines = [
        f"    {json.dumps(name)}: {json.dumps(held[0] if len(held) == 1 else held)}"
        for name, held in sorted(declared.files.items())
    ]
    files = "{\n" + ",\n".join(lines) + "\n  }" if lines else "{}"
    return (
        f'{{\n  "function": {json.dumps(declared.function)},\n  "partitions": {declared.partitions},\n'
        f'  "files": {files}\n}}\n'
    ).encode("ascii")


def _declared(body: dict[str, Json], name: str) -> Declared:
    function, partitions, files = (body[field] for field in _FIELDS)
    if not isinstance(function, str) or function not in FUNCTIONS:
        raise _wrong(name, "function", f"should be one of {', '.join(FUNCTIONS)}, not {_shown(function)}")
    if not _is_whole(partitions) or not 0 < partitions <= MAX_FILES:
        raise _wrong(name, "partitions", f"should be a whole number from 1 to {MAX_FILES:,}, not {_shown(partitions)}")
    if not isinstance(files, dict):
        raise _wrong(name, "files", f"should be an object with the partition of each file, not {_shown(files)}")
    if len(files) > MAX_FILES:
        raise _wrong(name, "files", f"has {len(files):,} entries; the limit is {MAX_FILES:,}")
    held = {file: _held(file, value, partitions, name) for file, value in files.items()}
    return Declared(function, partitions, held)


def _held(file: str, value: Json, partitions: int, name: str) -> tuple[int, ...]:
    field = f"files[{_shown(file)}]"
    if not file or "/" in file or "\0" in file:
        raise _wrong(name, field, "should be the name of a file beside this one, without a directory")
    found = set()
    for partition in value if isinstance(value, list) else [value]:
        if not _is_whole(partition) or not 0 <= partition < partitions:
            expected = f"a partition from 0 to {partitions - 1}, or a list of them"
            raise _wrong(name, field, f"should be {expected}, not {_shown(value)}")
        found.add(partition)
    return tuple(sorted(found))


def _is_whole(value: Json) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _each_once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Build an object, refusing repeated names: JSON lets the last win, and would hide half a declaration."""
    found: dict[str, Json] = {}
    for field, value in pairs:
        if field in found:
            raise ValueError(f"{_shown(field)} occurs twice")
        found[field] = value
    return found


def _shown(value: Json) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _wrong(name: str, field: str | None, reason: str) -> SourceError:
    place = f"{name}: " if field is None else f"{name}: field {field} "
    return SourceError(f"{place}{reason}", {"file": name, "field": field, "reason": reason})
